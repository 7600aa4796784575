"""Planted faults: each must make a test marked in its claim area fail. `make breakers` replays them.

An entry is one line:

    Breaker("T savepoints", "T-027", "store/overlay.py", "del self.marks[mark:]", "pass"),

`area` is the claim area with its letter, as `make claims` prints it; `claim` the claim the fault breaks; `file` a path
below src/turnkeeper/. `old` must stand in that file exactly once, `new` takes its place.

A good breaker is a mistake somebody could make: a check left out, `<` for `<=`, a lost `await`, the wrong head moved.
It must still import and run, or it proves nothing (`broken breaker`). At least four for each area. When one is MISSED,
write the test that was missing; do not make the fault cruder. To add one: write the line, run
`make breakers AREA="T savepoints" ONLY=T-027`, and look that the test it names is the one that ought to catch it.
"""

from __future__ import annotations

from typing import NamedTuple


class Breaker(NamedTuple):
    """One planted fault."""

    area: str
    claim: str
    file: str
    old: str
    new: str


BREAKERS: list[Breaker] = [
    # one way in, all or nothing
    Breaker("T store-contract", "T-002", "store/overlay.py", "                    gone.append(key)\n", "                    continue\n"),
    Breaker("T store-contract", "T-003", "store/engine.py", "            if error is None:\n", "            if not isinstance(error, TypeError):\n"),
    Breaker("T store-contract", "T-005", "store/engine.py", "                    return await fn(tx)\n", "                    await fn(tx)\n                return None  # type: ignore[return-value]\n"),
    Breaker("T store-contract", "T-010", "store/transaction.py", "        for root in self._held:\n", "        for root in self._held[1:]:\n"),
    Breaker("T store-contract", "T-012", "store/engine.py", "        _current.set(_Inside(self._engine, self._tx, _current.get()))\n", "        _current.set(_current.get())\n"),
    Breaker("T store-contract", "T-017", "store/engine.py", "            if link.engine is self and link.tx.live:\n", "            if link.engine is self:\n"),
    Breaker("T store-contract", "T-019", "store/transaction.py", "        self.live = False\n        if self.outcome == \"open\":\n", "        if self.outcome == \"open\":\n"),
    Breaker("T store-contract", "T-020", "store/transaction.py", "                if not self.live:  # the block ended while a task of it stood in line\n", "                if False:\n"),
    Breaker("T store-contract", "T-020", "store/overlay.py", "        return sum(1 for key in live if base.get(key) is not None) if live and base else 0\n", "        return 0\n"),
    Breaker("T store-contract", "T-020", "store/engine.py", "                elif not isinstance(e, Conflict):\n", "                elif isinstance(e, Conflict):\n"),
    Breaker("T store-contract", "T-020", "store/sql.py", "        terms.append(f\"{q(columns[equal])} >= ?\")\n", "        terms.append(f\"{q(columns[equal])} > ?\")\n"),
    Breaker("T store-contract", "T-026", "jsonvalue.py", "fast_encode = msgspec.json.Encoder().encode\n", "fast_encode = msgspec.json.Encoder(order=\"sorted\").encode\n"),
    # a part that fails alone
    Breaker("T savepoints", "T-027", "store/overlay.py", "        while len(self._log) > mark:\n", "        while len(self._log) > mark + 1:\n"),
    Breaker("T savepoints", "T-027", "store/transaction.py", "        except BaseException:\n            if self.live:\n", "        except Exception:\n            if self.live:\n"),
    Breaker("T savepoints", "T-029", "store/overlay.py", "                    live[key] = before[i]\n", "                    live[key] = None\n"),
    Breaker("T savepoints", "T-029", "store/overlay.py", "            self._log.append(lambda: self.dropped.discard(root))\n", "            pass\n"),
    Breaker("T savepoints", "T-030", "store/transaction.py", "        mark = self._overlay.mark()\n", "        mark = 0\n"),
    Breaker("T savepoints", "T-034", "store/transaction.py", "            await self._learn_below(self._overlay.unchecked_since(mark))\n", ""),
    Breaker("T savepoints", "T-034", "store/transaction.py", "            await self._check_unique(mark)\n        except BaseException:\n", "        except BaseException:\n"),
    # no block inside a block
    Breaker("T nesting", "T-223", "store/engine.py", "            raise NestedTransactionError.of(self.backend.name, self.backend.kind)\n", "            pass\n"),
    Breaker("T nesting", "T-222", "store/engine.py", "            raise NestedTransactionError.of(self._engine.backend.name, self._engine.backend.kind)\n", "            pass\n"),
    Breaker("T nesting", "T-225", "errors.py", "nested transactions are unsupported, because an inner one", "nested transactions are unsupported: an inner one"),
    Breaker("T nesting", "T-229", "errors.py", "of the store {store!r} ({backend})", "of the store {store!r} ({store})"),
    Breaker("T nesting", "T-228", "api.py", "    return os.path.realpath(name)\n", "    return name\n"),
    Breaker("T nesting", "T-603", "store/engine.py", "            link = link.outer\n", "            link = None\n"),
    Breaker("T nesting", "T-603", "store/engine.py", "            if link.engine is self and link.tx.live:\n", "            if link.tx.live:\n"),
    # an abort costs what it touched, and what was handed out never changes
    Breaker("T memory-backend", "T-123", "store/memory.py", "        elif id(partition) in self._shared:\n", "        else:\n"),
    Breaker("T memory-backend", "T-124", "store/memory.py", "        if lost is None:\n", "        if lost is None or lost.why == \"unique\":\n"),
    Breaker("T memory-backend", "T-125", "store/memory.py", "            return Lost(\"deadline\", \"\")\n", "            pass\n"),
    Breaker("T memory-backend", "T-127", "store/memory.py", "            if not self._views:\n                self._shared = set()\n", "            pass\n"),
    Breaker("T memory-backend", "T-128", "store/memory.py", "            partition = partitions[root] = partition.copy()\n", "            pass\n"),
    Breaker("T memory-backend", "T-128", "store/memory.py", "        twin.rows = dict(self.rows)\n", "        twin.rows = self.rows\n"),
    # many transactions on few connections
    Breaker("T postgres-tx", "T-146", "store/postgres_wire.py", "                modes[at] = modes.get(at, False) or claim.written\n", "                modes[at] = False\n"),
    Breaker("T postgres-tx", "T-144", "store/postgres.py", "        self._free.append(link)\n        if len(self._free)", "        if len(self._free)"),
    Breaker("T postgres-tx", "T-146", "store/postgres.py", "            apart = not (mine & written or wrote & touched)\n", "            apart = True\n"),
    Breaker("T postgres-tx", "T-147", "store/postgres.py", "REPEATABLE READ READ ONLY", "READ COMMITTED READ ONLY"),
    Breaker("T postgres-tx", "T-147", "store/postgres.py", "        finally:\n            self._views.release()\n", "        finally:\n            pass\n"),
]
