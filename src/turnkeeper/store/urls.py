"""What a store's url says: which kind of store it names, and which database."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..errors import Invalid

POSTGRES = ("postgresql://", "postgres://")


def check_url(name: str) -> None:
    """Refuse what looks like a url of a store and is none: it would become a file. Raises Invalid."""
    if name == ":memory:":
        raise Invalid("A store in memory is named memory:.", "No file was made.", "Open 'memory:'.", path="url")
    if "://" in name and not name.startswith(POSTGRES):
        raise Invalid(
            f"{name.partition('://')[0]}:// is no kind of store.",
            "No file was made.",
            "Give a path, memory:, or postgresql://…",
        )


def same_database(name: str) -> str | None:
    """Answer what two urls of one database have in common; None for a private one."""
    if name == "memory:":
        return None
    if name.startswith(("memory:", *POSTGRES)):
        return name
    return os.path.realpath(name)


def split_url(url: str, schema: str | None) -> tuple[str, str, str]:
    """Answer the url for the driver, the name without user and password, and the schema (`?schema=`). Raises Invalid."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    path = query.pop("search_path", "").split(",")[0].strip(' "')
    schema = schema or query.pop("schema", "") or path or "public"
    if not re.fullmatch(r'[^"\0]{1,63}', schema):
        raise Invalid("The name of a PostgreSQL schema has 1 to 63 characters and no quote.", path="schema")
    shown = {k: v for k, v in query.items() if k in ("host", "port")}
    shown |= {} if schema == "public" else {"schema": schema}
    asked = f"?{urlencode(shown, safe='/')}" if shown else ""
    name = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}{asked}"
    return parts._replace(query=urlencode(query)).geturl(), name, schema
