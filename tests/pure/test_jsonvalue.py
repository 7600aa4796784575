"""Properties of JSON values: kept to the bit, equal by type, one canonical form, refused with a path."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnkeeper.errors import Invalid, TooLarge
from turnkeeper.jsonvalue import canonical, check, copied, decode, digest, encode, plainly_fine, same
from turnkeeper.limits import INT_MAX, INT_MIN, JSON_BYTES, JSON_DEPTH, JSON_NODES

odd = st.sampled_from(
    ["\x00", "\ud800", "\udfff", "\ud83d\ude00", "\U0001f600", "\ue000", "\ue000d83d", "\x03", "\x01"]
)
texts = st.lists(odd | st.text(st.characters(codec=None), max_size=5), max_size=4).map("".join)
numbers = st.integers(INT_MIN, INT_MAX) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | texts | st.sampled_from([0, 0.0, -0.0, 1, 1.0, True, False, "", "1"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)


def _shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(value[key]) for key in reversed(list(value))}
    return [_shuffled(item) for item in value] if isinstance(value, list) else value


@given(values)
@example("\ud83d\ude00")
@example({"\ud83d\ude00": 1, "\U0001f600": 2})
def test_what_is_written_reads_back_to_the_bit(value: Any) -> None:
    """Types, order of keys, signs and every code point: repr tells them all apart."""
    check(value)
    text = encode(value)
    assert repr(decode(text)) == repr(value)
    assert repr(copied(value)) == repr(value)
    text.encode()  # any text column takes it …
    assert "\x00" not in text  # … also one that refuses NUL
    assert text[:1] not in ("\x01", "\x02")  # these marks are for coded cells


@given(values, values)
def test_equal_values_and_no_others_share_a_canonical_form(a: Any, b: Any) -> None:
    """And a digest; equality is symmetric."""
    assert same(a, b) == same(b, a) == (canonical(a) == canonical(b)) == (digest(a) == digest(b))


@given(values)
def test_the_order_of_keys_does_not_count(value: Any) -> None:
    """At no level."""
    assert same(value, _shuffled(value))
    assert canonical(value) == canonical(_shuffled(value))


def test_equality_is_by_type() -> None:
    """Python's own equality is not."""
    different = [1, 1.0, True, "1", 0, 0.0, -0.0, False, "", None, [], {}, [1], [1.0], [True], {"a": 1}, {"a": True}]
    for i, a in enumerate(different):
        for j, b in enumerate(different):
            assert same(a, b) == (i == j), (a, b)
    assert same((1, 2), [1, 2])
    assert not same([1, 2], [2, 1])
    assert not same({"a": 1}, {"b": 1})


def test_a_copy_is_the_callers_no_more() -> None:
    """At no level."""
    value = {"a": [{"b": [1]}]}
    kept = copied(value)
    value["a"][0]["b"].append(2)
    assert kept == {"a": [{"b": [1]}]}


def test_subclasses_of_dict_and_list_count_as_such() -> None:
    """They are written like their bases."""

    class Items(list[Any]):
        pass

    value: Any = OrderedDict(z=Items([1]), a=defaultdict(int, k=2))
    check(value)
    assert decode(encode(value)) == {"z": [1], "a": {"k": 2}}
    assert same(value, {"a": {"k": 2}, "z": [1]})


class Text(str):
    """Text with something else to it."""


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "$"), (math.inf, "$"), (-math.inf, "$"), ([0, math.nan], "$[1]"), ({"a": {"b": [math.inf]}}, "$.a.b[0]"),
        (2**63, "$"), (-(2**63) - 1, "$"), ({"n": 2**64}, "$.n"), (b"x", "$"), ({1: 2}, "$"), ({"a": {None: 1}}, "$.a"),
        ({"k": {1, 2}}, "$.k"), (1j, "$"), ([object()], "$[0]"), (Text("x"), "$"), ({Text("k"): 1}, "$"), ((1, b""), "$[1]"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused_with_its_path(value: Any, path: str) -> None:
    """Nothing is coerced."""
    assert not plainly_fine(value)
    with pytest.raises(Invalid) as caught:
        check(value)
    assert caught.value.fields["path"] == path


def test_a_refusal_tells_the_path_and_not_the_value() -> None:
    """It may be somebody's diary."""
    with pytest.raises(Invalid) as caught:
        check({"day": ["secret", b"secret"]}, "notes.body")
    assert caught.value.fields["path"] == "notes.body.day[1]"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}], ids=["list", "dict"])
def test_nesting_has_a_limit(wrap: Any) -> None:
    """64 levels are kept, one more is refused, however deep; a million do not exhaust the stack."""
    value: Any = 1
    for _ in range(JSON_DEPTH):
        value = wrap(value)
    check(value)
    assert decode(encode(value)) == value
    for deeper in (1, 1_000, 100_000):
        for _ in range(deeper):
            value = wrap(value)
        with pytest.raises(Invalid, match="deeper"):
            check(value)
    while isinstance(value, list | dict):  # taken apart by hand: the interpreter would recurse
        value = value[0] if isinstance(value, list) else value["k"]


def test_the_number_of_nodes_has_a_limit() -> None:
    """Containers and numbers count, texts do not."""
    check([1] * (JSON_NODES - 1))
    check(["x"] * (JSON_NODES + 10))
    with pytest.raises(TooLarge) as caught:
        check([1] * JSON_NODES)
    assert (caught.value.fields["family"], caught.value.fields["limit"]) == ("json-nodes", JSON_NODES)


def test_the_size_has_a_limit_in_bytes() -> None:
    """A text of two-byte characters reaches it with half as many."""
    assert len(encode("x" * (JSON_BYTES - 2))) == JSON_BYTES
    for value in ("x" * (JSON_BYTES - 1), "é" * (JSON_BYTES // 2)):
        with pytest.raises(TooLarge) as caught:
            encode(value)
        assert caught.value.fields["size"] > JSON_BYTES


@pytest.mark.parametrize("text", ["", "{", "nul", '{"a":}', "\x03", "\x03{", '"\ud800', "[1,]", "\x01abc"])
def test_damaged_text_is_a_value_error(text: str) -> None:
    """And nothing else: the caller knows which row it was."""
    with pytest.raises(ValueError):
        decode(text)


@given(values)
def test_the_quick_look_never_passes_what_the_close_one_refuses(value: Any) -> None:
    """It may only send on what would have passed."""
    wrapped: Any = [value, {"deep": [{"er": math.nan}]}]
    assert not plainly_fine(wrapped)
    assert not plainly_fine({"k": value, "big": 2**63})
