"""The thread in which a call may wait for the disk or for another process, while the event loop goes on."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_S, _BREATH_S, _BETWEEN_S, _START_S = 0.005, 0.000_2, 0.001, 0.000_5
"""When to look whether the thread gets on, how long the loop then stands still for it, how soon again; and how long it
stands still at most until the thread has begun."""


class Worker:
    """A thread for the few calls that may wait for the disk or for another process: one at a time, in order.

    A loop that is never idle hands the interpreter's lock on only for an instant, too short for a thread to get it: a call
    of 5 ms took half a minute. So the loop stands still until the thread has begun (some 50 µs; else the call would wait
    until the loop has nothing to do, and a commit would never run beside the work on the next), and while a call does not
    end, for a moment now and then.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="turnkeeper-worker", daemon=True)
        self._thread.start()
        self._open = self._ended = self._seen = 0
        self._looking = False

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def start(self, call: Callable[[], None], tell: Callable[[BaseException | None], None]) -> None:
        """Run `call` in the thread, then `tell(its error or None)` on the loop."""

        begun = threading.Lock()
        begun.acquire()

        def job() -> None:
            error: BaseException | None = None
            begun.release()
            try:
                call()
            except BaseException as e:  # handed to the loop
                error = e
            self._loop.call_soon_threadsafe(self._end_call, tell, error)

        self._jobs.put(job)
        if not self._open:
            begun.acquire(timeout=_START_S)
        self._open += 1
        if not self._looking:
            self._looking, self._seen = True, self._ended
            self._loop.call_later(_LOOK_S, self._look)

    def _end_call(self, tell: Callable[[BaseException | None], None], error: BaseException | None) -> None:
        self._open -= 1
        self._ended += 1
        tell(error)

    def _look(self) -> None:
        self._looking, stuck = bool(self._open), self._ended == self._seen
        if self._looking:
            if stuck:
                time.sleep(_BREATH_S)
            self._seen = self._ended
            self._loop.call_later(_BETWEEN_S if stuck else _LOOK_S, self._look)

    async def run(self, call: Callable[[], None]) -> None:
        """Run `call` in the thread and wait for it; a cancelled waiter leaves it running to its end."""
        done: asyncio.Future[BaseException | None] = self._loop.create_future()
        self.start(call, lambda error: None if done.cancelled() else done.set_result(error))
        error = await asyncio.shield(done)
        if error is not None:
            raise error

    def end(self) -> None:
        """End the thread after what is queued."""
        self._jobs.put(None)
        self._thread.join()


async def apart(call: Callable[[], T]) -> T:
    """Run one call in a thread of its own; answer what it answers."""
    worker, answers = Worker(), list[T]()
    try:
        await worker.run(lambda: answers.append(call()))
    finally:
        worker.end()
    return answers[0]
