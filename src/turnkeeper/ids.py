"""Ids: UUIDv7 for what stands in header rows (time-ordered, so rows of one day lie together), random tokens for lives.

Inside a session rows name each other by small integers, so an id is minted once a session, not once a message.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

Ids = Callable[[], str]


def uuid7() -> str:
    """Mint a UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, then randomness."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def token() -> str:
    """Mint an unguessable 128-bit token, for incarnations and owners: never equal in two lives."""
    return os.urandom(16).hex()
