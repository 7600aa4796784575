"""Touching: who may decide on a root next, inside this process. Between processes the root's revision decides.

A line per root, first come, first served. It is an optimisation, never needed for correctness: whoever does not wait
(a touch that sorts before a root already held, or one whose holder sits on it for too long) goes on optimistically and
is judged at its landing. As waiting only ever goes upwards in the order of root ids, waits cannot form a cycle.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Any

LOG = logging.getLogger("turnkeeper.store")
SLOW_BLOCK_S = 1.0


class _Line:
    """One root's holder and the waiters behind it."""

    __slots__ = ("holder", "logged", "since", "task", "waiters")

    def __init__(self, holder: object) -> None:
        self.waiters: deque[tuple[object, asyncio.Future[bool]]] = deque()
        self.take(holder, asyncio.current_task())

    def take(self, holder: object, task: asyncio.Task[Any] | None) -> None:
        self.holder, self.task, self.since, self.logged = holder, task, time.monotonic(), False


class Lines:
    """The waiting lines of one engine."""

    def __init__(self, max_block_s: float) -> None:
        self._max_block_s = max_block_s
        self._lines: dict[str, _Line] = {}

    def try_enter(self, holder: object, root: str) -> bool:
        """Take a root if it is free."""
        if root in self._lines:
            return False
        self._lines[root] = _Line(holder)
        return True

    async def enter(self, holder: object, root: str) -> bool:
        """Wait for a root; True when it is held, False when its holder took too long to go on waiting."""
        line = self._lines.get(root)
        if line is None:
            self._lines[root] = _Line(holder)
            return True
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        line.waiters.append((asyncio.current_task(), turn))
        ticket = loop.call_later(min(SLOW_BLOCK_S, self._max_block_s), self._look_after, root, turn)
        try:
            held = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.leave(holder, root, granted=True)  # granted and cancelled in the same tick: pass it on
            raise
        finally:
            ticket.cancel()
        if held:
            self._lines[root].holder = holder
        return held

    def _look_after(self, root: str, turn: asyncio.Future[bool]) -> None:
        line = self._lines.get(root)
        if line is None or turn.done():
            return
        held_s = time.monotonic() - line.since
        if held_s >= self._max_block_s:
            turn.set_result(False)
            return
        if held_s >= SLOW_BLOCK_S and not line.logged:
            line.logged = True
            LOG.warning("a transaction block has held root %s for %.1f s:%s", root, held_s, _stack(line.task))
        left = min(SLOW_BLOCK_S, self._max_block_s - held_s) if held_s >= SLOW_BLOCK_S else SLOW_BLOCK_S - held_s
        asyncio.get_running_loop().call_later(min(left, self._max_block_s - held_s), self._look_after, root, turn)

    def leave(self, holder: object, root: str, *, granted: bool = False) -> None:
        """Give a root to the next waiter."""
        line = self._lines[root]
        assert granted or line.holder is holder, f"root {root} is left by somebody who does not hold it"
        while line.waiters:
            task, turn = line.waiters.popleft()
            if not turn.done():
                line.take(turn, task)  # type: ignore[arg-type]
                turn.set_result(True)
                return
        del self._lines[root]


def _stack(task: asyncio.Task[Any] | None) -> str:
    if task is None or task.done():
        return " (its task is gone)"
    frames = task.get_stack(limit=8)
    return "".join(f"\n  {f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_name}" for f in frames)
