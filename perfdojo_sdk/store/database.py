"""Records in an SQLite file: appended, never changed; a damaged file is put aside, not deleted.

Importing this module loads SQLAlchemy; import it where records are opened.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError
from sqlalchemy import (
    URL,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
)
from sqlalchemy import select as sql_select
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.store.records import KernelRecord, RecordKey

SCHEMA = 1
#: Marks the file as ours ("PDjo").
APPLICATION_ID = 0x50446A6F
BUSY_TIMEOUT_MS = 10_000

_metadata = MetaData()
_records = Table(
    "records",
    _metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("created", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("kernel", String, nullable=False),
    Column("target", String, nullable=False),
    Column("device", String, nullable=False),
    Column("key", Text, nullable=False),
    Column("record", Text, nullable=False),
    Index("records_by_digest", "digest"),
)


class StoreError(DojoError):
    """The records cannot be read or written."""


class Records:
    """The records in one file; made when there is none. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError("PD-R001", f"cannot create {path.parent}", why=error.strerror or "") from error
        # Not as text: a folder's name may hold what a URL gives a meaning.
        self._engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool)
        try:
            self._open()
            # Only now: the settings are written into the file, which must be ours.
            event.listen(self._engine, "connect", _settings)
        except OperationalError as error:
            raise self._unusable(error) from error
        except DBAPIError as error:
            raise self._put_aside(str(error.orig)) from error

    def _open(self) -> None:
        """Check the file's health and version; make the table when the file is new."""
        with self._engine.begin() as connection:
            health = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            owner = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
            if health == "ok" and tables == 0:
                _metadata.create_all(connection)
                connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA}")
                return
        if health != "ok":
            raise self._put_aside(str(health))
        if owner != APPLICATION_ID:
            raise StoreError(
                "PD-R003", f"{self.path} is a database of another program", hint="choose another folder"
            )
        if version != SCHEMA:
            raise StoreError(
                "PD-R003",
                f"{self.path} has schema version {version}, this SDK reads version {SCHEMA}",
                hint="use the SDK that wrote it, or choose another folder",
            )

    def _put_aside(self, why: str) -> StoreError:
        """Rename the file and its companions, so that nothing is lost and the next run starts afresh."""
        self._engine.dispose()
        aside = f".damaged-{time.strftime('%Y%m%dT%H%M%S')}"
        moved = self.path.with_name(self.path.name + aside)
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(self.path.name + suffix)
            if part.exists():
                part.rename(moved.with_name(moved.name + suffix))
        what = f"{self.path} is damaged; it was renamed to {moved.name}"
        return StoreError(
            "PD-R002", what, why=why, hint="run the command again: it starts with fresh records"
        )

    def _unusable(self, error: DBAPIError) -> StoreError:
        return StoreError(
            "PD-R001",
            f"cannot use the records in {self.path}",
            why=str(error.orig),
            hint="check the folder's permissions and free space, and that no other run holds it",
        )

    def add(self, key: RecordKey, record: KernelRecord) -> None:
        """Append a record; it is on disk when this returns."""
        row = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "digest": key.digest,
            "kernel": key.kernel,
            "target": key.target,
            "device": key.device,
            "key": key.model_dump_json(),
            "record": record.model_dump_json(by_alias=True),
        }
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(_records), row)
        except DBAPIError as error:
            raise self._unusable(error) from error

    def find(self, key: RecordKey) -> KernelRecord | None:
        """The newest record under ``key``; one that no longer reads counts as absent."""
        wanted = _records.c.digest == key.digest
        for _, record in self._rows(sql_select(_records).where(wanted).order_by(_records.c.id.desc())):
            return record
        return None

    def __iter__(self) -> Iterator[tuple[RecordKey, KernelRecord]]:
        """Every record, oldest first."""
        return self._rows(sql_select(_records).order_by(_records.c.id))

    def _rows(self, query: Any) -> Iterator[tuple[RecordKey, KernelRecord]]:
        try:
            with self._engine.connect() as connection:
                rows = connection.execute(query).all()
        except DBAPIError as error:
            raise self._unusable(error) from error
        for row in rows:
            try:
                yield RecordKey.model_validate_json(row.key), KernelRecord.model_validate_json(row.record)
            except ValidationError:
                continue

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _settings(connection: Any, record: object) -> None:
    """Write-ahead logging: readers never wait, and a crash loses no committed record."""
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()
