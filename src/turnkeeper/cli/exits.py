"""Which exit code an error means, in one table: 0 done, 1 the store said no, 2 wrong usage.

Wrong usage is what the same person can mend in the command itself; everything else is the store's answer.
"""

from __future__ import annotations

from ..errors import TurnkeeperError

DONE, REFUSED, WRONG_USAGE = 0, 1, 2

EXIT_CODES: dict[str, int] = {
    "error": REFUSED,
    "invalid": WRONG_USAGE,
    "too-large": REFUSED,
    "wrong-session": WRONG_USAGE,
    "not-found": REFUSED,
    "gone": REFUSED,
    "duplicate": REFUSED,
    "conflict": REFUSED,
    "session-busy": REFUSED,
    "fenced": REFUSED,
    "already-landed": DONE,
    "key-reused": REFUSED,
    "not-allowed": REFUSED,
    "damaged": REFUSED,
    "misuse": WRONG_USAGE,
    "root-write-in-transaction": WRONG_USAGE,
    "nested-transaction": WRONG_USAGE,
    "unavailable": REFUSED,
    "wrong-key": REFUSED,
    "incompatible-store": REFUSED,
    "outcome-unknown": REFUSED,
}


def exit_code(error: TurnkeeperError) -> int:
    """Answer the exit code of an error; one that the table does not know is a refusal."""
    return EXIT_CODES.get(error.code, REFUSED)
