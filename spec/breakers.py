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
    Breaker("T store-contract", "T-002", "store/overlay.py", "                deletes.setdefault(table, []).append(key)\n", "                continue\n"),
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
    Breaker("T nesting", "T-228", "store/urls.py", "    return os.path.realpath(name)\n", "    return name\n"),
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
    Breaker("T postgres-tx", "T-146", "store/postgres.py", "            apart = not (mine & written or wrote & touched or ", "            apart = not ("),
    Breaker("T postgres-tx", "T-147", "store/postgres.py", "REPEATABLE READ READ ONLY", "READ COMMITTED READ ONLY"),
    Breaker("T postgres-tx", "T-147", "store/postgres.py", "        finally:\n            self._views.release()\n", "        finally:\n            pass\n"),
    # slots: what they are, and how they fold
    Breaker("S slots", "S-001", "history/slots/definition.py", "class SlotDef(msgspec.Struct, frozen=True):", "class SlotDef(msgspec.Struct):"),
    Breaker("S slots", "S-002", "history/slots/definition.py", "(ID.fullmatch(id) or", "(ID.match(id) or"),
    Breaker("S slots", "S-003", "history/slots/definition.py", "(isinstance(key, str) and key)", "isinstance(key, str)"),
    Breaker("S slots", "S-004", "history/slots/folding.py", "        return found.default\n", "        return None\n"),
    Breaker("S slots", "S-005", "history/slots/folding.py", "cells = after[current] = cells.copy()", "after[current] = cells"),
    Breaker("S slots", "S-009", "history/slots/deltas.py", "        if name not in before or not same(before[name], value)\n", ""),
    Breaker("S slots", "S-010", "history/slots/written.py", "after[name] = [after[name][0], delta.at]", "after[name] = [delta.at, delta.at]"),
    Breaker("S slots", "S-012", "history/slots/generator.py", "if not slot.writers:", "if slot.writers is None:"),
    Breaker("S families", "S-031", "history/slots/lookup.py", "self._exact.get(slot_id) or self._family_of(slot_id)", "self._family_of(slot_id) or self._exact.get(slot_id)"),
    Breaker("S families", "S-032", "history/slots/definition.py", "{1,120}", "{1,121}"),
    Breaker("S families", "S-032", "history/slots/lookup.py", "MEMBER.fullmatch(member)", "MEMBER.match(member)"),
    Breaker("S families", "S-034", "history/slots/definition.py", "[a-z][a-z-]{0,61}:", "[a-z][a-z:-]{0,61}:"),
    Breaker('S families', 'S-035', 'history/slots/generator.py', 'slot_id.removesuffix(":*")', 'slot_id.removesuffix("*")'),
    Breaker("S families", "S-036", "history/slots/lookup.py", "found = sorted(prefixes)", "found = list(prefixes)"),
    Breaker('S families', 'S-039', 'history/slots/built_in/tracker_list.py', 'key="name"', 'key="id"'),
    Breaker("S families", "S-041", "history/state.py", "if tip.slot not in state:", "if tip.slot in state:"),
    Breaker("S shapes", "S-022", "history/slots/doors.py", "if slot.key is not None or slot.shape is not None or slot.shape_at is not None:", "if slot.key is not None:"),
    Breaker("S shapes", "S-024", "history/slots/doors.py", "value.get(slot.key) == delta.path[0])", "slot.key in value)"),
    Breaker("S shapes", "S-027", "history/slots/shapes.py", "    return shape.needs[name] if name in shape.needs else shape.may.get(name)", "    return shape.needs.get(name)"),
    Breaker("S shapes", "S-025", "history/slots/doors.py", "        if not readable(slot.diff, delta.path):\n            raise _unreadable(delta.slot, delta.path, slot)\n        if not delta.removed:", "        if not delta.removed:\n            if not readable(slot.diff, delta.path):\n                raise _unreadable(delta.slot, delta.path, slot)"),
    Breaker("S generator", "S-013", "history/slots/generator.py", "several is None and module_name(slot.id) != name", "several is None and not module_name(slot.id)"),
    Breaker("S generator", "S-014", "history/slots/generator.py", "ordered = sorted(found, key=lambda exported: exported.module)", "ordered = list(found)"),
    Breaker("S generator", "S-015", "history/slots/generator.py", "return 1 if said else 0", "return 0"),
    Breaker("S generator", "S-016", "history/slots/generator.py", "return imported & named", "return imported | named"),
    Breaker("S generator", "S-018", "history/slots/generator.py", "text != text_of(found)", "sorted(text) != sorted(text_of(found))"),
    Breaker('S generator', 'S-020', 'history/slots/generator.py', 'slot.id.startswith(f"{name}.")', 'slot.id.startswith(name)'),
    Breaker("S deltas", "S-043", "history/slots/deltas.py", "(self.value is UNSET) is not self.removed", "self.value is UNSET and not self.removed"),
    Breaker("S deltas", "S-045", "history/state.py", "[message for message in messages if not message.cut]", "messages"),
    Breaker("S deltas", "S-046", "history/slots/folding.py", "if entry.slot is None or not readable(entry.slot.diff, delta.path):", "if entry.slot is not None and not readable(entry.slot.diff, delta.path):"),
    Breaker("S deltas", "S-047", "history/slots/folding.py", "value.get(key) == name", "key in value"),
    Breaker('S deltas', 'S-049', 'history/slots/folding.py', '        if type(name) is not str:\n            continue\n', '        if type(name) is not str or name.startswith("__"):\n            continue\n'),
    Breaker("S deltas", "S-051", "history/slots/deltas.py", "if name not in before or not same(before[name], value)", "if name not in before or before[name] != value"),
    Breaker('S deltas', 'S-052', 'jsonvalue.py', '        if not math.isfinite(value):\n            raise _Refused("the number is not finite")\n', ''),
    Breaker("S deltas", "S-050", "history/slots/deltas.py", "        *(NewDelta(named, [name], removed=True) for name in before if name not in after),\n", ""),
    Breaker("S strategies", "S-053", "history/slots/folding.py", "            state.pop(slot_id, None)\n", "            state[slot_id] = None\n"),
    Breaker("S strategies", "S-055", "history/slots/deltas.py", "    before, after = cells_of(slot, old), cells_of(slot, new)\n", "    before, after = {}, cells_of(slot, new)\n"),
    Breaker("S strategies", "S-057", "history/slots/folding.py", "            entry.cells[name] = value\n", "            entry.cells.pop(name, None)\n            entry.cells[name] = value\n"),
    Breaker("S strategies", "S-059", "history/slots/folding.py", "list(self.cells.values())", "sorted(self.cells.values(), key=str)"),
    Breaker("S strategies", "S-060", "history/slots/folding.py", "            cells.pop(name, None)\n        else:\n            cells[name]", "            cells.clear()\n        else:\n            cells[name]"),
    # the scene in the store: what is kept, cached, rebuilt, read, guarded
    Breaker("S storage", "S-063", "history/appending.py", "for i, d in enumerate(deltas)\n", "for i, d in enumerate(reversed(deltas))\n"),
    Breaker("S storage", "S-067", "history/state.py", "[replace(delta, take=target.take) for delta in found]", "[]"),
    Breaker("S storage", "S-070", "history/layers.py", "[*own, *tied, *person]", "[*own, *person, *tied]"),
    Breaker("S storage", "S-072", "history/layers.py", "if delta.version == message.version]", "if delta.version is not None]"),
    Breaker("S storage", "S-075", "history/state.py", "[Base(base.session_id, target.take, base.slot, base.state) for base in bases]", "[]"),
    Breaker("S keyframes", "S-088", "history/state.py", "shown, last = shown + 1, message.position", "last = message.position"),
    Breaker("S keyframes", "S-089", "history/state.py", "low=first), Scan(TIPS", "low=first + 1), Scan(TIPS"),
    Breaker("S keyframes", "S-091", "history/appending.py", "    if written:\n        slots = changed_slots(written, after.slots) if cached(tips) else after\n", "    if rows:\n        slots = after\n"),
    Breaker("S keyframes", "S-094", "history/state.py", "if frames and frames[0].state is not UNSET:", "if frames:\n        frames[0].state.get(\"vars\", {}).clear()\n    if frames and frames[0].state is not UNSET:"),
    Breaker("S keyframes", "S-095", "history/state.py", "await write_tips(tx, take, state, state, last)", "await write_tips(tx, take, state, state, take.cursor - 1)"),
    Breaker("S rebuild", "S-122", "history/state.py", "high=position - 1, limit=1, reverse=True", "high=position - 1, limit=1"),
    Breaker("S rebuild", "S-130", "history/cutting.py", "earlier[-1] if earlier", "earlier[0] if earlier"),
    Breaker("S rebuild", "S-134", "history/state.py", "_before(tx, target, last + 1)", "_before(tx, target, last)"),
    Breaker("S rebuild", "S-137", "history/later.py", "    if version is None or version == message.version:\n", "    if version == message.version:\n"),
    Breaker("S state-before", "S-154", "history/state.py", "(delta for delta in edits if delta.version is None)", "edits"),
    Breaker("S state-before", "S-154", "history/state.py", "(delta for delta in edits if delta.version is None)", "()"),
    Breaker("S state-before", "S-156", "history/state.py", "    return (await _before(rows, take, position))[0]\n\n\nasync def open_take", "    return (await _before(rows, take, position + 1))[0]\n\n\nasync def open_take"),
    Breaker("S state-before", "S-155", "history/state.py", "state_of({base.slot: base.state for base in bases})", "state_of({})"),
    Breaker("S range-read", "S-159", "history/range_read.py", "state_before_message(rows, row, first)", "state_before_message(rows, row, first + 1)"),
    Breaker("S range-read", "S-161", "history/range_read.py", "_only(message, tuple(slot_prefixes))", "_only(message, tuple(slot_prefixes)[:1])"),
    Breaker("S range-read", "S-170", "history/range_read.py", "if not message.cut]", "]"),
    Breaker("S range-read", "S-168", "history/range_read.py", "    except NotFound:\n        return None\n", "    except NotFound:\n        return RangeRead({}, [])\n"),
    Breaker("S range-read", "S-158", "history/range_read.py", "row.cursor - 1 if", "row.cursor - 2 if"),
    Breaker("S guard", "S-141", "history/later.py", "    if revision is not None and revision != row.revision:", "    if revision is not None and revision > row.revision:"),
    Breaker("S guard", "S-143", "history/later.py", "absent is not wanted.absent or", ""),
    Breaker("S guard", "S-147", "history/later.py", "replace(message, version=version)", "message"),
    Breaker("S guard", "S-150", "history/later.py", "        if not same(after.get(delta.slot), state.get(delta.slot)):\n", "        if True:\n"),
    Breaker("S guard", "S-152", "history/later.py", "    if version not in versions_of(message):", "    if version is None:"),
    Breaker("S limits", "S-085", "history/later.py", "if size > WRITE_BYTES:", "if size >= WRITE_BYTES:"),
    Breaker("S limits", "S-085", "history/base.py", "if size > BASE_BYTES:", "if size > BASE_BYTES + 1:"),
    Breaker("S limits", "S-085", "history/later.py", "len(canonical([msgspec.to_builtins(delta) for delta in deltas]).encode())", "len(canonical([msgspec.to_builtins(delta) for delta in deltas]))"),
    Breaker("S limits", "S-087", "turns/land.py", "    return deltas\n", "    if len(str(deltas)) > 2_000_000:\n        raise Invalid(\"The turn's changes are too large.\", do=\"Change less.\")\n    return deltas\n"),
    Breaker("S import", "S-197", "history/state.py", "[Base(base.session_id, target.take, base.slot, base.state) for base in bases]", "[]"),
    Breaker("S import", "S-199", "history/base.py", "        check_state(slot, state, \"import\", BUILT_IN)\n", "        check_state(slot, state, \"person\", BUILT_IN)\n"),
    Breaker("S import", "S-200", "history/base.py", "await rebuild(tx, row, 0)", "await rebuild(tx, row, row.cursor)"),
    Breaker("S import", "S-198", "history/state.py", "state_of({base.slot: base.state for base in bases})", "state_of({})"),
    Breaker("S doors", "S-333", "history/later.py", "    _check(deltas, \"person\")", "    _check(deltas, \"turn\")"),
    Breaker("S doors", "S-334", "history/slots/doors.py", "if writer not in slot.writers:\n            raise _not_allowed", "if writer not in slot.writers and slot.writers:\n            raise _not_allowed"),
    Breaker("S doors", "S-336", "history/slots/built_in/vars.py", "\"import\"", "\"background\""),
    Breaker("S doors", "S-350", "history/later.py", "    _check(deltas, \"background\")\n", ""),
    Breaker("S turn", "S-173", "turns/land.py", "before = await tip_state(tx, take, tips)\n        deltas", "before = await tip_state(tx, replace(take, cursor=0), [])\n        deltas"),
    Breaker("S turn", "S-174", "turns/land.py", "before = await state_before(tx, take, outcome.target)", "before = await tip_state(tx, take, tips)"),
    Breaker("S turn", "S-178", "history/choosing.py", "    await tx.insert_many(delta_rows(head.session_id, number, deltas, now))\n", ""),
    Breaker("S turn", "S-182", "history/appending.py", "made[-1].version, deltas, now) if deltas", "made[0].version, deltas, now) if deltas"),
    Breaker('S turn', 'S-402', 'turns/play.py', '([], []) if self.stopped else', '(self.vars.changes(), []) if self.stopped else'),
    Breaker('S turn', 'S-402', 'handles.py', 'if stopped and not self._turn.has_said():', 'if False:'),
    Breaker("S sealing", "S-099", "store/sealing.py", "for i, c in enumerate(table.columns) if c.kind == \"json\"]", "for i, c in enumerate(table.columns) if c.kind == \"json\" and c.name != \"path\"]"),
    Breaker("S sealing", "S-100", "store/sealed.py", "table: found if table is SEALS else", "table: found if table is SEALS or table.cache else"),
    Breaker("S sealing", "S-102", "store/sealing.py", "for i, c in enumerate(table.columns) if c.kind == \"json\"]", "for i, c in enumerate(table.columns) if c.kind == \"json\" and c.name not in (\"state\", \"writes\")]"),
    Breaker("S sealing", "S-103", "store/sealing.py", "return \"\\0\".join([self.table.name, *cells])", "return \"\\0\".join([self.table.name])"),
    Breaker("S sealing", "S-103", "store/sealing.py", "for i, name in self._plain if row[i] is not None]", "for i, name in self._plain[:1] if row[i] is not None]"),
    Breaker("S damage", "S-104", "store/intake.py", "            if self.table.cache:", "            if False:"),
    Breaker("S damage", "S-104", "history/state.py", " and all(tip.state is not UNSET for tip in tips)", ""),
    Breaker("S damage", "S-106", "store/sealing.py", "                    cells[i] = _marked(text)  # type: ignore[arg-type]", "                    cells[i] = \"null\""),
    Breaker("S damage", "S-110", "history/state.py", "if frames and frames[0].state is not UNSET:", "if False:"),
    Breaker("S health", "S-113", "health/findings.py", "if delta.version not in versions and", "if delta.version < 0 and"),
    Breaker("S health", "S-113", "health/findings.py", "        if delivery.event_no not in events:", "        if delivery.event_no < 0:"),
    Breaker("S health", "S-114", "health/findings.py", "        if version.version not in held:", "        if version.version < 0:"),
    Breaker("S health", "S-115", "health/repair.py", "            await _drop_caches(tx, take)\n", ""),
    Breaker("S health", "S-119", "health/findings.py", "        if on is None:", "        if on is None and later.version is None:"),
    Breaker("S health", "S-112", "health/findings.py", "    for table, row in all.unreadable:\n        key", "    for table, row in all.unreadable[:0]:\n        key"),
]
