"""The SillyTavern reader: the samples against what a correct import makes of them, hostile files, and the way back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnkeeper.errors import Invalid, TooLarge
from turnkeeper.jsonvalue import check
from turnkeeper.transfer import sillytavern, sillytavern_lines
from turnkeeper.transfer.imported import Imported, ImportedMessage
from turnkeeper.transfer.sillytavern_dates import read_date
from turnkeeper.transfer.summaries import SEPARATOR, format_time, summary

SAMPLES = Path(__file__).parent.parent / "data" / "samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))
NAMES = sorted(name for name in EXPECTED["entries"] if name.startswith("sillytavern/") and name.endswith(".jsonl"))
# In this file each reply is dated before the question it answers.
EXTRA_LOSSES = {"sillytavern/swipe-out-of-range.jsonl": {"date_out_of_order"}}


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def read(*lines: Any) -> Imported:
    """Read lines given as values or as bytes."""
    texts = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return sillytavern.read("a folder/chat.jsonl", b"\n".join(texts))


def read_one(**fields: Any) -> tuple[ImportedMessage, list[str]]:
    """Read one message after a header; answer it and the kinds of the losses, `kind:field` where there is a field."""
    imported = read({"user_name": "U", "character_name": "C"}, {"is_user": False, "send_date": 0, "mes": "m"} | fields)
    (message,) = imported.sessions[0].takes[0].messages
    return message, [":".join(filter(None, (loss.kind, loss.where.get("field")))) for loss in imported.losses]


def strict(value: Any) -> str:
    """The text form in which equal means: same types, same order of keys."""
    return json.dumps(value)


def parse(line: bytes) -> Any:
    """The plain reading of a line, independent of the reader under test; `-0` is a zero with its sign."""
    return json.loads(line.decode(), parse_int=lambda digits: -0.0 if digits == "-0" else int(digits))


def plain_objects(content: bytes) -> list[dict[str, Any]]:
    """All lines that are objects, read as simply as possible."""
    found = []
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            value = parse(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def check_faithful(content: bytes) -> None:
    """Nothing crashes, every text is in a version, every message goes back to its line, a store could keep it all."""
    try:
        imported = sillytavern.read("chat.jsonl", content)
    except Invalid:
        assert not plain_objects(content)
        return
    takes = [take for session in imported.sessions for take in session.takes]
    messages = [message for take in takes for message in take.messages]
    lines = [x for x in plain_objects(content) if "mes" in x or (isinstance(x.get("swipes"), list) and x["swipes"])]
    assert len(messages) == len(lines)
    for line, message in zip(lines, messages, strict=True):
        texts = [version.text for version in message.versions]
        listed = line["swipes"] if isinstance(line.get("swipes"), list) else []
        assert [text for text in listed if isinstance(text, str)] == [
            text for text, entry in zip(texts, listed, strict=False) if isinstance(entry, str)
        ]
        if isinstance(line.get("mes"), str):
            assert message.text == line["mes"]
        assert strict(parse(sillytavern.dump_line(sillytavern.write_line(message)).encode())) == strict(line)
        for version in message.versions:
            check([version.parts, version.meta, version.extra])
        check(message.extra)
    for take in takes:
        check([take.variables, take.extra])
    summary(imported)


# ---- the samples ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_read_as_expected(name: str) -> None:
    actual, expected = summary(sillytavern.read(Path(name).name, sample(name))), dict(EXPECTED["entries"][name])
    more = [loss for loss in actual.pop("loss_report") if loss not in expected["loss_report"]]
    assert {loss["kind"] for loss in more} == EXTRA_LOSSES.get(name, set())
    losses = expected.pop("loss_report")
    if not more:
        assert summary(sillytavern.read(Path(name).name, sample(name)))["loss_report"] == losses
    for session, wanted in zip(actual["sessions"], expected["sessions"], strict=True):
        for take, wanted_take in zip(session["takes"], wanted["takes"], strict=True):
            for key in wanted_take:
                assert strict(take[key]) == strict(wanted_take[key]), key
    for told in (actual, expected):
        for session in told["sessions"]:
            session["takes"] = len(session["takes"])
    assert actual == expected


def test_the_separator_is_the_one_of_the_expected_digests() -> None:
    assert EXPECTED["separator"] == SEPARATOR


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_goes_back_line_by_line(name: str) -> None:
    content = sample(name)
    check_faithful(content)
    for session in sillytavern.read(name, content).sessions:
        header = sillytavern.write_header(session.takes[0])
        assert header is None or strict(header) == strict(plain_objects(content)[0])
        assert (header is None) == ("mes" in plain_objects(content)[0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_the_size_of_the_chunks_does_not_matter(name: str, size: int) -> None:
    content = sample(name)[:30_000]
    chunks = (content[start : start + size] for start in range(0, len(content), size))
    assert sillytavern.read(name, chunks) == sillytavern.read(name, content)


def test_an_open_file_can_be_read() -> None:
    with (SAMPLES / "sillytavern/modern.jsonl").open("rb") as file:
        assert sillytavern.read("modern.jsonl", file) == sillytavern.read(
            "modern.jsonl", sample("sillytavern/modern.jsonl")
        )


def test_scan_asks_for_no_more_of_the_file_than_it_has_told_about() -> None:
    asked = 0

    def lines() -> Iterator[bytes]:
        nonlocal asked
        for _ in range(1000):
            asked += 1
            yield b'{"mes":"m","is_user":true}\n'

    events = sillytavern.scan(lines())
    assert isinstance(next(events), ImportedMessage) and asked == 1


def test_no_text_is_kept_twice() -> None:
    for message in sillytavern.read("m.jsonl", sample("sillytavern/modern.jsonl")).sessions[0].takes[0].messages:
        kept = strict([message.extra, [version.extra for version in message.versions]])
        for version in message.versions:
            for part in version.parts:
                # A log of edits quotes older texts: that is a field of its own, kept as it is.
                assert strict(part["text"]) not in kept


def test_a_broken_line_is_kept_byte_for_byte() -> None:
    content = sample("sillytavern/broken-last-line.jsonl")
    kept = sillytavern.read("b.jsonl", content).sessions[0].takes[0].extra["sillytavern"]["kept_lines"]
    (event,) = [event for event in sillytavern.scan(content) if isinstance(event, sillytavern.KeptLine)]
    assert event.content == content.split(b"\n")[16]
    assert [line["line"] for line in kept] == [17] == [event.number]


# ---- what the samples do not hold -----------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [200, 4096, 10**7])
@pytest.mark.parametrize("name", [name for name in NAMES if "empty" not in name])
def test_sniff_knows_a_chat_file(name: str, head: int) -> None:
    assert sillytavern.sniff(sample(name)[:head])


@pytest.mark.parametrize(
    "head",
    [b"", b"[]", b"\x89PNG", b'{"name":"Mira","first_mes":"hi"}', b'{"entries":{}}\n', b'{"mes":1}', b"{x\n"],
)
def test_sniff_refuses_other_files(head: bytes) -> None:
    assert not sillytavern.sniff(head)


@pytest.mark.parametrize(
    ("value", "iso", "problem"),
    [
        ("2025-06-12T06:38:05.207Z", "2025-06-12T06:38:05.207Z", None),
        ("2025-06-12T08:38:05+0200", "2025-06-12T06:38:05.000Z", None),
        ("2025-06-12T06:38:05-00:30", "2025-06-12T07:08:05.000Z", None),
        ("2025-06-12 06:38", "2025-06-12T06:38:00.000Z", "date_without_zone"),
        (1749710485451, "2025-06-12T06:41:25.451Z", None),
        (1749710485451.5, "2025-06-12T06:41:25.451Z", None),
        ("1749710485451", "2025-06-12T06:41:25.451Z", None),
        ("2023-4-7 @9h 5m 4s 2ms", "2023-04-07T09:05:04.002Z", "date_without_zone"),
        ("2023-4-7@09h05m04s", "2023-04-07T09:05:04.000Z", "date_without_zone"),
        ("May 1, 2025 12:00am", "2025-05-01T00:00:00.000Z", "date_without_zone"),
        ("Sep 1, 2025 12:07 PM", "2025-09-01T12:07:00.000Z", "date_without_zone"),
        ("March 1, 2025 15:07", "2025-03-01T15:07:00.000Z", "date_without_zone"),
        ("2025-02-30T00:00:00Z", None, "date_unreadable"),
        ("Brumaire 9, 2025 6:00am", None, "date_unreadable"),
        ("May 1, 2025 13:00pm", None, "date_unreadable"),
        (True, None, "date_unreadable"),
        ({}, None, "date_unreadable"),
        (10**18, None, "date_unreadable"),
        ("9" * 5000, None, "date_unreadable"),
        ("٢٠٢٥-٠٦-١٢T٠٦:٣٨:٠٥Z", None, "date_unreadable"),
        (None, None, "date_missing"),
        (" ", None, "date_missing"),
    ],
)
def test_dates(value: Any, iso: str | None, problem: str | None) -> None:
    time_us, said = read_date(value)
    assert (format_time(time_us), said) == (iso, problem)


def test_a_zone_before_the_year_one_is_still_a_time_or_null() -> None:
    for text in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        assert isinstance(summary(read({"mes": "", "is_user": True, "send_date": text})), dict)


@pytest.mark.parametrize(
    ("fields", "texts", "shown", "losses"),
    [
        ({"mes": 42}, ["42"], 0, ["field_wrong_type:mes"]),
        ({"mes": True}, ["true"], 0, ["field_wrong_type:mes"]),
        ({"mes": None}, [""], 0, ["field_wrong_type:mes"]),
        ({"mes": 2**70}, [str(2**70)], 0, ["number_beyond_64_bits:mes", "field_wrong_type:mes"]),
        ({"swipes": {"a": 1}}, ["m"], 0, ["field_wrong_type:swipes"]),
        (
            {"swipes": ["m", 7, None], "swipe_id": 0, "swipe_info": "none"},
            ["m", "7", ""],
            0,
            ["field_wrong_type:swipes[1]", "field_wrong_type:swipes[2]", "field_wrong_type:swipe_info"],
        ),
        (
            {"swipes": ["m", "n"], "swipe_id": True, "swipe_info": [3, {"extra": "x"}]},
            ["m", "n"],
            0,
            ["swipe_id_not_integer", "field_wrong_type:swipe_info[0]", "field_wrong_type:swipe_info[1].extra"],
        ),
        ({"swipe_id": 2**70}, ["m"], 0, ["number_beyond_64_bits:swipe_id", "swipe_id_out_of_range"]),
        ({"swipe_id": 0}, ["m"], 0, []),
        ({"extra": ["x"]}, ["m"], 0, ["field_wrong_type:extra"]),
        ({"name": ["x"]}, ["m"], 0, ["field_wrong_type:name"]),
        ({"is_user": "true"}, ["m"], 0, ["field_wrong_type:is_user"]),
        ({"is_system": 1}, ["m"], 0, ["field_wrong_type:is_system"]),
    ],
)
def test_a_field_of_a_wrong_type(fields: dict[str, Any], texts: list[str], shown: int, losses: list[str]) -> None:
    message, told = read_one(**fields)
    assert [version.text for version in message.versions] == texts
    assert message.shown == shown
    assert told == losses
    assert message.role == ("user" if fields.get("is_user") else "assistant")
    assert message.hidden == bool(fields.get("is_system"))


def test_swipes_without_mes_are_shown_by_their_number() -> None:
    line = {"is_user": False, "send_date": 0, "swipes": ["a", "b"], "swipe_id": 1, "swipe_info": [{}, {}]}
    imported = read(line)
    assert imported.sessions[0].takes[0].messages[0].text == "b"
    assert {loss.kind for loss in imported.losses} == {"header_missing", "mes_missing"}


def test_thinking_becomes_a_part_with_its_signature() -> None:
    extra = {"reasoning": "hm", "reasoning_signature": "s", "api": "claude", "model": "m1", "token_count": 3, "x": [1]}
    message, told = read_one(extra=extra)
    (version,) = message.versions
    assert version.parts == [
        {"type": "thinking", "text": "hm", "signature": "s"},
        {"type": "text", "text": "m"},
    ]
    assert version.meta == {"model": "m1", "provider": "claude", "token_count": 3}
    assert "hm" not in strict(message.extra) and not told
    assert sillytavern.write_line(message)["extra"] == extra


def test_attachments_are_named_once_and_data_urls_are_there() -> None:
    extra = {"image": "a.png", "file": {"url": "b.txt"}, "media": [{"url": "data:image/png;base64,AA"}, {"url": "c"}]}
    _, told = read_one(extra=extra, swipes=["m"], swipe_id=0, swipe_info=[{"extra": extra}])
    assert told == [f"attachment_without_bytes:extra.{field}" for field in ("image", "file", "media[1]")]


def test_another_shown_version_writes_another_line() -> None:
    entries = [{"send_date": n, "extra": {"model": f"m{n}", "reasoning": f"r{n}"}} for n in (0, 1)]
    message, _ = read_one(swipes=["m", "n"], swipe_id=0, swipe_info=entries, extra=entries[0]["extra"])
    line = sillytavern.write_line(msgspec.structs.replace(message, shown=1))
    assert (line["mes"], line["swipe_id"], line["send_date"]) == ("n", 1, 1)
    assert line["extra"] == {"model": "m1", "reasoning": "r1"} and line["swipe_info"] == entries


def test_numbers_no_backend_keeps_stay_as_they_were_written() -> None:
    text = (
        b'{"mes":"m","is_user":true,"a":[1e400,-1e-400,NaN,18446744073709551616],'
        b'"b":{"$raw":"1"},"c":9223372036854775807}'
    )
    imported = read(text)
    (message,) = imported.sessions[0].takes[0].messages
    line = message.extra["sillytavern"]["line"]
    assert line["a"] == [{"$raw": written} for written in ("1e400", "-1e-400", "NaN", "18446744073709551616")]
    assert line["b"] == {"$raw": {"$raw": "1"}} and line["c"] == 2**63 - 1
    (loss,) = [loss for loss in imported.losses if loss.kind == "number_beyond_64_bits"]
    assert loss.where == {"line": 1, "field": "a[0]", "count": 4}
    assert sillytavern.dump_line(sillytavern.write_line(message)).encode() == text
    check(message.extra)


def test_of_equal_keys_the_last_wins_and_it_is_told() -> None:
    imported = read(b'{"mes":"a","is_user":true,"mes":"b","x":{"y":1,"y":2}}')
    assert imported.sessions[0].takes[0].messages[0].text == "b"
    (loss,) = [loss for loss in imported.losses if loss.kind == "key_repeated"]
    assert loss.where == {"line": 1, "field": "y", "count": 2}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"mes":' + b"[" * 100_000, "line_too_deep"),
        (b'{"mes":' + b"[" * 60 + b"]" * 60 + b"}", "line_too_deep"),
        (b'{"mes":"\xff"}', "line_broken"),
        (b"[1]", "line_not_object"),
        (b'{"is_user":true}', "line_without_mes"),
        (b'{"mes":"a"}{"mes":"b"}', "line_broken"),
    ],
)
def test_a_line_that_is_no_message_is_kept_and_told(line: bytes, kind: str) -> None:
    imported = read({"chat_metadata": {}}, line, {"mes": "after", "is_user": True})
    assert [message.text for message in imported.sessions[0].takes[0].messages] == ["after"]
    assert (kind, {"line": 2}) in [(loss.kind, loss.where) for loss in imported.losses]
    assert len(imported.sessions[0].takes[0].extra["sillytavern"]["kept_lines"]) == 1


def test_blank_lines_are_counted() -> None:
    imported = read({"mes": "a", "is_user": True}, b" ", b"\r", {"mes": "b", "is_user": True})
    assert [(loss.kind, loss.where) for loss in imported.losses][-1] == ("line_blank", {"line": 2, "count": 2})


@pytest.mark.parametrize("metadata", [None, 3, [], {"variables": []}, {"variables": None}])
def test_a_header_of_the_wrong_shape_is_kept(metadata: Any) -> None:
    header = {"user_name": "U", "chat_metadata": metadata, "create_date": "soon"}
    imported = read(header)
    assert imported.sessions[0].takes[0].variables == {}
    assert sillytavern.write_header(imported.sessions[0].takes[0]) == header
    assert [loss.kind for loss in imported.losses] == ["date_unreadable", "field_wrong_type"]


def test_a_file_without_objects_is_refused() -> None:
    with pytest.raises(Invalid, match="not a SillyTavern chat file"):
        sillytavern.read("photo.png", b"\x89PNG\n\x1a\n\x00")


def test_a_line_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sillytavern_lines, "LINE_BYTES_MAX", 20)
    with pytest.raises(TooLarge, match="Line 2"):
        sillytavern.read("x.jsonl", [b'{"mes":"a"}\n', b"x" * 15, b"x" * 15])


# ---- fuzz -----------------------------------------------------------------------------------------------------------

SMALL = [sample(name)[:6000] for name in NAMES]
TOKENS = [b"\n", b"\r\n", b"null", b"{}", b"[]", b'"', b"\\ud83d", b"\xff", b",", b"1e999", b"-1", b'"mes":', b"\x00"]
EDITS = st.tuples(st.floats(0, 1), st.sampled_from(TOKENS), st.integers(0, 40))
TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
NUMBERS = st.integers() | st.integers(-1, 3) | st.floats(allow_nan=False, allow_infinity=False)
KEYS = TEXTS | st.sampled_from(["$raw", "extra"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
EXTRAS = st.fixed_dictionaries(
    {}, optional={"reasoning": TEXTS | VALUES, "reasoning_signature": TEXTS | VALUES, "model": VALUES, "media": VALUES}
)
ENTRIES = st.fixed_dictionaries({}, optional={"send_date": VALUES, "extra": EXTRAS | VALUES, "gen_started": VALUES})
FEW_TEXTS = st.sampled_from(["", "a", "b"]) | TEXTS
LINES = st.fixed_dictionaries(
    {},
    optional={
        "mes": FEW_TEXTS | VALUES,
        "swipes": st.lists(FEW_TEXTS | VALUES, max_size=4) | VALUES,
        "swipe_id": st.integers(-1, 4) | VALUES,
        "swipe_info": st.lists(ENTRIES | VALUES, max_size=4) | VALUES,
        "variables": st.lists(VALUES, max_size=4) | VALUES,
        "extra": EXTRAS | VALUES,
        "name": VALUES,
        "is_user": st.booleans() | VALUES,
        "is_system": st.booleans() | VALUES,
        "send_date": st.integers(0, 2**42) | VALUES,
        "x_unknown": VALUES,
    },
).flatmap(lambda line: st.permutations(list(line)).map(lambda keys: {key: line[key] for key in keys}))


@settings(max_examples=300, deadline=None)
@given(content=st.sampled_from(SMALL), edits=st.lists(EDITS, max_size=8))
def test_mutated_bytes_never_crash_and_lose_no_text(content: bytes, edits: list[tuple[float, bytes, int]]) -> None:
    for where, token, dropped in edits:
        start = int(where * len(content))
        content = content[:start] + token + content[start + dropped :]
    check_faithful(content)


@settings(max_examples=300, deadline=None)
@given(lines=st.lists(LINES, max_size=4))
def test_any_value_in_any_field_never_crashes_and_loses_no_text(lines: list[dict[str, Any]]) -> None:
    check_faithful("\n".join(json.dumps(line) for line in lines).encode())


@settings(max_examples=200, deadline=None)
@given(value=VALUES)
def test_a_value_is_written_as_it_was_read(value: Any) -> None:
    text = json.dumps(value)
    parsed = sillytavern_lines.LineParser().parse(text.encode())
    assert strict(parse(sillytavern.dump_line(parsed.value).encode())) == strict(parse(text.encode()))
