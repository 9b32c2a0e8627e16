"""A PostgreSQL server of our own for a test: a fresh cluster in a temporary folder, reached through a socket, never a port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl: that of Debian's newest version, or one on the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    found = str(debian[-1]) if debian else shutil.which("initdb")
    return Path(found).parent if found else None


def why_not() -> str | None:
    """Why no server can be started here; None where one can."""
    if binaries() is None:
        return "no PostgreSQL server is installed (apt-get install postgresql)"
    if os.getuid() == 0:
        if shutil.which("runuser") is None:
            return "PostgreSQL refuses to run as root, and there is no runuser to run it as another user"
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return f"PostgreSQL refuses to run as root, and there is no user {USER}"
    return None


def _as_server(*command: str) -> None:
    """Run as a user that the server accepts; output goes to a file, for a server left behind would hold a pipe open."""
    whole = ["runuser", "-u", USER, "--", *command] if os.getuid() == 0 else list(command)
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(whole, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd="/", check=False)
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)}: {output.read().decode(errors='replace')}")


@contextmanager
def server() -> Iterator[str]:
    """The URL of a database on a server that is stopped and removed afterwards."""
    found = binaries()
    assert found is not None
    # A socket's path may have 107 bytes, fewer than pytest's folders have; and root's are closed to the server's user.
    folder = Path(tempfile.mkdtemp(prefix="sbd-pg-"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, USER)
        data, log = folder / "data", folder / "log"
        _as_server(str(found / "initdb"), "-D", str(data), "-U", "sbd", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        _as_server(str(found / "pg_ctl"), "-D", str(data), "-l", str(log), "-w", "-o", options, "start")
        try:
            yield f"postgresql://sbd@/postgres?host={folder}"
        finally:
            _as_server(str(found / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)
