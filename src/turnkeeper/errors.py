"""Every error a caller can meet, in one tree: a class per decision the caller takes, not per place it was raised.

::

    TurnkeeperError
    ├── Invalid (ValueError)              fix the input
    │   ├── TooLarge                        … it is above a limit
    │   └── WrongSession                    … it belongs to another session
    ├── NotFound (KeyError)               look elsewhere
    │   └── Gone                            … it was deleted; it will not come back
    ├── Duplicate (ValueError)            choose another id
    ├── Conflict                          run it again (retryable)
    ├── SessionBusy                       wait, or take over (retryable)
    ├── Fenced (RuntimeError)             stop: somebody else owns the session now; claim again
    ├── AlreadyLanded                     nothing to do: `.turn` is the stored answer
    ├── KeyReused (ValueError)            choose another key: this one named another request
    ├── NotAllowed (PermissionError)      ask for the right first
    ├── Damaged                           restore or repair: stored data cannot be read
    ├── Misuse (RuntimeError)             fix the calling code
    │   ├── RootStoreWriteInTransactionError
    │   └── NestedTransactionError
    └── Unavailable (OSError)             the store cannot answer (disk, connection, version)
        ├── IncompatibleStore               … it was written by a newer or a foreign program
        ├── WrongKey                        … it is sealed, and this key does not open it
        └── OutcomeUnknown                  … the connection was lost during a landing; ask the receipt

Each error has a stable `code`, says whether a plain retry may help (`retryable`), keeps its typed fields in `fields`
(and as attributes), and speaks in three beats: what happened, what is true now, what to do next. Messages name slots,
paths, kinds, sizes, ids and limits, never a value that a person or a model wrote.
"""

from __future__ import annotations

from typing import Any, ClassVar


class TurnkeeperError(Exception):
    """The root of the tree. Catch it to catch everything this library raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, happened: str, now: str = "Nothing was written.", do: str = "", **fields: Any) -> None:
        self.happened, self.now, self.do, self.fields = happened, now, do, fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(" ".join(beat for beat in (happened, now, do) if beat))

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print the repr of its message

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.happened, self.now, self.do, self.fields)


def _rebuild(kind: type[TurnkeeperError], happened: str, now: str, do: str, fields: dict[str, Any]) -> TurnkeeperError:
    return kind(happened, now, do, **fields)


class Invalid(TurnkeeperError, ValueError):
    """A value that no backend can keep, or an argument outside its rule. `fields` has the path or the argument's name."""

    code = "invalid"


class TooLarge(Invalid):
    """A value above one of `turnkeeper.limits`. Fields: `family`, `limit`, and `size` where it is known."""

    code = "too-large"


class WrongSession(Invalid):
    """A handle or token of one session was used on another. Both sessions are unchanged."""

    code = "wrong-session"


class NotFound(TurnkeeperError, KeyError):
    """No row with that id. Fields: `kind`, `id`."""

    code = "not-found"


class Gone(NotFound):
    """The session was deleted. A new session under the same id is another life and starts empty. Fields: `session_id`."""

    code = "gone"


class Duplicate(TurnkeeperError, ValueError):
    """A row with that id, or with that unique value, is there already. Fields: `table`."""

    code = "duplicate"


class Conflict(TurnkeeperError):
    """Somebody changed what the decision rested on between the read and the landing. Run the block again."""

    code = "conflict"
    retryable = True


class SessionBusy(TurnkeeperError):
    """A live worker owns the session. Fields: `session_id`, `owner` (its label), `lease_until` (microseconds UTC)."""

    code = "session-busy"
    retryable = True


class Fenced(TurnkeeperError, RuntimeError):
    """This context lost or released the session: its epoch is not the session's any more. Claim it again to go on."""

    code = "fenced"


class AlreadyLanded(TurnkeeperError):
    """The turn of this key has landed with equal input. `.turn` is its stored answer."""

    code = "already-landed"


class KeyReused(TurnkeeperError, ValueError):
    """This key already names a request with other content. Nothing was run."""

    code = "key-reused"


class NotAllowed(TurnkeeperError, PermissionError):
    """The writer behind this door may not write that."""

    code = "not-allowed"


class Damaged(TurnkeeperError):
    """A stored row cannot be read. Fields: `table`, `key`. Nothing was changed, nothing else is affected."""

    code = "damaged"


class Misuse(TurnkeeperError, RuntimeError):
    """The calling code broke a rule of the library: a dead transaction, another event loop."""

    code = "misuse"


class RootStoreWriteInTransactionError(Misuse):
    """A write through the store from inside a transaction block of the same store. Use the block's `tx`."""

    code = "root-write-in-transaction"


class NestedTransactionError(Misuse):
    """A transaction was opened inside a transaction block of the same store. Fields: `store`, `backend`."""

    code = "nested-transaction"

    @classmethod
    def of(cls, store: str, backend: str) -> NestedTransactionError:
        """Build the one message all backends share (T-225, T-229)."""
        return cls(
            f"A transaction of the store {store!r} ({backend}) was opened inside another transaction of it;",
            "nested transactions are unsupported, because an inner one could land although the outer one is undone. "
            "Nothing was opened, and the outer transaction goes on.",
            "Use the outer block's tx (with tx.savepoint() for a part that may fail), or flatten the two blocks.",
            store=store,
            backend=backend,
        )


class Unavailable(TurnkeeperError, OSError):
    """The store cannot do it now: a missing file, a full disk, a lost connection, a closed store."""

    code = "unavailable"
    retryable = True


class IncompatibleStore(Unavailable):
    """The database belongs to a newer Turnkeeper or to another program. Nothing was changed in it."""

    code = "incompatible-store"
    retryable = False


class WrongKey(Unavailable):
    """The store is sealed with another key, or was never sealed. Nothing was read or changed (F-133)."""

    code = "wrong-key"
    retryable = False


class OutcomeUnknown(Unavailable):
    """The connection was lost while a landing was under way: it is wholly there or wholly absent.

    Repeat the call with the same key: the receipt answers when it had landed.
    """

    code = "outcome-unknown"
