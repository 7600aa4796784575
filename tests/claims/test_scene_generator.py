"""Claims of the area S generator, and of families where the generator holds them: the folder and its list agree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.errors import Invalid
from turnkeeper.history.slots import SLOTS, generator, lookup, make_registry, slot_of
from turnkeeper.history.slots.generator import CATALOGUE, FOLDER, faults, main, module_name, read_folder, text_of

IMPORT = "from turnkeeper.history.slots.definition import define_slot\n"


def module(folder: Path, name: str, *ids: str, listed: bool = False, writers: str = "('turn',)") -> None:
    """Write a module that exports fields slots."""
    made = [f"define_slot({slot_id!r}, 'scene', 'fields', {{}}, writers={writers})" for slot_id in ids]
    exported = f"SLOTS = [{', '.join(made)}]" if listed else f"SLOT = {made[0]}"
    (folder / f"{name}.py").write_text(f"{IMPORT}{exported}\n")


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of two slots with its catalogue."""
    folder, catalogue = tmp_path / "slots", tmp_path / "catalogue.py"
    folder.mkdir()
    module(folder, "one", "one")
    module(folder, "two_words", "two-words")
    assert main([], folder, catalogue) == 0
    assert faults(folder, catalogue) == []
    return folder, catalogue


@pytest.fixture
def ours(tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the built-in slots with their catalogue."""
    folder, catalogue = tmp_path / "built_in", tmp_path / "catalogue.py"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CATALOGUE, catalogue)
    return folder, catalogue


@pytest.mark.claim("S-013")
def test_each_slot_lives_in_the_module_of_its_name():
    for exported in read_folder(FOLDER):
        ids = [slot.id for slot in exported.slots]
        if exported.listed:
            assert all(slot_id.startswith(f"{exported.module}.") for slot_id in ids)
        else:
            assert [module_name(slot_id) for slot_id in ids] == [exported.module]
    assert [module_name(slot_id) for slot_id in ("vars", "global", "tracker-list:*", "a.b:c")] == [
        "vars", "global_", "tracker_list", "a_b_c",
    ]  # fmt: skip


@pytest.mark.claim("S-013")
def test_a_module_of_another_name_is_reported(small):
    folder, catalogue = small
    module(folder, "three", "four")
    with pytest.raises(Invalid, match=r"three\.py.*'four'"):
        read_folder(folder)
    (folder / "three.py").write_text("X = 1\n")
    with pytest.raises(Invalid, match=r"three\.py"):
        read_folder(folder)
    assert main([], folder, catalogue) == 1


@pytest.mark.claim("S-014")
def test_the_same_folder_gives_the_same_bytes(ours, monkeypatch):
    folder, catalogue = ours
    before = catalogue.read_bytes()
    for _ in range(2):
        assert main([], folder, catalogue) == 0
        assert catalogue.read_bytes() == before
    found = read_folder(folder)
    assert text_of(found[::-1]) == text_of(found[3:] + found[:3]) == before.decode()
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter(sorted(glob(path, pattern), reverse=True)))
    assert main([], folder, catalogue) == 0
    assert catalogue.read_bytes() == before


@pytest.mark.claim("S-015")
def test_check_reports_a_stale_list_and_changes_nothing(small, capsys):
    folder, catalogue = small
    assert main(["--check"], folder, catalogue) == 0
    module(folder, "three", "three")
    files = {path: path.read_bytes() for path in folder.parent.rglob("*.py")}
    assert main(["--check"], folder, catalogue) == 1
    assert "three" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.parent.rglob("*.py")} == files
    assert main([], folder, catalogue) == 0
    assert main(["--check"], folder, catalogue) == 0
    assert main(["--chek"], folder, catalogue) == 2


@pytest.mark.claim("S-015", "S-018")
def test_the_command_says_our_own_list_is_fresh():
    command = [sys.executable, "-m", generator.__name__, "--check"]
    env = os.environ | {"PYTHONPATH": str(Path(generator.__file__).parents[3])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert faults(FOLDER, CATALOGUE) == []


@pytest.mark.claim("S-016")
@pytest.mark.parametrize("name", ["skills", "tracker_list", "tracker"])
def test_a_module_that_is_not_listed_is_named(ours, name):
    folder, catalogue = ours
    text = catalogue.read_text()
    missing = {"skills": "skills", "tracker_list": "tracker-list:*", "tracker": "tracker.stats"}[name]
    for cut in (f" {name},", f"    {name}.SLOT,\n", f"    *{name}.SLOTS,\n"):
        if cut in text:
            catalogue.write_text(text.replace(cut, ""))
            assert missing in faults(folder, catalogue)[0]
    catalogue.unlink()
    assert missing in "".join(faults(folder, catalogue))


@pytest.mark.claim("S-017", "S-037")
@pytest.mark.parametrize("slot_id", ["three", "three:*"])
def test_an_id_in_two_modules_is_named(small, slot_id):
    folder, catalogue = small
    as_it_was = catalogue.read_bytes()
    module(folder, "three", slot_id)
    module(folder, "four", slot_id)
    assert main([], folder, catalogue) == 1
    assert repr(slot_id) in faults(folder, catalogue)[0]
    assert catalogue.read_bytes() == as_it_was
    (slot,) = generator._load(folder / "three.py").slots
    with pytest.raises(Invalid, match=r"'three(:\*)?' is declared twice"):
        make_registry([slot, slot])


@pytest.mark.claim("S-017")
def test_an_id_twice_in_one_list_is_named(small):
    folder, catalogue = small
    module(folder, "a", "a.x", "a.y", "a.x", listed=True)
    assert main([], folder, catalogue) == 1
    assert "'a.x' is declared twice" in faults(folder, catalogue)[0]


@pytest.mark.claim("S-018")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from the modules", "from all modules"),
        ("    global_.SLOT,\n    skills.SLOT,\n", "    skills.SLOT,\n    global_.SLOT,\n"),
        ("BUILT_IN = ", "# by hand\nBUILT_IN = "),
    ],
)
def test_a_list_changed_by_hand_is_reported(ours, old, new):
    folder, catalogue = ours
    text = catalogue.read_text()
    assert old in text
    catalogue.write_text(text.replace(old, new, 1))
    assert "is not what the folder gives" in faults(folder, catalogue)[0]


@pytest.mark.claim("S-019")
def test_a_module_may_export_a_list(small):
    folder, catalogue = small
    module(folder, "many", "many.x", "many.y", listed=True)
    assert main([], folder, catalogue) == 0
    assert "    *many.SLOTS,\n" in catalogue.read_text()
    assert [slot.id for exported in read_folder(folder) for slot in exported.slots][:2] == ["many.x", "many.y"]
    for slot in SLOTS:
        assert slot.id.startswith("tracker.") is (slot in generator._load(FOLDER / "tracker.py").slots)
    assert slot_of("tracker.stats") is not None


@pytest.mark.claim("S-020")
@pytest.mark.parametrize("slot_id", ["other.x", "trackerx", "tracker", "tracker-x", "tracker:x"])
def test_a_listed_id_begins_with_the_modules_name_and_a_dot(small, slot_id):
    folder, catalogue = small
    as_it_was = catalogue.read_bytes()
    module(folder, "tracker", "tracker.ok", slot_id, listed=True)
    assert main([], folder, catalogue) == 1
    assert repr(slot_id) in faults(folder, catalogue)[0]
    assert catalogue.read_bytes() == as_it_was


@pytest.mark.claim("S-012")
def test_a_slot_without_a_writer_is_not_listed(small):
    folder, catalogue = small
    module(folder, "nobody", "nobody", writers="()")
    assert main([], folder, catalogue) == 1
    assert "'nobody' lists no writer" in faults(folder, catalogue)[0]


@pytest.mark.claim("S-035")
def test_a_familys_module_has_its_name_without_the_star(small):
    folder, catalogue = small
    module(folder, "tracker_record", "tracker-record:*")
    assert main([], folder, catalogue) == 0
    (folder / "tracker_record.py").rename(folder / "records.py")
    with pytest.raises(Invalid, match=r"records\.py.*tracker_record\.py"):
        read_folder(folder)
    assert main([], folder, catalogue) == 1


@pytest.mark.claim("S-036")
def test_the_generator_looks_for_families_that_overlap(small, monkeypatch):
    folder, catalogue = small
    module(folder, "a", "a:*")
    module(folder, "ab", "ab:*")
    seen: list[list[str]] = []
    monkeypatch.setattr(lookup, "check_overlap", lambda prefixes: seen.append(list(prefixes)))
    assert main([], folder, catalogue) == 0
    assert faults(folder, catalogue) == []
    assert seen == [["a:", "ab:"]] * 2


def test_a_long_list_of_modules_is_wrapped(small):
    folder, catalogue = small
    for number in range(20):
        module(folder, f"slot{number}", f"slot{number}")
    assert main([], folder, catalogue) == 0
    assert max(map(len, catalogue.read_text().splitlines()[2:])) <= 120
    assert faults(folder, catalogue) == []
