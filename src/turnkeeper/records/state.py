"""State that follows history: what versions changed, what a take starts from, and the disposable caches of the fold."""

from __future__ import annotations

import msgspec

from ..schema import Json, Table


class Delta(msgspec.Struct, frozen=True):
    """One change a version made: a value at a path of a slot, or its removal. States an outcome, never an operation."""

    session_id: str
    version: int
    seq: int  # order of writing within the version
    slot: str
    removed: bool
    at: int
    path: list[str]
    value: Json


class MessageDelta(msgspec.Struct, frozen=True):
    """One change written on a message of one take after it was committed: tied to a version, or a person's (None)."""

    session_id: str
    take: int
    position: int
    seq: int  # order of writing on the message
    version: int | None
    slot: str
    removed: bool
    at: int
    path: list[str]
    value: Json


class Base(msgspec.Struct, frozen=True):
    """One slot's state before the first message of a take. Data: damage refuses."""

    session_id: str
    take: int
    slot: str
    state: Json


class Tip(msgspec.Struct, frozen=True):
    """One slot's state at the end of a take, and the position it describes (-1: the base). A cache."""

    session_id: str
    take: int
    slot: str
    position: int
    state: Json


class Keyframe(msgspec.Struct, frozen=True):
    """The whole state, by slot, at a shown message whose count in the take is a multiple of 50. A cache."""

    session_id: str
    take: int
    position: int
    shown_count: int  # how many messages are shown up to here
    state: Json  # a dict by slot


DELTAS = Table("deltas", Delta, key=("session_id", "version", "seq"), root=("s", "session_id"))
MESSAGE_DELTAS = Table(
    "message_deltas", MessageDelta, key=("session_id", "take", "position", "seq"), root=("s", "session_id")
)
BASES = Table("bases", Base, key=("session_id", "take", "slot"), root=("s", "session_id"), payload=True)
TIPS = Table("tips", Tip, key=("session_id", "take", "slot"), root=("s", "session_id"), payload=True, cache=True)
KEYFRAMES = Table(
    "keyframes", Keyframe, key=("session_id", "take", "position"), root=("s", "session_id"), payload=True, cache=True
)
