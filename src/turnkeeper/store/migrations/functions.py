"""The two functions every PostgreSQL store works through, generated as text from the table declarations (ADR 3).

`land(head, parts)` checks and writes a group of write sets; `read(requests)` answers requests from one snapshot, and says
what time it is. Their names hold a digest of their text, so builds with other tables or another generator work side by
side. Each statement in them is constant: PostgreSQL plans it once a connection, for index access, and nothing depends on
the state of a session.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

from ...limits import GROUP_SETS
from ...schema import Table
from .. import sql
from ..sql import JsonStatements, q

assert GROUP_SETS <= sql.STRIDE, "two sets of a group would share a commit sequence"
_PLANS = "SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off"
_READS = _PLANS + " SET enable_bitmapscan = off SET enable_sort = off SET extra_float_digits = 1"
_WRITES = _PLANS + " SET enable_hashjoin = off SET enable_mergejoin = off"
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8"
_SET = "(e.r ->> 0)::int4"
_HOLDS = f"{_SET} <> ALL (o_lost)"
_SEQ = f"o_first + {_SET}"

Shape = tuple[Any, ...]
"""A request without its values: `("newest",)`, `("root", place)`, `("measure", table, order, equal)`,
`("scan", table, order, equal, reverse, after)`. A get is the scan of a whole key."""


class Functions:
    """The functions for some tables in one schema: names, texts, calls, and the numbers their documents use."""

    def __init__(self, tables: Sequence[Table[Any]], schema: str) -> None:
        self.tables, self._schema = tuple(tables), schema
        self.kinds = list(dict.fromkeys(table.root_kind for table in tables))
        self.heads: list[Table[Any] | None] = [None, *(table for table in tables if table.head)]  # None: table `roots`
        self._made = {table: JsonStatements(table, schema) for table in tables}
        self.lock = zlib.crc32(f"turnkeeper {schema}".encode()) - 2**31
        self.channel = f"turnkeeper_{self.lock + 2**31:08x}"
        shapes = self._shapes()
        self.numbers = {shape: number for number, shape in enumerate(shapes)}
        read, land = self._read([self._answer(shape) for shape in shapes]), self._land()
        names = {
            f"tk_{n}_{hashlib.sha256(t.encode()).hexdigest()[:16]}": t for n, t in (("read", read), ("land", land))
        }
        self.texts = {name: f"CREATE FUNCTION {self._in(name)} {text}" for name, text in names.items()}
        reading, landing = map(self._in, names)
        self.read = f"SELECT o_n, o_cells FROM {reading}($1::jsonb)"
        self.land = f"SELECT o_first, o_lost, o_why, o_what, o_now FROM {landing}($1::jsonb, $2::jsonb[])"

    def _in(self, name: str) -> str:
        return f"{q(self._schema)}.{q(name)}"

    def _root_row(self, place: int) -> tuple[str, str, str]:
        head = self.heads[place]
        if head is None:
            return self._in("roots"), "root", "root_rev"
        return self._in(head.name), q(head.root_column), q(sql.REV)

    def _root_value(self, place: int, value: str) -> str:
        head = self.heads[place]
        return f"({value})" if head is None else sql.from_json(head, head.root_column, value)

    # reading

    def _shapes(self) -> list[Shape]:
        shapes: list[Shape] = [("newest",), *(("root", place) for place in range(len(self.heads)))]
        for table in self.tables:
            for order, columns in table.orders.items():
                for equal in range(len(columns) + 1):
                    ways = (
                        [(r, a) for r in (False, True) for a in (False, True)]
                        if equal < len(columns)
                        else [(False,) * 2]
                    )
                    shapes += [("measure", table, order, equal), *(("scan", table, order, equal, *way) for way in ways)]
        return shapes

    def _answer(self, shape: Shape) -> str:
        what, *of = shape
        if what == "newest":
            base = f"(SELECT m.value::int8 FROM {self._in('store_meta')} AS m WHERE m.name = 'seq_base')"
            ends = f"{base} + {sql.STRIDE} * pg_snapshot_xmin(pg_current_snapshot())::text::int8 - 1"
            return f"SELECT v_n, ARRAY[max(t.seq)::text, ({ends})::text] FROM {self._in('commits')} AS t"
        if what == "root":
            table, key, rev = self._root_row(of[0])
            return f"SELECT v_n, ARRAY[t.{rev}::text] FROM {table} AS t WHERE t.{key} = {self._root_value(of[0], 'r ->> 1')}"
        table, *rest = of
        return self._made[table].measure(*rest) if what == "measure" else self._made[table].scan(*rest)

    def _read(self, answers: list[str]) -> str:
        return f"""(v_requests jsonb) RETURNS TABLE (o_n int4, o_cells text[]) LANGUAGE plpgsql STABLE {_READS} AS $tk$
DECLARE r jsonb; v_n int4; v_shape int4;
BEGIN
FOR v_n IN 0 .. jsonb_array_length(v_requests) - 1 LOOP
r := v_requests -> v_n; v_shape := (r ->> 0)::int4;
{_choose("v_shape", [f"RETURN QUERY {answer};" for answer in answers])}
END LOOP;
RETURN QUERY SELECT -1, ARRAY[({_NOW})::text];
END $tk$"""

    # landing

    def _land(self) -> str:
        """Lock, check, write. Every statement sees what was committed before it, so also what a lock was waited for."""
        places = range(len(self.heads))
        one = f"({self.lock}, (r ->> 0)::int4)"
        newline = "\n"
        return f"""(v_head jsonb, v_parts jsonb[], OUT o_first int8, OUT o_lost int4[], OUT o_why int4[], OUT o_what int4[],
 OUT o_now int8)
LANGUAGE plpgsql {_WRITES} AS $tk$
DECLARE r jsonb; v_list jsonb; v_part jsonb; v_i int4; v_a int4[]; v_b int4[]; v_ids text[]; v_xid int8; v_notify bool;
BEGIN
o_now := {_NOW};
IF current_setting('transaction_isolation') <> 'read committed' THEN
  RAISE EXCEPTION 'landings need read committed' USING ERRCODE = '25001'; END IF;
IF current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'on', true); END IF;
v_list := v_head -> 'new';
FOR v_i IN 0 .. jsonb_array_length(v_list) - 1 LOOP
r := v_list -> v_i;
IF (r ->> 1)::bool THEN PERFORM pg_advisory_xact_lock{one}; ELSE PERFORM pg_advisory_xact_lock_shared{one}; END IF;
END LOOP;
v_list := v_head -> 'locks';
FOR v_i IN 0 .. jsonb_array_length(v_list) - 1 LOOP
r := v_list -> v_i;
{_choose("(r ->> 0)::int4", [self._lock(place, mode) for place in places for mode in ("SHARE", "UPDATE")])}
END LOOP;
IF v_head ? 'until' THEN
SELECT array_agg((x ->> 0)::int4) INTO v_a FROM jsonb_array_elements(v_head -> 'until') AS x
 WHERE (x ->> 1)::int8 < coalesce((v_head ->> 'now')::int8, {_NOW});
IF v_a IS NOT NULL THEN o_lost := v_a; o_what := v_a; o_why := array_fill(0, ARRAY[cardinality(v_a)]); END IF; END IF;
{newline.join(map(self._check, places))}
IF o_lost IS NULL THEN o_lost := '{{}}';
ELSIF (SELECT count(DISTINCT x) FROM unnest(o_lost) AS x) = (v_head ->> 'sets')::int4 THEN RETURN; END IF;
v_xid := pg_current_xact_id()::text::int8;
SELECT max(m.value) FILTER (WHERE m.name = 'seq_base')::int8 + {sql.STRIDE} * v_xid, bool_or(m.name = 'notify')
 INTO o_first, v_notify FROM {self._in("store_meta")} AS m WHERE m.name IN ('seq_base', 'notify');
{newline.join(map(self._drop, self.kinds))}
v_list := v_head -> 'tables';
FOREACH v_part IN ARRAY v_parts LOOP
{newline.join(self._write(number, made) for number, made in enumerate(self._made.values()))}
END LOOP;
{newline.join(map(self._bump, places))}
UPDATE {self._in("commits")} AS t SET seq = greatest(t.seq, o_first + (v_head ->> 'sets')::int4 - 1)
 WHERE t.slot = v_xid % {sql.SLOTS};
IF v_notify THEN PERFORM pg_notify('{self.channel}', ''); END IF;
END $tk$"""

    def _lock(self, place: int, mode: str) -> str:
        table, key, _ = self._root_row(place)
        ids = f"ARRAY(SELECT {self._root_value(place, 'x')} FROM jsonb_array_elements_text(r -> 1) AS x)"
        return f"PERFORM 1 FROM {table} AS t WHERE t.{key} = ANY ({ids}) ORDER BY t.{key} FOR {mode};"

    def _check(self, place: int) -> str:
        table, key, rev = self._root_row(place)
        return f"""IF v_head ? 'c{place}' THEN
SELECT array_agg({_SET}), array_agg((e.r ->> 1)::int4) INTO v_a, v_b FROM jsonb_array_elements(v_head -> 'c{place}') AS e(r)
 LEFT JOIN {table} AS t ON t.{key} = {self._root_value(place, "e.r ->> 2")} WHERE coalesce(t.{rev}, 0) <> (e.r ->> 3)::int8;
IF v_a IS NOT NULL THEN
o_lost := o_lost || v_a; o_what := o_what || v_b; o_why := o_why || array_fill(1, ARRAY[cardinality(v_a)]); END IF; END IF;"""

    def _drop(self, kind: str) -> str:
        rows = f"jsonb_array_elements(v_head -> 'x{self.kinds.index(kind)}') AS e(r)"
        drops = [f"{made.drop('unnest(v_ids)')};" for made in self._made.values() if made.table.root_kind == kind]
        roots = f"ARRAY(SELECT '{kind}:' || x FROM unnest(v_ids) AS x)"
        return f"""IF v_head ? 'x{self.kinds.index(kind)}' THEN
SELECT array_agg(e.r ->> 1) INTO v_ids FROM {rows} WHERE {_HOLDS};
{" ".join(drops)}
DELETE FROM {self._in("roots")} AS t WHERE t.root = ANY ({roots}); END IF;"""

    def _write(self, number: int, made: JsonStatements) -> str:
        deletes, updates, inserts = (f"jsonb_array_elements(v_part -> '{kind}{number}') AS e(r)" for kind in "dui")
        return f"""IF v_list ? '{number}' THEN
IF v_part ? 'd{number}' THEN {made.delete(deletes, _HOLDS)}; END IF;
IF v_part ? 'u{number}' THEN {made.update(updates, _HOLDS, _SEQ)}; END IF;
IF v_part ? 'i{number}' THEN {made.insert(inserts, _HOLDS, _SEQ)}; END IF;
END IF;"""

    def _bump(self, place: int) -> str:
        table, key, rev = self._root_row(place)
        rows = f"jsonb_array_elements(v_head -> 'b{place}') AS e(r)"
        if place:
            where = f"t.{key} = {self._root_value(place, 'e.r ->> 1')} AND {_HOLDS}"
            return f"IF v_head ? 'b{place}' THEN UPDATE {table} AS t SET {rev} = t.{rev} + 1 FROM {rows} WHERE {where}; END IF;"
        return f"""IF v_head ? 'b0' THEN INSERT INTO {table} (root, root_rev)
SELECT e.r ->> 1, coalesce((e.r ->> 2)::int8, {_SEQ}) FROM {rows} WHERE {_HOLDS}
ON CONFLICT ON CONSTRAINT roots_pkey DO UPDATE SET root_rev = excluded.root_rev; END IF;"""


def _choose(number: str, statements: list[str], first: int = 0) -> str:
    """Write a binary decision over consecutive numbers."""
    if len(statements) == 1:
        return statements[0]
    half = len(statements) // 2
    left, right = _choose(number, statements[:half], first), _choose(number, statements[half:], first + half)
    return f"IF {number} < {first + half} THEN\n{left}\nELSE\n{right}\nEND IF;"
