"""Databases of agent frameworks, read from their tables; nothing of the frameworks is imported, nothing is unpickled.

`knows` and `read` choose by the tables that are there. The rows come from `store.foreign_sqlite`, which reads a copy.
"""

from __future__ import annotations

from turnkeeper.errors import Invalid
from turnkeeper.transfer.databases import adk, langgraph, openai_agents, pydantic_ai
from turnkeeper.transfer.databases.tables import Source
from turnkeeper.transfer.imported import Imported

__all__ = ["KNOWN", "Source", "read"]

READERS = (langgraph, openai_agents, adk, pydantic_ai)
KNOWN = "OpenAI Agents, LangGraph, ADK and pydantic-ai-durable"


def read(source: Source) -> Imported:
    """Read the sessions of a database. Raises Invalid when its tables are none that a reader knows."""
    for reader in READERS:
        if reader.knows(source):
            found: Imported = reader.read(source)
            return found
    tables = ", ".join(sorted(source.columns)[:8])
    raise Invalid(
        f"{source.name} has no tables that a reader knows{f' (it has {tables})' if tables else ': it has none at all'}.",
        do=f"Choose a database of {KNOWN}.", path=source.name,
    )  # fmt: skip
