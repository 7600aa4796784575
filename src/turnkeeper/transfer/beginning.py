"""A session that begins with a character card: its greetings are the versions of message 0, the first one is shown."""

from __future__ import annotations

from ..errors import Invalid
from ..history.appending import append_messages
from ..history.choosing import add_version, select_swipe
from ..history.content import message
from ..sessions.keyed import put
from ..sessions.lifecycle import create
from ..store.transaction import Transaction
from .imported import Imported
from .summaries import opening

NAMESPACE = "card"
"""The records of such a session: `card` has the whole card as it was read."""


async def begin(tx: Transaction, imported: Imported, *, title: str | None = None, space: str = "default") -> str:
    """Begin a session with a card that a reader found; answer its id. Each call begins another one.

    The title is the character's name unless one is given. The card is kept word for word, its lorebook with it, in the
    session's record `card`/`card`. Raises Invalid when there is no card, TooLarge for one above `turnkeeper.limits`.
    """
    card = imported.card
    if card is None:
        raise Invalid("There is no card to begin a session with.", do="Choose a character card.", path="card")
    ref = await create(tx, title=card.name if title is None else title, space=space)
    (shown,) = opening(card).messages
    greetings = [message("assistant", version.parts, name=shown.name) for version in shown.versions]
    await append_messages(tx, ref, greetings[:1])
    for greeting in greetings[1:]:
        await add_version(tx, ref, 0, greeting)
    if len(greetings) > 1:
        await select_swipe(tx, ref, 0, shown.shown)
    body = {"file_sha256": imported.file_sha256, "taken_from": card.taken_from, "card": card.raw}
    await put(tx, ref, NAMESPACE, "card", body)
    return ref.session_id
