"""The times of a chat file, in every dialect SillyTavern has written, to microseconds UTC. Pure.

The dialects: ISO 8601 with Z, with an offset, or with neither; milliseconds since 1970 as a number, or as a text of
digits; ``2023-4-27 @09h 40m 54s 922ms``; ``2026-03-22@14h20m19s``, also with ``717ms``; ``June 12, 2025 6:48am``.
Whatever names no zone is read as UTC, and the reader says so. Digits beyond the microsecond are cut off.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

Problem = Literal["date_without_zone", "date_unreadable", "date_missing"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_MS_MAX = 253_402_300_800_000  # the year 10000; the least is the year 1
_MS_MIN = -62_135_596_800_000

_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,12}))?)?"
    r" ?(Z|z|([+-])([0-9]{2}):?([0-9]{2}))?"
)
_HUMAN = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2}) ?@ ?([0-9]{1,2})h ?([0-9]{1,2})m ?([0-9]{1,2})s(?: ?([0-9]{1,3})ms)?"
)
_WORDS = re.compile(
    r"([A-Za-z]{3,9})\.? ([0-9]{1,2}), ([0-9]{4}),? ([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))? ?([AaPp][Mm])?"
)
_DIGITS = re.compile(r"-?[0-9]{1,15}")
_MONTHS = {
    name: number
    for number, month in enumerate(
        "january february march april may june july august september october november december".split(), 1
    )
    for name in (month, month[:3])
}


def read_date(value: Any) -> tuple[int | None, Problem | None]:
    """Read one time. Answers microseconds UTC, or None, and what must be reported about it, if anything."""
    if value is None:
        return None, "date_missing"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _from_ms(value)
    if not isinstance(value, str):
        return None, "date_unreadable"
    text = value.strip() if len(value) <= 64 else value
    if not text:
        return None, "date_missing"
    try:
        return _from_text(text)
    except (ValueError, OverflowError):  # a thirteenth month, a year before 1
        return None, "date_unreadable"


def _from_ms(ms: int | float) -> tuple[int | None, Problem | None]:
    if not _MS_MIN <= ms < _MS_MAX:
        return None, "date_unreadable"
    return (ms * 1000 if isinstance(ms, int) else round(ms * 1000)), None


def _from_text(text: str) -> tuple[int | None, Problem | None]:
    if match := _ISO.fullmatch(text):
        year, month, day, hour, minute, second, fraction, zone, sign, ahead_h, ahead_m = match.groups()
        us = _to_us(year, month, day, hour, minute, second, (fraction or "").ljust(6, "0")[:6])
        if zone is None:
            return us, "date_without_zone"
        if sign:
            ahead_us = (int(ahead_h) * 60 + int(ahead_m)) * 60_000_000
            us += ahead_us if sign == "-" else -ahead_us
        if not _MS_MIN * 1000 <= us < _MS_MAX * 1000:  # the offset led out of the calendar
            return None, "date_unreadable"
        return us, None
    if match := _HUMAN.fullmatch(text):
        year, month, day, hour, minute, second, ms = match.groups()
        return _to_us(year, month, day, hour, minute, second, str(int(ms or 0) * 1000)), "date_without_zone"
    if match := _WORDS.fullmatch(text):
        return _from_words(*match.groups()), "date_without_zone"
    if _DIGITS.fullmatch(text):
        return _from_ms(int(text))
    return None, "date_unreadable"


def _from_words(month: str, day: str, year: str, hour: str, minute: str, second: str | None, half: str | None) -> int:
    number = _MONTHS.get(month.lower())
    if number is None:
        raise ValueError("not the name of a month")
    if half:
        if not 1 <= int(hour) <= 12:
            raise ValueError("no such hour on a clock of twelve")
        hour = str(int(hour) % 12 + (12 if half.lower() == "pm" else 0))
    return _to_us(year, str(number), day, hour, minute, second, "0")


def _to_us(year: str, month: str, day: str, hour: str, minute: str, second: str | None, us: str) -> int:
    moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), int(us), tzinfo=UTC)
    return (moment - _EPOCH) // _US
