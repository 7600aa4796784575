"""The suite is the same on each backend: the same tests, none left out, none skipped."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.contract.test_contract import TestContract as Contract
from turnkeeper.testing import PARTS
from turnkeeper.testing.runner import tests as suite

MODULE = "tests/contract/test_contract.py"


def test_the_same_tests_are_collected_on_each_backend(pytestconfig: pytest.Config) -> None:
    """At least 120 each; pytest itself is asked."""
    collected = _collect(pytestconfig)
    by_backend: dict[str, set[str]] = {}
    for name in collected:
        found = re.fullmatch(r"(test_\w+)\[(\w+)\]", name)
        assert found, name
        by_backend.setdefault(found[2], set()).add(found[1])
    assert set(by_backend) == {"memory", "sqlite", "postgres"}
    assert by_backend["memory"] == by_backend["sqlite"] == by_backend["postgres"]
    assert len(by_backend["memory"]) >= 120


def test_every_test_of_the_suite_is_in_the_class_that_authors_subclass() -> None:
    """Two parts with a test of one name would hide one of the two."""
    names = [name.partition(".")[2] for name, _ in suite()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert {name for name in dir(Contract) if name.startswith("test_")} == set(names)
    assert all(part in Contract.__mro__ for part in PARTS)


def test_no_test_of_the_suite_may_be_skipped() -> None:
    """There is no mark for it, and none is used."""
    for name, test in suite():
        marks = {mark.name for mark in getattr(test, "pytestmark", [])}
        assert not marks & {"skip", "skipif", "xfail"}, name


def _collect(config: pytest.Config) -> list[str]:
    """Have another pytest collect the contract tests, and answer their names."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", MODULE]
    listed = subprocess.run(command, cwd=config.rootpath, capture_output=True, text=True, check=True).stdout
    return [line.rpartition("::")[2] for line in listed.splitlines() if "::" in line]
