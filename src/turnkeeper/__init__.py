"""Turnkeeper keeps an AI's turns: everything a turn writes lands together or not at all.

Start with `open`. The errors a caller can meet are in `turnkeeper.errors`.
"""

from __future__ import annotations

from .api import Store, Tx, open
from .errors import (
    AlreadyLanded,
    Conflict,
    Damaged,
    Duplicate,
    Fenced,
    Gone,
    IncompatibleStore,
    Invalid,
    KeyReused,
    Misuse,
    NestedTransactionError,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RootStoreWriteInTransactionError,
    SessionBusy,
    TooLarge,
    TurnkeeperError,
    Unavailable,
    WrongKey,
    WrongSession,
)
from .handles import Session, TakeHandle, TurnBlock
from .turns.pending import LandedTurn
from .turns.play import Turn

__version__ = "0.1.0.dev0"

__all__ = [
    "AlreadyLanded",
    "Conflict",
    "Damaged",
    "Duplicate",
    "Fenced",
    "Gone",
    "IncompatibleStore",
    "Invalid",
    "KeyReused",
    "LandedTurn",
    "Misuse",
    "NestedTransactionError",
    "NotAllowed",
    "NotFound",
    "OutcomeUnknown",
    "RootStoreWriteInTransactionError",
    "Session",
    "SessionBusy",
    "Store",
    "TakeHandle",
    "TooLarge",
    "Turn",
    "TurnBlock",
    "TurnkeeperError",
    "Tx",
    "Unavailable",
    "WrongKey",
    "WrongSession",
    "open",
]
