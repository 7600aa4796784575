"""A room is a class over a scope: a transaction, whose block it then takes part in, or a store.

Its methods are plain functions over one transaction, or over anything that can be read, gathered by `write` and `read`.
On a store a write opens a transaction through `transact`, and inside a block it is refused; a read opens none and is
answered from one committed state. `tx.history.fork(…)` and `store.history.fork(…)` are the same method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

from ..jsonvalue import copied
from ..store.reading import Rows
from ..store.transaction import Transaction

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
_MUTABLE = (dict, list)


class StoreScope(Protocol):
    """What a room needs of a store."""

    async def transact(self, fn: Callable[[Any], Awaitable[T]]) -> T:
        """Run `fn(tx)` in a transaction and land it, with retry."""

    async def look(self, fn: Callable[[Rows], Awaitable[T]], *, one_view: bool = False) -> T:
        """Run `fn(rows)` over one committed state; `one_view` says that it reads across roots more than once."""


def _kept(value: Any, name: str) -> Any:
    """Copy a mutable argument; records in a list are frozen already."""
    if isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
        return tuple(value)
    return copied(value, name)


def _named(method: M, operation: Any) -> M:
    """Give a method the name and the docstring of its operation, its first parameter apart."""
    functools.update_wrapper(method, operation, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    return method


class Room:
    """Operations on one kind of thing, within a transaction or directly on a store."""

    def __init__(self, scope: Transaction | StoreScope) -> None:
        self._scope = scope


def write(
    operation: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Room, P], Coroutine[Any, Any, T]]:
    """Make a room's method of an operation over a transaction.

    Dicts and lists among its arguments are checked and copied at the call, before anything is awaited (F-9).
    """
    names = tuple(inspect.signature(operation).parameters)[1:]

    def method(self: Room, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        kept = [_kept(a, names[i]) if type(a) in _MUTABLE else a for i, a in enumerate(args)]
        named = {name: _kept(a, name) if type(a) in _MUTABLE else a for name, a in kwargs.items()}
        return run(self._scope, kept, named)

    async def run(scope: Transaction | StoreScope, args: list[Any], kwargs: dict[str, Any]) -> T:
        if isinstance(scope, Transaction):
            return await operation(scope, *args, **kwargs)
        return await scope.transact(lambda tx: operation(tx, *args, **kwargs))

    return _named(method, operation)


def read(
    operation: Callable[Concatenate[Any, P], Awaitable[T]], *, one_view: bool = False
) -> Callable[Concatenate[Room, P], Coroutine[Any, Any, T]]:
    """Make a room's method of an operation that only reads."""

    async def method(self: Room, /, *args: P.args, **kwargs: P.kwargs) -> T:
        scope = self._scope
        if isinstance(scope, Transaction):
            return await operation(scope, *args, **kwargs)
        return await scope.look(lambda rows: operation(rows, *args, **kwargs), one_view=one_view)

    return _named(method, operation)
