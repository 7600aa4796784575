"""The steps between schema versions, as they were released: never edited, only added to.

A step may add tables and nullable columns. One that changes a plain cell of a sealed row would break its seal (ADR 9).
"""

from __future__ import annotations

from ..sql import Dialect

_ID = 'TEXT COLLATE "C"'

STEPS: dict[int, dict[Dialect, list[str]]] = {
    1: {
        "sqlite": [
            'CREATE TABLE "seals" ("name" TEXT NOT NULL, "at" INTEGER NOT NULL, "salt" BLOB NOT NULL, '
            '"ring" BLOB NOT NULL, PRIMARY KEY ("name")) STRICT, WITHOUT ROWID',
            'CREATE TABLE "damages" ("session_id" TEXT NOT NULL, "place" TEXT NOT NULL, "table_name" TEXT NOT NULL, '
            '"state" TEXT NOT NULL, "why" TEXT NOT NULL, "at" INTEGER NOT NULL, "cells" TEXT, '
            'PRIMARY KEY ("session_id", "place")) STRICT',
            'CREATE TABLE "snapshots" ("session_id" TEXT NOT NULL, "snapshot_no" INTEGER NOT NULL, '
            '"piece" INTEGER NOT NULL, "at" INTEGER NOT NULL, "data" BLOB NOT NULL, "label" TEXT, '
            'PRIMARY KEY ("session_id", "snapshot_no", "piece")) STRICT',
            'ALTER TABLE "pending_turns" ADD COLUMN "writes" TEXT',
        ],
        "postgres": [
            f'CREATE TABLE "seals" ("name" {_ID} NOT NULL, "at" BIGINT NOT NULL, "salt" BYTEA NOT NULL, '
            '"ring" BYTEA NOT NULL, PRIMARY KEY ("name"))',
            f'CREATE TABLE "damages" ("session_id" {_ID} NOT NULL, "place" {_ID} NOT NULL, "table_name" {_ID} NOT NULL, '
            f'"state" {_ID} NOT NULL, "why" {_ID} NOT NULL, "at" BIGINT NOT NULL, "cells" {_ID}, '
            'PRIMARY KEY ("session_id", "place"))',
            f'CREATE TABLE "snapshots" ("session_id" {_ID} NOT NULL, "snapshot_no" BIGINT NOT NULL, '
            f'"piece" BIGINT NOT NULL, "at" BIGINT NOT NULL, "data" BYTEA NOT NULL, "label" {_ID}, '
            'PRIMARY KEY ("session_id", "snapshot_no", "piece"))',
            f'ALTER TABLE "pending_turns" ADD COLUMN "writes" {_ID}',
        ],
    },
}
"""Per version: the statements that lead to the next one."""
