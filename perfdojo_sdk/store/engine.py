"""Opening a database of records: an SQLite file, or a PostgreSQL server by its URL.

Several processes of one machine may use an SQLite file at once. Its write-ahead log needs memory that they
share, which no network file system provides; so on these, and on unknown file systems, the slower rollback
journal is used. A damaged file is renamed, never deleted; a file that cannot be written is opened for
reading.

Importing this module loads SQLAlchemy; import it where records are opened.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from perfdojo_sdk.core.files import open_regular
from perfdojo_sdk.store.schema import SCHEMA, StoreError, upgrade, version_of

#: Seconds for which a writer waits for others.
BUSY_TIMEOUT_S = 30.0
#: Seconds for which a server may take to answer a connection.
CONNECT_TIMEOUT_S = 10
#: Largest file that is checked completely when it is opened.
CHECKED_BYTES = 64 << 20
#: Most bytes of one value in an SQLite file; four times the longest line of an export.
MOST_VALUE_BYTES = 64 << 20
#: File systems of one machine, on which processes can share the memory of a write-ahead log.
LOCAL_FILESYSTEMS = frozenset(
    {"apfs", "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs"}
    | {"tmpfs", "xfs", "zfs"}
)
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}

T = TypeVar("T")


#: Open databases, which must close their files before a fork.
_all: WeakSet[Database] = WeakSet()


def _let_go() -> None:
    """Close idle connections: a child process that inherits one would rely on locks that it does not hold."""
    for database in list(_all):
        database.close()


os.register_at_fork(before=_let_go)


class Database:
    """An open database of the current schema.

    A child of this process may go on using the object, if no other thread was using it at the fork.
    """

    def __init__(self, place: Path | str, create: bool = True) -> None:
        """``place``: a file, or a URL; ``create``: true if it may be new."""
        self.url = url_of(place)
        self.name = self.url.database if self._file else shown(self.url)
        self._create = create
        if self._file:
            self._folder()
            _refuse_super_journal(self.path)
        self._frozen = self._file and not create and not _writable(self.path)
        self._engine = self._connectable()
        try:
            self._open()
        except (DBAPIError, sqlite3.Error) as error:
            raise self._refused(error, opening=True) from error
        _all.add(self)

    @property
    def _file(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def path(self) -> Path:
        """Path of the file; only for SQLite."""
        return Path(self.url.database or "")

    @property
    def dialect(self) -> str:
        return self._engine.dialect.name

    # -- using ---------------------------------------------------------------------------------

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work`` on one consistent view of the database."""
        return self._run(work, writes=False)

    def write(self, work: Callable[[Connection], T], durable: bool = False) -> T:
        """The result of ``work``, run as one transaction; twice, if the connection to a server breaks.

        ``durable``: once this has returned, the transaction survives even a power cut.
        """
        return self._run(work, writes=True, durable=durable)

    def _run(self, work: Callable[[Connection], T], writes: bool, durable: bool = False) -> T:
        engine = self._engine.execution_options(writes=writes, durable=durable)
        for last in (self._file, True):
            try:
                with engine.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                if last or not error.connection_invalidated:
                    raise self._refused(error) from error
            except sqlite3.Error as error:  # while connecting
                raise self._refused(error) from error
        raise AssertionError("the last attempt returns or raises")

    def compact(self) -> bool:
        """Free the space of deleted records; False when others are using the file."""
        if not self._file:
            return True  # a server does that by itself
        connection = self._engine.raw_connection()
        try:
            connection.cursor().execute("VACUUM")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
        return True

    def health(self) -> str:
        """The result of SQLite's own check of every page; "ok" when the file is sound, and for a server."""
        if not self._file:
            return "ok"
        check = "PRAGMA quick_check(1)"
        return str(self.read(lambda connection: connection.exec_driver_sql(check).scalar_one()))

    def journal(self) -> str:
        """The journal mode of an SQLite file: ``wal`` or ``delete``; empty for a server."""
        if not self._file:
            return ""
        return str(self.read(lambda c: c.exec_driver_sql("PRAGMA journal_mode").scalar_one()))

    def close(self) -> None:
        """Close idle connections; the next use opens a new one."""
        self._engine.dispose()

    # -- opening -------------------------------------------------------------------------------

    def _folder(self) -> None:
        if self.path.exists() and not self.path.is_file():
            what = f"cannot use the records in {self.path}"
            raise StoreError("PD-R001", what, why="it is no regular file", hint="name a file")
        if not self._create:
            if not self.path.exists():
                hint = "name the place with --db or PERFDOJO_DB"
                raise StoreError("PD-R001", f"there are no records in {self.path}", hint=hint)
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"cannot create {self.path.parent}"
            raise StoreError("PD-R001", what, why=error.strerror or "") from error

    def _connectable(self) -> Engine:
        if self._file:
            if self._frozen:
                engine = create_engine(self.url, creator=lambda: _read_only(self.path))
            else:
                engine = create_engine(self.url, connect_args={"timeout": BUSY_TIMEOUT_S})
            event.listen(engine, "connect", _no_implicit_transactions)
            event.listen(engine, "begin", _begin)
            return engine
        try:
            timeout = {"connect_timeout": CONNECT_TIMEOUT_S}
            return create_engine(self.url, pool_pre_ping=True, connect_args=timeout)
        except ImportError as error:
            hint = "pip install 'perfdojo-sdk[postgres]'"
            raise StoreError("PD-R004", f"no driver for {self.name}", why=str(error), hint=hint) from error

    def _open(self) -> None:
        """Check health and version; make the tables or bring them up to date."""

        def look(connection: Connection) -> tuple[str, int]:
            # Before the health check, which would run code that a foreign file contains.
            version = version_of(connection, self.name or "")
            if self._file and self.path.stat().st_size <= CHECKED_BYTES:
                health = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
                if health != "ok":
                    return str(health), 0
            return "ok", version

        with self._engine.execution_options(writes=False).begin() as connection:
            health, version = look(connection)
        if health != "ok":
            raise self._damaged(health, opening=True)
        if version != SCHEMA:
            with self._engine.execution_options(writes=True).begin() as connection:
                upgrade(connection, self.name or "")
        self._settle()

    def _settle(self) -> None:
        """Set the journal's mode. This writes to the file, so it comes after the check that the file is
        ours."""
        if self._file and not self._frozen:
            self._engine.dispose()
            shared_memory = filesystem(self.path) in LOCAL_FILESYSTEMS
            event.listen(self._engine, "connect", _with_log if shared_memory else _without_log)
            self._engine.connect().close()  # raises now if the journal is damaged

    # -- errors --------------------------------------------------------------------------------

    def _refused(self, error: DBAPIError | sqlite3.Error, opening: bool = False) -> StoreError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged(str(cause), opening)
        hint = "check the folder's permissions and free space, and that no other run holds it"
        if not self._file:
            hint = "check that the server runs, and the host, name, user and password in the URL"
        what = f"cannot use the records in {self.name}"
        return StoreError("PD-R001", what, why=_without_secrets(str(cause).strip(), self.url), hint=hint)

    def _damaged(self, why: str, opening: bool) -> StoreError:
        """The error for a damaged file. While opening, the file and its journals are renamed as well."""
        self._engine.dispose()
        if not (opening and self._create):
            hint = "copy what can be read: sqlite3 FILE .recover | sqlite3 NEW"
            return StoreError("PD-R002", f"{self.path} is damaged", why=why, hint=hint)
        moved = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(self.path.name + suffix)
            if part.exists():
                part.rename(moved.with_name(moved.name + suffix))
        what = f"{self.path} is damaged; it was renamed to {moved.name}"
        hint = "run the command again: it starts with fresh records"
        return StoreError("PD-R002", what, why=why, hint=hint)


def url_of(place: Path | str) -> URL:
    """The database that a file's name or a URL means."""
    if "\0" in str(place):
        raise _no_place("no name of a file holds a NUL")
    if isinstance(place, str) and _NEARLY_A_URL.match(place):
        raise _no_place("this is no URL of a database")  # without the URL, which may hold the password
    if isinstance(place, Path) or "://" not in place:
        # Not parsed from text, since a folder's name may hold characters with a meaning in URLs.
        return URL.create("sqlite", database=str(place))
    try:
        url = make_url(place)
    except (ArgumentError, ValueError):
        # Without the error's message, which may hold the password.
        raise _no_place("this is no URL of a database") from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        if not url.database or url.database == ":memory:":
            raise _no_place("records in memory would be lost")
        return URL.create("sqlite", database=url.database)
    url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    if url.drivername != "postgresql+psycopg":
        raise _no_place(f"records cannot be kept in a database of kind {url.drivername}")
    return url


#: A mistyped URL of a server; taken for a file's name, it would be shown with its password.
_NEARLY_A_URL = re.compile(r"postgres(ql)?(\+\w+)?:(?!//)", re.IGNORECASE)
#: Words in the names of a URL's parameters whose values are secret.
_SECRET = re.compile("pass|pwd|secret|token", re.IGNORECASE)


def _secrets(url: URL) -> Iterator[tuple[str, str]]:
    """The secret parameters of a URL, as (name, value)."""
    for name, values in url.query.items():
        if _SECRET.search(name):
            yield from ((name, value) for value in ((values,) if isinstance(values, str) else values))


def shown(url: URL) -> str:
    """A URL as it may be shown: without its password, wherever that stands."""
    hidden = {name: "***" for name, _ in _secrets(url)}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _without_secrets(text: str, url: URL) -> str:
    """A driver's message about a connection, with passwords replaced."""
    secrets = [str(url.password or ""), *(value for _, value in _secrets(url))]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _no_place(what: str) -> StoreError:
    hint = "give a file, or postgresql://USER@HOST/DATABASE"
    return StoreError("PD-R004", what, hint=hint)


# -- SQLite ----------------------------------------------------------------------------------------


def _no_implicit_transactions(connection: Any, record: object) -> None:
    """Switch off implicit transactions, since the driver would create tables outside of them; :func:`_begin`
    says BEGIN.

    Also distrust the schema, so that no function is called which a foreign file names.
    """
    connection.isolation_level = None
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _read_only(path: Path) -> sqlite3.Connection:
    """A read-only connection, which creates no files beside the database either."""
    with open_regular(path) as file:
        logged = file.read(20)[18:] == b"\2\2"
    # A file in WAL mode without a log beside it is complete; without `immutable`, SQLite would create a log.
    whole = logged and not Path(f"{path}-wal").exists()
    place = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if whole else ''}"
    return sqlite3.connect(place, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)


#: The end of an SQLite journal that names another file, which replaying the journal may delete.
_JOURNAL_END = bytes.fromhex("d9d505f920a163d7")


def _refuse_super_journal(path: Path) -> None:
    """Refuse a journal that would make SQLite delete another file; the sender of a file may have added it.

    Only transactions over several databases leave such a journal, and the SDK has none.
    """
    journal = Path(f"{path}-journal")
    # One of another process's transaction may go at any moment: then there is nothing to play back.
    with suppress(FileNotFoundError), open_regular(journal) as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - len(_JOURNAL_END)))
        if file.read() == _JOURNAL_END:
            what = f"{journal} was not left by this SDK"
            why = "it names another file, which SQLite would delete"
            hint = "delete it, or choose another place for the records"
            raise StoreError("PD-R003", what, why=why, hint=hint)


def _begin(connection: Connection) -> None:
    """Begin a transaction; a writer takes the lock at once, since after reading it could not wait for it."""
    options = connection.get_execution_options()
    if options.get("durable"):
        connection.exec_driver_sql("PRAGMA synchronous = FULL")  # stays for this connection, which is safe
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options["writes"] else "BEGIN")


def _with_log(connection: Any, record: object) -> None:
    """Use the write-ahead log: readers never wait; commits survive the process, but a power cut may lose the
    last ones."""
    mode = _journal(connection, "WAL")
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")


def _without_log(connection: Any, record: object) -> None:
    _journal(connection, "DELETE")
    connection.execute("PRAGMA synchronous = FULL")


def _journal(connection: Any, wanted: str) -> str:
    """Set the journal mode, which needs a moment without other users of the file; returns the actual mode."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            mode: str = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
            return mode
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


#: An escaped blank, tab, line end or backslash in the system's list of mounts.
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def filesystem(path: Path, mounts: str = "/proc/self/mountinfo") -> str:
    """The kind of file system that holds ``path``; empty when that cannot be found out."""
    try:
        lines = os.fsdecode(Path(mounts).read_bytes()).split("\n")
        real = os.path.realpath(path)
    except OSError:
        return ""
    kind, longest = "", -1
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        where = os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), os.fsencode(fields[4])))
        # The later of two mounts on one point hides the earlier one.
        inside = real == where or real.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= longest:
            kind, longest = right.split(" ")[0], len(where)
    return kind
