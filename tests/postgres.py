"""A PostgreSQL server of one's own: in a temporary folder, on a socket there, gone afterwards."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "dojo"


def program(name: str) -> str | None:
    """Path of the server's program; Debian keeps them out of the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: int(p.parts[-3]))
    return str(places[-1]) if places else shutil.which(name)


def why_not() -> str:
    """The reason why there can be no server; empty when there can."""
    if not (program("initdb") and program("postgres")):
        return "PostgreSQL is not installed (Debian: postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        return f"psycopg is not installed: {error}"
    return ""


def _unprivileged() -> str | None:
    """The user that runs the server, which refuses to run as root; None: who we are."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _end_with_parent() -> None:
    """Ask Linux to end the server when this process ends in whatever way (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


class Server:
    """A server; :meth:`start` and :meth:`crash` as often as one likes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.user = folder, _unprivileged()
        self.process: subprocess.Popen[bytes] | None = None
        command = [
            program("initdb") or "",
            "-D",
            str(folder / "data"),
            "-U",
            USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
        ]
        subprocess.run([*command, "--no-sync"], user=self.user, cwd=folder, check=True, capture_output=True)

    def url(self, schema: str = "public") -> str:
        """URL of one schema: as good as a database of its own, and made at once."""
        return f"postgresql://{USER}@/postgres?host={self.folder}&options=-csearch_path%3D{schema}"

    def start(self) -> None:
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "fsync": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "said").open("ab") as said:
            command = [program("postgres") or "", "-D", str(self.folder / "data"), *options]
            self.process = subprocess.Popen(
                command,
                user=self.user,
                cwd=self.folder,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                preexec_fn=_end_with_parent,
            )
        self.execute("SELECT 1")

    def execute(self, statement: str) -> None:
        """Run a statement as soon as the server answers."""
        import psycopg

        deadline = time.monotonic() + 60
        while True:
            try:
                with psycopg.connect(self.url(), autocommit=True) as connection:
                    connection.execute(statement)  # type: ignore[call-overload]
                    return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self.process is None or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def crash(self) -> None:
        """End all at once, without a farewell to the clients; the next start recovers."""
        self.stop(signal.SIGQUIT)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None


@contextmanager
def server() -> Iterator[Server]:
    # Not pytest's folder, into which only its owner may look; and short, as names of sockets must be.
    folder = Path(tempfile.mkdtemp(prefix="dojo-pg-"))
    made: Server | None = None
    try:
        user = _unprivileged()
        if user is not None:
            shutil.chown(folder, user)
        made = Server(folder)
        made.start()
        yield made
    finally:
        if made is not None:
            made.stop()
        shutil.rmtree(folder, ignore_errors=True)
