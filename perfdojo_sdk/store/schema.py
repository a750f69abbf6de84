"""The tables, their version, and the migrations from earlier versions.

In an SQLite file the version is in the header, beside an application id; on a server it is in a table of its
own. A migration is one transaction: a database has either version, never something between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
)

from perfdojo_sdk.core.errors import DojoError

SCHEMA = 2
#: The application id of SQLite files ("PDjo"); on a server, the number of the lock for migrations.
APPLICATION_ID = 0x50446A6F

_Id = BigInteger().with_variant(Integer, "sqlite")
_metadata = MetaData()

#: Finished kernels: appended, never changed; the newest under a digest counts.
kernels = Table(
    "records",
    _metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("created", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("kernel", String, nullable=False),
    Column("target", String, nullable=False),
    Column("device", String, nullable=False),
    Column("key", Text, nullable=False),
    Column("record", Text, nullable=False),
    Index("records_by_digest", "digest"),
)

#: Conditions that many candidates share: everything that their times depend on but their own program.
conditions = Table(
    "conditions",
    _metadata,
    Column("digest", String, primary_key=True),
    Column("kernel", String, nullable=False),
    Column("target", String, nullable=False),
    Column("device", String, nullable=False),
    Column("key", Text, nullable=False),
    Column("root", Text, nullable=False),
    Index("conditions_by_kernel", "kernel", "target"),
)

#: One row for each candidate; the columns besides ``record`` are those that queries use.
candidates = Table(
    "candidates",
    _metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("digest", String, nullable=False, unique=True),
    Column("conditions", String, nullable=False),
    Column("program_sha256", String, nullable=False),
    Column("at", String, nullable=False),
    Column("search", String, nullable=False),
    Column("reason", String),
    Column("seconds", Float),
    Column("provenance", String),
    Column("cut", Boolean, nullable=False),
    Column("propose_s", Float),
    Column("compile_s", Float),
    Column("verify_s", Float),
    Column("measure_s", Float),
    Column("record", Text, nullable=False),
    Index("candidates_by_conditions", "conditions", "seconds"),
)

#: Servers only: one row, the version of the other tables.
_version = Table("perfdojo_schema", MetaData(), Column("version", Integer, nullable=False))


class StoreError(DojoError):
    """The records cannot be read or written."""


def _add_candidates(connection: Connection) -> None:
    """Migrate from version 1 to 2, which has candidates besides finished kernels."""
    for table in (conditions, candidates):
        table.create(connection)


#: Version -> the migration to the next one.
_MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {1: _add_candidates}


def version_of(connection: Connection, name: str) -> int:
    """The database's version; 0 when it is new. :class:`StoreError` when it is not ours or too new."""
    tables = set(inspect(connection).get_table_names())
    if connection.dialect.name == "sqlite":
        mine = connection.exec_driver_sql("PRAGMA application_id").scalar_one() == APPLICATION_ID
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        fresh, foreign = not tables, bool(tables) and not mine
    else:
        mine = _version.name in tables
        version = connection.execute(_version.select()).scalar_one() if mine else 0
        # Other programs may have tables in the same database, under other names.
        fresh, foreign = not mine, not mine and bool(tables & _metadata.tables.keys())
    if mine and connection.dialect.name == "sqlite":
        _refuse_code(connection, name)
    if foreign:
        hint = "choose another place for the records"
        raise StoreError("PD-R003", f"{name} is a database of another program", hint=hint)
    if fresh:
        return 0
    if not 1 <= version <= SCHEMA:
        what = f"{name} has schema version {version}, this SDK reads versions 1 to {SCHEMA}"
        hint = "use the SDK that wrote it or a newer one, or choose another place for the records"
        raise StoreError("PD-R003", what, hint=hint)
    return int(version)


def _refuse_code(connection: Connection, name: str) -> None:
    """Refuse a file with anything but tables and plain indexes, since triggers, views and expressions would
    run code when it is used."""
    parts = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    for kind, part, text in parts:
        if kind == "table":
            plain = not _COMPUTED.search(str(text))
        else:
            plain = kind == "index" and str(text).count("(") == 1 and not _PARTIAL.search(str(text))
        if not plain:
            what = f"{name} holds the {kind} {part}, which is not of this SDK's making"
            why = "it computes something whenever the records are used, and nobody knows what or for how long"
            hint = "choose another place for the records; tables alone can be copied with the sqlite3 shell"
            raise StoreError("PD-R003", what, why=why, hint=hint)


_COMPUTED = re.compile(r"\b(VIRTUAL|GENERATED|CHECK|AS)\b", re.IGNORECASE)
_PARTIAL = re.compile(r"\bWHERE\b", re.IGNORECASE)


def upgrade(connection: Connection, name: str) -> None:
    """Bring the database to this version, inside the caller's writing transaction."""
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({APPLICATION_ID})")
    version = version_of(connection, name)  # again, since another process may have migrated it
    if version == SCHEMA:
        return
    if version == 0:
        _metadata.create_all(connection, checkfirst=False)
    for step in range(version, SCHEMA) if version else ():
        _MIGRATIONS[step](connection)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA}")
        return
    _version.create(connection, checkfirst=True)
    connection.execute(_version.delete())
    connection.execute(_version.insert().values(version=SCHEMA))
