"""Marks of the owners that live in this process, for backends on which other processes cannot be looked at."""

from __future__ import annotations


class OpenOwners:
    """The owner tokens of open store handles."""

    def __init__(self, *, of_others: bool | None) -> None:
        self._tokens: set[str] = set()
        self._of_others = of_others  # what is true of a token that is not here: gone (False), or nobody can tell (None)

    def hold(self, owner_id: str) -> None:
        """Keep a mark that ends with this process."""
        self._tokens.add(owner_id)

    def release(self, owner_id: str) -> None:
        """Take it away."""
        self._tokens.discard(owner_id)

    def alive(self, owner_id: str) -> bool | None:
        """Say whether an owner is provably there (True) or gone (False); None: cannot tell."""
        return True if owner_id in self._tokens else self._of_others
