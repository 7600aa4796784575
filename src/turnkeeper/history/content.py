"""What a message says: the parts of its versions, checked at the door and read back.

The content model stands in `records/messages.py`. A caller gives a text, or a list of parts; what comes out is a list of
parts. `text_of` is the version's text: its text parts joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from ..errors import Invalid
from ..jsonvalue import copied, too_large
from ..limits import JSON_BYTES
from ..records import Role

ROLES: tuple[str, ...] = get_args(Role)
_NEEDS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "thinking": ("text",),
    "tool_call": ("id", "name", "args"),
    "tool_result": ("call_id", "content"),
    "media": ("ref", "mime"),
    "other": (),
}
_MORE: dict[str, type] = {
    "name": str,
    "interaction": str,
    "hidden": bool,
    "created_at": int,
    "meta": dict,
    "extra": dict,
    "message_extra": dict,
}
_TEXTS = ("text", "id", "name", "call_id", "ref", "mime", "signature")


class NewMessage(msgspec.Struct, frozen=True):
    """A message to be added: its role and the parts of its first version, and whatever else it carries."""

    role: Role
    parts: list[dict[str, Any]]
    name: str | None = None
    interaction: str | None = None
    hidden: bool = False
    created_at: int | None = None
    meta: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None  # of the version
    message_extra: dict[str, Any] | None = None

    def head(self) -> dict[str, Any] | None:
        """Answer the cell of what the message, not one version of it, carries; None when that is nothing."""
        carried: dict[str, Any] = {}
        if self.name is not None:
            carried["name"] = self.name
        if self.interaction is not None:
            carried["interaction"] = self.interaction
        if self.hidden:
            carried["hidden"] = True
        if self.message_extra:
            carried["extra"] = self.message_extra
        return carried or None


def message(role: str, content: str | Sequence[Mapping[str, Any]], **more: Any) -> NewMessage:
    """Build a message from a text or parts. Raises Invalid for an unknown role or a malformed part."""
    if role not in ROLES:
        raise Invalid("That is not a role.", do=f"Use one of {', '.join(ROLES)}.", path="role")
    for given, value in more.items():
        if given not in _MORE:
            raise Invalid(f"A message has no `{given}`.", do=f"It may have {', '.join(_MORE)}.", path=given)
        if value is not None and type(value) is not _MORE[given]:
            raise Invalid(
                f"`{given}` is {type(value).__name__}, not {_MORE[given].__name__}.", do="Change it.", path=given
            )
    kept = {name: copied(value, name) for name, value in more.items()}
    return NewMessage(role, parts(content), **kept)  # type: ignore[arg-type]


def parts(content: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Answer content as a list of parts of its own. Raises Invalid naming the part that is malformed, or TooLarge."""
    if isinstance(content, str):
        if len(content) > JSON_BYTES:
            raise too_large(len(content), "parts[0].text")
        return [{"type": "text", "text": content}]
    if isinstance(content, Mapping) or not isinstance(content, Sequence):
        raise Invalid("A content is a text, or a list of parts.", do="Give a str or a list of dicts.", path="parts")
    made: list[dict[str, Any]] = copied([_part(part, f"parts[{i}]") for i, part in enumerate(content)], "parts")
    return made


def _part(part: Any, path: str) -> dict[str, Any]:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise Invalid(f"{path} is not a part: a dict with a `type`.", do="See the content model.", path=path)
    needs = _NEEDS.get(part["type"])
    if needs is None:
        raise Invalid(
            f"{path}.type is none of {', '.join(_NEEDS)}.",
            do='Use "other" for what has no type here.',
            path=f"{path}.type",
        )
    for name in needs:
        if name not in part:
            raise Invalid(f"{path} lacks `{name}`.", do="Add it.", path=f"{path}.{name}")
    for name in _TEXTS:
        if name in part and part["type"] != "other" and not isinstance(part[name], str):
            raise Invalid(f"{path}.{name} is not text.", do="Give a str.", path=f"{path}.{name}")
    made = dict(part)
    if made["type"] == "tool_result":
        made.setdefault("is_error", False)
    return made


def text_of(content: Sequence[Mapping[str, Any]]) -> str:
    """Answer the text parts joined."""
    if len(content) == 1 and content[0].get("type") == "text":
        return content[0]["text"]  # type: ignore[no-any-return]
    return "".join(part["text"] for part in content if part.get("type") == "text")
