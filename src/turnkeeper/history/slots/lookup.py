"""From a slot's id to its definition: the exact one, else the family it is a member of, else None. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from ...errors import Invalid
from ...jsonvalue import digest
from .definition import MEMBER, SlotDef

SlotOf = Callable[[str], SlotDef | None]


class Registry:
    """The declared slots, found by id. Build one with `make_registry`; it never changes."""

    __slots__ = ("_exact", "_families", "_scene", "fields_ids", "scene_ids", "slots")

    def __init__(self, slots: tuple[SlotDef, ...]) -> None:
        self.slots = slots
        self._exact = {slot.id: slot for slot in slots if not slot.family}
        self._families = {slot.id[:-1]: slot for slot in slots if slot.family}
        self._scene = {name: slot for name, slot in self._exact.items() if slot.scope == "scene"}
        self.scene_ids = frozenset(self._scene)  # families aside
        self.fields_ids = frozenset(name for name, slot in self._scene.items() if slot.diff == "fields")

    def slot_of(self, slot_id: str) -> SlotDef | None:
        """Answer the definition of a slot; None for an id that is not declared."""
        return self._exact.get(slot_id) or self._family_of(slot_id)

    def scene_slot(self, slot_id: str) -> SlotDef | None:
        """Answer the definition of a slot that a take's fold holds; None for a shared or undeclared one."""
        found = self._scene.get(slot_id)
        if found is None and slot_id not in self._exact:
            found = self._family_of(slot_id)
            if found is not None and found.scope != "scene":
                return None
        return found

    def _family_of(self, slot_id: str) -> SlotDef | None:
        head, colon, member = slot_id.partition(":")
        found = self._families.get(head + colon)
        return found if found is not None and MEMBER.fullmatch(member) else None

    def digest(self) -> bytes:
        """Answer the digest (32 bytes) of all definitions: two registries with the same one fold every history alike."""
        return digest(sorted(slot.digest().hex() for slot in self.slots))

    def __deepcopy__(self, memo: object) -> Registry:
        return self


def make_registry(slots: Iterable[SlotDef]) -> Registry:
    """Gather definitions. Raises Invalid for an id declared twice, or families of which one covers another's members."""
    kept = tuple(slots)
    seen: set[str] = set()
    for slot in kept:
        if slot.id in seen:
            raise Invalid(
                f"The slot {slot.id!r} is declared twice.", "Nothing was declared.", "Rename one.", slot=slot.id
            )
        seen.add(slot.id)
    check_overlap(slot.id[:-1] for slot in kept if slot.family)
    return Registry(kept)


def make_slot_of(slots: Iterable[SlotDef]) -> SlotOf:
    """Answer the lookup over some definitions. Raises what `make_registry` raises."""
    return make_registry(slots).slot_of


def check_overlap(prefixes: Iterable[str]) -> None:
    """Refuse two families when the prefix of one begins with that of the other. Raises Invalid naming both."""
    found = sorted(prefixes)
    for one, other in pairwise(found):  # sorted, a prefix stands right before what it begins
        if other.startswith(one):
            raise Invalid(
                f"The families {one + '*'!r} and {other + '*'!r} overlap.", "Nothing was declared.", "Rename one.",
                slots=[one + "*", other + "*"],
            )  # fmt: skip
