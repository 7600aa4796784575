"""The schema's version and the steps that bring an older database forward.

A new database is created whole from the table declarations. An older one is brought forward step by step, in one
transaction with the version mark, before anything else is read; several processes at once take turns, and the later ones
find it done. A newer or a foreign database is refused and left as it is (decision 37).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...errors import IncompatibleStore
from ...schema import Table
from .. import sql
from ..sql import Dialect, schema_digest
from .functions import Functions
from .steps import STEPS

APPLICATION_ID = 0x544B5052  # "TKPR": SQLite's mark of whose file it is
VERSION = 2


class Plan(msgspec.Struct, frozen=True):
    """What a database must become: its tables, the version they stand for, and the steps from earlier versions.

    `steps[n]` holds, per dialect, the statements that lead from version n to n + 1.
    """

    tables: tuple[Table[Any], ...]
    version: int = VERSION
    steps: dict[int, dict[Dialect, list[str]]] = msgspec.field(default_factory=lambda: STEPS)

    @property
    def digest(self) -> str:
        """The digest of the declarations."""
        return schema_digest(self.tables)

    def whole(self, dialect: Dialect, schema: str = "public") -> list[str]:
        """Answer the statements that make a new database, for a backend or for an administrator who runs them himself.

        On PostgreSQL they make tables and functions of `schema`, which has to be the first of the search path.
        """
        made = [statement for table in self.tables for statement in sql.create(table, dialect)]
        if dialect == "sqlite":
            return [*sql.SQLITE_OWN, *made, *self.marks()]
        return [*sql.POSTGRES_OWN, *made, *Functions(self.tables, schema).texts.values(), *self.marks()]

    def marks(self) -> list[str]:
        """Answer the statements that mark a database with what it has become."""
        marks = f"('version', '{self.version}'), ('schema', '{self.digest}')"
        return [
            "DELETE FROM store_meta WHERE name IN ('version', 'schema')",
            f"INSERT INTO store_meta (name, value) VALUES {marks}",
        ]

    def path(self, name: str, found: int, found_digest: str, migrate: Literal["auto", "refuse"]) -> list[int]:
        """Answer the versions to step from. Raises IncompatibleStore when the database cannot be used as it is."""
        if found > self.version:
            raise IncompatibleStore(
                f"The database {name!r} has schema version {found}; this Turnkeeper knows up to {self.version}.",
                "Nothing was changed in it.",
                "Upgrade Turnkeeper, or open another database.",
            )
        if found == self.version:
            if found_digest != self.digest:
                raise IncompatibleStore(
                    f"The database {name!r} has schema version {found}, but not the tables of it that this build has.",
                    "Nothing was changed in it.",
                    "Open it with the build that made it.",
                )
            return []
        steps = list(range(found, self.version))
        if any(step not in self.steps for step in steps):
            raise IncompatibleStore(
                f"There is no way from schema version {found} of {name!r} to {self.version}.",
                "Nothing was changed in it.",
            )
        if migrate == "refuse":
            raise IncompatibleStore(
                f"The database {name!r} has schema version {found}; this Turnkeeper needs {self.version}.",
                "Nothing was changed in it.",
                'Open it with migrate="auto" to bring it forward.',
            )
        return steps


def foreign(name: str) -> IncompatibleStore:
    """Build the error for a database of another program."""
    return IncompatibleStore(
        f"{name!r} is a database of another program.", "Nothing was changed in it.", "Choose another file or database."
    )
