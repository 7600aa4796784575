"""Joins the SillyTavern chats of one story, a file for each branch, into one session with a take for each file. Pure.

* Two files share a message if they share all before it, its name and role are equal, and the versions both have agree
  in text and time. Such a message has the longer list of versions; each take shows its own.
* Files that share their first message are one story. A first message without a time proves nothing by its text, a
  greeting is the same in every chat: there the header must say that both chats began at the same moment.
* The file that names no other one of the story as its main chat comes first and is active. A take names the one it was
  forked from, and how many messages they share.
* A file's own line stays what it was: versions that it lacks, and fields of a version that differ in it, are noted with
  its message (`own`), so that an export gives back each file line for line.
* A branch, a checkpoint or a main chat that a file names and that is not there is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from turnkeeper.transfer.imported import (
    Imported,
    ImportedMessage,
    ImportedSession,
    ImportedTake,
    ImportedVersion,
    Loss,
    digest_of_files,
)
from turnkeeper.transfer.sillytavern_kept import FORMAT

SET = "sillytavern-set"

File = tuple[str, Imported]


class _Node:
    """A message of the story: its versions, and the messages that follow it in one file or another."""

    def __init__(self, message: ImportedMessage) -> None:
        self.message, self.versions = message, list(message.versions)
        self.after: list[_Node] = []

    def agrees(self, message: ImportedMessage) -> bool:
        """Say whether a message of another file is this one."""
        if (message.role, message.name) != (self.message.role, self.message.name):
            return False
        both = zip(self.versions, message.versions, strict=False)
        return all(one.text == two.text and one.created_at == two.created_at for one, two in both)

    def add(self, message: ImportedMessage) -> None:
        """Take the versions that it did not have."""
        self.versions += message.versions[len(self.versions) :]


def join(files: Sequence[File]) -> Imported:
    """Join chats that were read one by one: a session for each story, in the order of the files; losses name their file."""
    names = {_name(file) for file, _ in files}
    losses = [
        Loss(loss.kind, {**loss.where, "file": file}, loss.action)
        for file, read in files
        for loss in (*read.losses, *_lost_links(read, names))
    ]
    stories = _stories([(file, read) for file, read in files if read.sessions])
    sessions = [_session(story) for story in stories]
    of_file = {file: session.source_id for story, session in zip(stories, sessions, strict=True) for file, _ in story}
    if len(sessions) > 1:
        losses = [
            replace(loss, where={**loss.where, "conversation": of_file[loss.where["file"]]})
            if loss.where["file"] in of_file
            else loss
            for loss in losses
        ]
    form = SET if any(len(story) > 1 for story in stories) else FORMAT
    return Imported(form, digest_of_files(read for _, read in files), tuple(sessions), tuple(losses))


def _name(file: str) -> str:
    return file.rpartition("/")[2].removesuffix(".jsonl")


def _metadata(read: Imported) -> dict[str, Any]:
    header = read.sessions[0].takes[0].extra.get(FORMAT, {}).get("header", {})
    found = header.get("chat_metadata")
    return found if isinstance(found, dict) else {}


def _messages(read: Imported) -> tuple[ImportedMessage, ...]:
    return read.sessions[0].takes[0].messages


# ---- which files are one story ---------------------------------------------------------------------------------------


def _stories(files: Sequence[File]) -> list[list[File]]:
    """Group the files by their first message, the main chat of each group first, then branch after branch."""
    groups: list[tuple[_Node | None, int | None, list[File]]] = []
    for file, read in files:
        messages = _messages(read)
        first = messages[0] if messages else None
        began = read.sessions[0].created_at if first is not None and first.created_at is None else None
        for node, moment, members in groups:
            undated = first is not None and first.created_at is None and began is None
            if node is not None and first is not None and not undated and moment == began and node.agrees(first):
                node.add(first)
                members.append((file, read))
                break
        else:
            groups.append((None if first is None else _Node(first), began, [(file, read)]))
    return [_ordered(members) for _, _, members in groups]


def _ordered(members: list[File]) -> list[File]:
    """Put the main chat first, and each branch after the chat it names; the longer of two comes first."""
    names = {_name(file) for file, _ in members}
    below: dict[str | None, list[File]] = {}
    for file, read in sorted(members, key=lambda one: (-len(_messages(one[1])), one[0])):
        main = _metadata(read).get("main_chat")
        below.setdefault(main if isinstance(main, str) and main in names and main != _name(file) else None, []).append(
            (file, read)
        )
    ordered: list[File] = []
    waiting = below.pop(None, [])[::-1]
    while waiting or below:
        if not waiting:  # they name each other in a ring
            waiting = below.pop(next(iter(below)))[::-1]
        ordered.append(waiting.pop())
        waiting += below.pop(_name(ordered[-1][0]), [])[::-1]
    return ordered


# ---- one story -------------------------------------------------------------------------------------------------------


def _session(story: Sequence[File]) -> ImportedSession:
    root: ImportedSession = story[0][1].sessions[0]
    if len(story) == 1:
        return replace(root, source=f"{story[0][1].file_sha256}.0")
    start: list[_Node] = []
    paths = [_walk(start, _messages(read)) for _, read in story]  # first all of them: versions are added on the way
    takes: list[ImportedTake] = []
    for number, ((_, read), path) in enumerate(zip(story, paths, strict=True)):
        own = read.sessions[0].takes[0]
        extra = dict(own.extra)
        if number:
            extra[SET] = {"summary": _origin(number, story, paths)}
        messages = tuple(_shared(node, message) for node, message in zip(path, own.messages, strict=True))
        takes.append(replace(own, messages=messages, extra=extra, active=number == 0))
    files = [{"path": file, "file_sha256": read.file_sha256} for file, read in story]
    extra = {**root.extra, SET: {"file": {"files": files}}}
    return replace(root, takes=tuple(takes), extra=extra, source=digest_of_files(read for _, read in story) + ".0")


def _walk(start: list[_Node], messages: Sequence[ImportedMessage]) -> list[_Node]:
    """Answer the nodes of a file's messages, those it shares and those it adds."""
    path, places = [], start
    for message in messages:
        node = next((one for one in places if one.agrees(message)), None)
        if node is None:
            node = _Node(message)
            places.append(node)
        else:
            node.add(message)
        path.append(node)
        places = node.after
    return path


def _origin(number: int, story: Sequence[File], paths: Sequence[list[_Node]]) -> dict[str, Any]:
    """Answer the earlier file with which one shares the most messages; of equals the one it names, else the first."""
    shared = [sum(1 for one, two in zip(paths[number], other, strict=False) if one is two) for other in paths[:number]]
    named = _metadata(story[number][1]).get("main_chat")
    best = max(range(number), key=lambda i: (shared[i], _name(story[i][0]) == named, -i))
    return {"forked_from": _name(story[best][0]), "shared_messages": shared[best]}


def _shared(node: _Node, message: ImportedMessage) -> ImportedMessage:
    """Answer a file's message with the story's versions, and what is its own noted beside them."""
    versions: list[ImportedVersion] = list(node.versions)
    differs: dict[str, Any] = {}
    for index, version in enumerate(message.versions):
        if version.parts != versions[index].parts:
            versions[index] = version  # the same text, another thought: a version of its own
        elif version != versions[index]:
            differs[str(index)] = version.extra.get(FORMAT, {})
    own: dict[str, Any] = {"versions": len(message.versions)} if len(versions) > len(message.versions) else {}
    if differs:
        own["extra"] = differs
    if not own:
        return replace(message, versions=tuple(versions))
    extra = {**message.extra, FORMAT: {**message.extra[FORMAT], "own": own}}
    return replace(message, versions=tuple(versions), extra=extra)


def own_part(message: ImportedMessage, *, trim: bool) -> ImportedMessage:
    """Answer a message as its own file had it: with its fields, and (`trim`) without the versions of other files."""
    own = message.extra.get(FORMAT, {}).get("own", {})
    if not own:
        return message
    versions = list(message.versions)
    for index, extra in own.get("extra", {}).items():
        place = int(index)
        if place < len(versions):
            versions[place] = replace(versions[place], extra={**versions[place].extra, FORMAT: extra})
    count = own.get("versions", len(versions))
    if trim and message.shown < count:
        versions = versions[:count]
    return replace(message, versions=tuple(versions))


# ---- links -----------------------------------------------------------------------------------------------------------


def _lost_links(read: Imported, names: set[str]) -> Iterator[Loss]:
    """Yield a loss for each chat that a file names and that is not among the names."""
    if not read.sessions:
        return
    kept = read.sessions[0].takes[0].extra.get(FORMAT, {})
    lines = _line_numbers(kept)
    if "header" in kept:
        number = next(lines)
        main = _metadata(read).get("main_chat")
        if isinstance(main, str) and main and main not in names:
            yield _lost(number, main)
    for message, number in zip(_messages(read), lines, strict=False):
        extra = message.extra[FORMAT]["line"].get("extra")
        if extra is None:  # it stands in the shown version's entry
            entry = message.versions[message.shown].extra.get(FORMAT, {}).get("swipe_info")
            extra = entry.get("extra") if isinstance(entry, dict) else None
        if not isinstance(extra, dict):
            continue
        branches, checkpoint = extra.get("branches"), extra.get("bookmark_link")
        for target in (*(branches if isinstance(branches, list) else ()), checkpoint):
            if isinstance(target, str) and target and target not in names:
                yield _lost(number, target)


def _lost(line: int, target: str) -> Loss:
    return Loss("link_target_missing", {"line": line, "target": target}, "the link is kept; the chat is not there")


def _line_numbers(kept: dict[str, Any]) -> Iterator[int]:
    """Yield the numbers of the lines that were read: all but those kept apart and the blank ones."""
    apart = {line["line"] for line in kept.get("kept_lines", ())}
    for first, last in kept.get("blank_lines", ()):
        apart.update(range(first, last + 1))
    number = 0
    while True:
        number += 1
        if number not in apart:
            yield number
