"""The two functions every PostgreSQL store works through, generated as text from the table declarations.

`land(head, parts)` checks and writes a group of write sets; `read(requests)` answers requests from one snapshot. Their
names hold a digest of their text, so builds with other tables or another generator stand side by side (ADR 3).

Each statement in them is constant: PostgreSQL plans it once per connection, for index access, and nothing depends on
the state of a session. Values come as JSON: integers as numbers, reals as text (`-0.0` survives), blobs as hex, json
cells as text. `e.r`, or `r`, is one JSON array of such values; `t` is the table at hand.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

from ..limits import GROUP_SETS
from ..schema import Column, Table
from . import sql
from .sql import q

STRIDE = 16
"""Commit sequences of one call: the transaction's id times this, plus the set's place in its group."""
assert GROUP_SETS <= STRIDE, "two sets would share a commit sequence"
SLOTS = 64
BUCKETS = 1024
"""Roots that come into being are locked by the remainder of a hash: any number of them needs at most this many locks."""

_PLANS = "SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off"
_READS = _PLANS + " SET enable_bitmapscan = off SET enable_sort = off SET extra_float_digits = 1"
_WRITES = _PLANS + " SET enable_hashjoin = off SET enable_mergejoin = off"
NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8"
_FROM_JSON = {
    "text": "({})",
    "json": "({})",
    "integer": "({})::int8",
    "real": "({})::float8",
    "blob": "decode({}, 'hex')",
}
_TO_TEXT = {"text": "{}", "json": "{}", "integer": "{}::text", "real": "{}::text", "blob": "encode({}, 'hex')"}
_LOWEST = {"text": "''", "integer": "'-9223372036854775808'::int8", "real": "'-Infinity'::float8", "blob": "''::bytea"}
_HIGHEST = {"text": "repeat(chr(1114111), 513)", "integer": "9223372036854775807", "real": "'Infinity'::float8"}

Shape = tuple[Any, ...]
"""What a request asks for apart from its values: `(NOW,)`, `(NEWEST,)`, `(ROOT, place)`, `(MEASURE, table, order,
equal)` or `(SCAN, table, order, equal, reverse, after)`. A get is the scan of the whole key."""
NOW, NEWEST, ROOT, MEASURE, SCAN = "now", "newest", "root", "measure", "scan"


class Functions:
    """The functions for some tables in one schema: their names, their texts, and the numbers their documents use."""

    def __init__(self, tables: Sequence[Table[Any]], schema: str) -> None:
        self.tables, self.schema = tuple(tables), schema
        self.kinds = list(dict.fromkeys(table.root_kind for table in tables))
        self.heads: list[Table[Any] | None] = [
            None,
            *(table for table in tables if table.head),
        ]  # None: the table `roots`
        self.lock_class = zlib.crc32(f"turnkeeper {schema}".encode()) - 2**31
        self.channel = f"turnkeeper_{self.lock_class + 2**31:08x}"
        shapes = self._shapes()
        self.numbers = {shape: number for number, shape in enumerate(shapes)}
        read = self._read([self._answer(shape) for shape in shapes])
        land = self._land()
        self.read, self.land = (f"tk_{n}_{_digest(text)}" for n, text in (("read", read), ("land", land)))
        self.texts = {
            self.read: f"CREATE FUNCTION {self._in(self.read)} {read}",
            self.land: f"CREATE FUNCTION {self._in(self.land)} {land}",
        }
        self.call_read = f"SELECT o_n, o_cells FROM {self._in(self.read)}($1::jsonb)"
        self.call_land = f"SELECT o_first, o_lost, o_why, o_what FROM {self._in(self.land)}($1::jsonb, $2::jsonb[])"

    def _in(self, name: str) -> str:
        return f"{q(self.schema)}.{q(name)}"

    # reading

    def _shapes(self) -> list[Shape]:
        shapes: list[Shape] = [(NOW,), (NEWEST,), *((ROOT, place) for place in range(len(self.heads)))]
        for table in self.tables:
            for order, columns in table.orders.items():
                for equal in range(len(columns) + 1):
                    shapes.append((MEASURE, table, order, equal))
                    ways = [(r, a) for r in (False, True) for a in (False, True)]
                    shapes += [
                        (SCAN, table, order, equal, *way) for way in (ways if equal < len(columns) else ways[:1])
                    ]
        return shapes

    def _answer(self, shape: Shape) -> str:
        what, *of = shape
        if what == NOW:
            return f"SELECT v_n, ARRAY[({NOW_US})::text]"
        if what == NEWEST:
            meta, ends = self._in("store_meta"), f"{STRIDE} * pg_snapshot_xmin(pg_current_snapshot())::text::int8 - 1"
            return (
                f"SELECT v_n, ARRAY[coalesce(max(t.seq), 0)::text, ((SELECT m.value::int8 FROM {meta} AS m"
                f" WHERE m.name = 'seq_base') + {ends})::text] FROM {self._in('commits')} AS t"
            )
        if what == ROOT:
            table, key, rev = self._root_row(of[0])
            return f"SELECT v_n, ARRAY[t.{rev}::text] FROM {table} AS t WHERE t.{key} = {self._root_value(of[0], 'r ->> 1')}"
        return self._measure(*of) if what == MEASURE else self._scan(*of)

    def _root_row(self, place: int) -> tuple[str, str, str]:
        head = self.heads[place]
        if head is None:
            return self._in("roots"), "root", "root_rev"
        return self._in(head.name), q(head.root_column), q(sql.REV)

    def _root_value(self, place: int, value: str) -> str:
        head = self.heads[place]
        return _from_json(head.columns[head.index[head.root_column]].kind if head else "text", value)

    def _bounds(self, table: Table[Any], order: str, equal: int) -> list[str]:
        columns = [table.columns[table.index[name]] for name in table.orders[order]]
        terms = [f"t.{q(c.name)} = {_value(c, 4 + i)}" for i, c in enumerate(columns[:equal])]
        for c in columns[equal : equal + 1]:
            name = f"t.{q(c.name)}"
            terms.append(f"{name} >= coalesce({_value(c, 2)}, {_LOWEST[c.kind]})")
            high = f"{name} <= coalesce({_value(c, 3)}, {_HIGHEST.get(c.kind)})"
            terms.append(high if c.kind in _HIGHEST else f"(r ->> 3 IS NULL OR {name} <= {_value(c, 3)})")
        return terms

    def _measure(self, table: Table[Any], order: str, equal: int) -> str:
        sizes = [f"coalesce(octet_length(t.{q(c.name)}), 0)" for c in table.columns if c.kind in ("json", "blob")]
        where = " AND ".join(self._bounds(table, order, equal))
        size = f"coalesce(sum({' + '.join(sizes) or '0'}), 0)"
        return f"SELECT v_n, ARRAY[count(*)::text, {size}::text] FROM {self._in(table.name)} AS t WHERE {where}"

    def _scan(self, table: Table[Any], order: str, equal: int, reverse: bool, after: bool) -> str:
        terms = self._bounds(table, order, equal)
        rest = [table.columns[table.index[name]] for name in table.orders[order][equal:]]
        columns = [f"t.{q(c.name)}" for c in rest]
        if after:
            values = [_value(c, 4 + equal + i) for i, c in enumerate(rest)]
            terms.append(f"({', '.join(columns)}) {'<' if reverse else '>'} ({', '.join(values)})")
        cells = ", ".join(_TO_TEXT[c.kind].format(f"t.{q(c.name)}") for c in table.columns)
        ordered = ", ".join(f"{c}{' DESC' if reverse else ''}" for c in columns)
        tail = f" ORDER BY {ordered} LIMIT (r ->> 1)::int8" if ordered else ""
        return f"SELECT v_n, ARRAY[{cells}]::text[] FROM {self._in(table.name)} AS t WHERE {' AND '.join(terms)}{tail}"

    def _read(self, answers: list[str]) -> str:
        return f"""(v_requests jsonb) RETURNS TABLE (o_n int4, o_cells text[]) LANGUAGE plpgsql STABLE {_READS} AS $tk$
DECLARE r jsonb; v_n int4; v_shape int4;
BEGIN
FOR v_n IN 0 .. jsonb_array_length(v_requests) - 1 LOOP
r := v_requests -> v_n; v_shape := (r ->> 0)::int4;
{_choose("v_shape", [f"RETURN QUERY {answer};" for answer in answers])}
END LOOP;
END $tk$"""

    # landing

    def _land(self) -> str:
        places = range(len(self.heads))
        locks = [
            f"PERFORM 1 FROM {table} AS t WHERE t.{key} = ANY (ARRAY(SELECT {self._root_value(place, 'x')}"
            f" FROM jsonb_array_elements_text(r -> 1) AS x)) ORDER BY t.{key} FOR {mode};"
            for place in places
            for table, key, _ in [self._root_row(place)]
            for mode in ("SHARE", "UPDATE")
        ]
        one = f"({self.lock_class}, (r ->> 0)::int4)"
        newline = "\n"
        return f"""(v_head jsonb, v_parts jsonb[], OUT o_first int8, OUT o_lost int4[], OUT o_why int4[], OUT o_what int4[])
LANGUAGE plpgsql {_WRITES} AS $tk$
DECLARE r jsonb; v_list jsonb; v_part jsonb; v_i int4; v_a int4[]; v_b int4[]; v_ids text[]; v_xid int8; v_notify bool;
BEGIN
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
{_choose("(r ->> 0)::int4", locks)}
END LOOP;
IF v_head ? 'until' THEN
SELECT array_agg((x ->> 0)::int4) INTO v_a FROM jsonb_array_elements(v_head -> 'until') AS x
 WHERE (x ->> 1)::int8 < coalesce((v_head ->> 'now')::int8, {NOW_US});
o_lost := v_a; o_what := v_a; o_why := array_fill(0, ARRAY[cardinality(v_a)]); END IF;
{newline.join(self._check(place) for place in places)}
IF o_lost IS NULL THEN o_lost := '{{}}';
ELSIF (SELECT count(DISTINCT x) FROM unnest(o_lost) AS x) = (v_head ->> 'sets')::int4 THEN RETURN; END IF;
v_xid := pg_current_xact_id()::text::int8;
SELECT max(m.value) FILTER (WHERE m.name = 'seq_base')::int8 + {STRIDE} * v_xid, bool_or(m.name = 'notify')
 INTO o_first, v_notify FROM {self._in("store_meta")} AS m WHERE m.name IN ('seq_base', 'notify');
{newline.join(self._drop(number, kind) for number, kind in enumerate(self.kinds))}
v_list := v_head -> 'tables';
FOREACH v_part IN ARRAY v_parts LOOP
{newline.join(self._rows(number, table) for number, table in enumerate(self.tables))}
END LOOP;
{newline.join(self._bump(place) for place in places)}
UPDATE {self._in("commits")} AS t SET seq = greatest(t.seq, o_first + (v_head ->> 'sets')::int4 - 1)
 WHERE t.slot = v_xid % {SLOTS};
IF v_notify THEN PERFORM pg_notify('{self.channel}', ''); END IF;
END $tk$"""

    def _check(self, place: int) -> str:
        table, key, rev = self._root_row(place)
        return f"""IF v_head ? 'c{place}' THEN
SELECT array_agg(x.s), array_agg(x.n) INTO v_a, v_b FROM (
 SELECT (e.r ->> 0)::int4 AS s, (e.r ->> 1)::int4 AS n FROM jsonb_array_elements(v_head -> 'c{place}') AS e(r)
 LEFT JOIN {table} AS t ON t.{key} = {self._root_value(place, "e.r ->> 2")}
 WHERE coalesce(t.{rev}, 0) <> (e.r ->> 3)::int8) AS x;
IF v_a IS NOT NULL THEN
o_lost := o_lost || v_a; o_what := o_what || v_b; o_why := o_why || array_fill(1, ARRAY[cardinality(v_a)]); END IF; END IF;"""

    def _drop(self, number: int, kind: str) -> str:
        prefix = "'" + kind.replace("'", "''") + ":'"
        deletes = [
            f"DELETE FROM {self._in(t.name)} AS t WHERE t.{q(t.root_column)} = ANY ({values});"
            for t in self.tables
            if t.root_kind == kind
            for root in [t.columns[t.index[t.root_column]]]
            for values in [f"ARRAY(SELECT {_from_json(root.kind, 'x')} FROM unnest(v_ids) AS x)"]
        ]
        return f"""IF v_head ? 'x{number}' THEN
SELECT array_agg(e.r ->> 1) INTO v_ids FROM jsonb_array_elements(v_head -> 'x{number}') AS e(r) WHERE {_HOLDS};
{" ".join(deletes)}
DELETE FROM {self._in("roots")} AS t WHERE t.root = ANY (ARRAY(SELECT {prefix} || x FROM unnest(v_ids) AS x)); END IF;"""

    def _rows(self, number: int, table: Table[Any]) -> str:
        name, columns = self._in(table.name), table.columns
        at = {c.name: i for i, c in enumerate(columns, 1)}
        same = " AND ".join(f"t.{q(k)} = {_value(columns[table.index[k]], at[k], 'e.r')}" for k in table.key)
        gone = " AND ".join(
            f"t.{q(k)} = {_value(columns[table.index[k]], i, 'e.r')}" for i, k in enumerate(table.key, 1)
        )
        changed = [f"{q(c.name)} = {_stored(c, at[c.name])}" for c in columns if c.name not in table.key]
        values = [_stored(c, at[c.name]) for c in columns]
        rev, first = (f", {q(sql.REV)}", f", o_first + {_SET}") if table.head else ("", "")
        changed += [f"{q(sql.REV)} = t.{q(sql.REV)} + 1"] if table.head else []
        update = f"UPDATE {name} AS t SET {', '.join(changed)} FROM {_each('u', number)} WHERE {same} AND {_HOLDS};"
        return f"""IF v_list ? 't{number}' THEN
IF v_part ? 'd{number}' THEN
DELETE FROM {name} AS t USING {_each("d", number)} WHERE {gone} AND {_HOLDS}; END IF;
IF v_part ? 'u{number}' THEN {update if changed else "NULL;"} END IF;
IF v_part ? 'i{number}' THEN INSERT INTO {name} ({sql.names(table.names)}{rev})
SELECT {", ".join(values)}{first} FROM {_each("i", number)} WHERE {_HOLDS}; END IF;
END IF;"""

    def _bump(self, place: int) -> str:
        table, key, rev = self._root_row(place)
        each = f"jsonb_array_elements(v_head -> 'b{place}') AS e(r)"
        if self.heads[place] is None:
            return f"""IF v_head ? 'b{place}' THEN INSERT INTO {table} (root, root_rev)
SELECT e.r ->> 1, coalesce((e.r ->> 2)::int8, o_first + {_SET}) FROM {each} WHERE {_HOLDS}
ON CONFLICT ON CONSTRAINT roots_pkey DO UPDATE SET root_rev = excluded.root_rev; END IF;"""
        return f"""IF v_head ? 'b{place}' THEN UPDATE {table} AS t SET {rev} = t.{rev} + 1 FROM {each}
WHERE t.{key} = {self._root_value(place, "e.r ->> 1")} AND {_HOLDS}; END IF;"""

    # tables of the waist's own

    def own_tables(self) -> list[str]:
        """Answer the statements that make what the waist keeps for itself; run after `search_path` was set."""
        next_xid = "pg_snapshot_xmax(pg_current_snapshot())::text::int8"
        return [
            'CREATE TABLE store_meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL)',
            'CREATE TABLE roots (root text COLLATE "C" PRIMARY KEY, root_rev bigint NOT NULL)',
            "CREATE TABLE commits (slot int4 PRIMARY KEY, seq bigint NOT NULL)",
            f"INSERT INTO commits SELECT slot, 0 FROM generate_series(0, {SLOTS - 1}) AS slot",
            f"INSERT INTO store_meta VALUES ('seq_base', (-{STRIDE} * {next_xid})::text)",
        ]

    def repair_sequence(self) -> str:
        """Answer the statement that keeps commit sequences growing in a cluster whose transaction ids are behind."""
        return f"""UPDATE {self._in("store_meta")} AS m SET value = (c.newest - {STRIDE} * c.next_xid + {STRIDE})::text FROM (
SELECT max(seq) AS newest, pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS next_xid FROM {self._in("commits")}) AS c
WHERE m.name = 'seq_base' AND c.newest >= CASE m.name WHEN 'seq_base' THEN m.value::int8 + {STRIDE} * c.next_xid END"""


_SET = "(e.r ->> 0)::int4"
_HOLDS = f"{_SET} <> ALL (o_lost)"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _from_json(kind: str, value: str) -> str:
    return _FROM_JSON[kind].format(value)


def _value(column: Column, place: int, row: str = "r") -> str:
    return _from_json(column.kind, f"{row} ->> {place}")


def _stored(column: Column, place: int) -> str:
    value = _value(column, place, "e.r")
    return f"coalesce(nullif({value}, 0), o_first + {_SET})" if column.is_commit else value


def _each(kind: str, number: int) -> str:
    return f"jsonb_array_elements(v_part -> '{kind}{number}') AS e(r)"


def _choose(number: str, statements: list[str], first: int = 0) -> str:
    """Write a binary decision over consecutive numbers."""
    if len(statements) == 1:
        return statements[0]
    half = len(statements) // 2
    left, right = _choose(number, statements[:half], first), _choose(number, statements[half:], first + half)
    return f"IF {number} < {first + half} THEN\n{left}\nELSE\n{right}\nEND IF;"
