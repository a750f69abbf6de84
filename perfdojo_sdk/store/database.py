"""Records in a database: finished kernels, and the candidates of searches.

Importing this module loads SQLAlchemy; import it where records are opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Select, case, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from perfdojo_sdk.store import schema
from perfdojo_sdk.store.candidates import Candidate, CandidateKey, Failed, Timed
from perfdojo_sdk.store.engine import Database
from perfdojo_sdk.store.records import KernelRecord, RecordKey
from perfdojo_sdk.store.schema import SCHEMA, StoreError

__all__ = ["SCHEMA", "Candidates", "Records", "StoreError"]

#: Rows that are fetched at once.
_PAGE = 200
#: Which figures count more, best first.
_PROVENANCES = ("measured", "simulated", "estimated")


class Records:
    """The records in one database; made when there is none. Use as a context manager.

    As itself it is the store of finished kernels; :attr:`candidates` is that of searches.
    """

    def __init__(self, place: Path | str, create: bool = True) -> None:
        """``place``: a file, or the URL of a server; ``create``: whether it may be new."""
        self.database = Database(place, create)
        self.candidates = Candidates(self.database)

    def add(self, key: RecordKey, record: KernelRecord) -> None:
        """Append a finished kernel; it survives the end of this process from when this returns."""
        row = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "digest": key.digest,
            "kernel": key.kernel,
            "target": key.target,
            "device": key.device,
            "key": key.model_dump_json(),
            "record": record.model_dump_json(by_alias=True),
        }
        self.database.write(lambda connection: connection.execute(insert(schema.kernels), row))

    def find(self, key: RecordKey) -> KernelRecord | None:
        """The newest finished kernel under ``key``; one that no longer reads counts as absent."""
        table = schema.kernels.c
        wanted = select(schema.kernels).where(table.digest == key.digest).order_by(table.id.desc())
        for _, record in self._rows(wanted):
            return record
        return None

    def __iter__(self) -> Iterator[tuple[RecordKey, KernelRecord]]:
        """Every finished kernel, oldest first."""
        return self._rows(select(schema.kernels).order_by(schema.kernels.c.id))

    def _rows(self, query: Select[Any]) -> Iterator[tuple[RecordKey, KernelRecord]]:
        for row in self.database.read(lambda connection: connection.execute(query).all()):
            try:
                yield RecordKey.model_validate_json(row.key), KernelRecord.model_validate_json(row.record)
            except ValidationError:
                continue

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Candidates:
    """The candidates in a database; a :class:`~perfdojo_sdk.store.candidates.CandidateStore`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._insert = postgresql.insert if database.dialect == "postgresql" else sqlite.insert

    # -- writing -------------------------------------------------------------------------------

    def put(self, candidate: Candidate) -> None:
        """Keep a candidate; it survives the end of this process from when this returns.

        Of two under one key the one that was evaluated later stays.
        """
        self.put_all([candidate])

    def put_all(self, candidates: Iterable[Candidate]) -> None:
        """Keep all or, when the process ends before this returns, perhaps none."""
        shared: dict[str, dict[str, Any]] = {}
        rows: dict[str, dict[str, Any]] = {}
        for candidate in candidates:
            row = _row(candidate)
            shared.setdefault(row["conditions"], _shared(candidate))
            if row["at"] >= rows.get(row["digest"], row)["at"]:
                rows[row["digest"]] = row
        if rows:
            self.database.write(lambda connection: self._put(connection, shared, rows))

    def _put(
        self, connection: Connection, shared: dict[str, dict[str, Any]], rows: dict[str, dict[str, Any]]
    ) -> None:
        # In the order of their keys, so that two writers on a server never wait for each other in a ring.
        ordered = [shared[digest] for digest in sorted(shared)]
        connection.execute(self._insert(schema.conditions).on_conflict_do_nothing(), ordered)
        new = self._insert(schema.candidates)
        changed = {c.name: c for c in new.excluded if c.name not in ("id", "digest")}
        later = new.excluded.at >= schema.candidates.c.at
        upsert = new.on_conflict_do_update(index_elements=["digest"], set_=changed, where=later)
        connection.execute(upsert, [rows[digest] for digest in sorted(rows)])

    # -- reading -------------------------------------------------------------------------------

    def find(self, key: CandidateKey) -> Candidate | None:
        """The candidate under ``key``; one that no longer reads counts as absent."""
        wanted = _joined().where(schema.candidates.c.digest == key.digest)
        for row in self.database.read(lambda connection: connection.execute(wanted).all()):
            return _candidate(row)
        return None

    def of(self, kernel: str, target: str) -> Iterator[Candidate]:
        """All candidates of a kernel for a target, on any device, in the order of their first put."""
        table = schema.conditions.c
        where = (table.kernel == kernel) & (table.target == target)
        return self._in_order(_ids().where(where).order_by(schema.candidates.c.id))

    def best(self, conditions: RecordKey) -> Candidate | None:
        """The first of :meth:`ranked`."""
        return next(self.ranked(conditions), None)

    def ranked(self, conditions: RecordKey) -> Iterator[Candidate]:
        """Those that were timed to the end under equal conditions, the fastest first.

        All that were measured come before those simulated, and these before those estimated.
        """
        table = schema.candidates.c
        rank = case({p: k for k, p in enumerate(_PROVENANCES)}, value=table.provenance, else_=9)
        timed = (table.conditions == conditions.digest) & table.seconds.is_not(None) & ~table.cut
        return self._in_order(select(table.id).where(timed).order_by(rank, table.seconds, table.id))

    def __iter__(self) -> Iterator[Candidate]:
        """Every candidate, in the order of their first put."""
        return self._in_order(select(schema.candidates.c.id).order_by(schema.candidates.c.id))

    def _in_order(self, ids: Select[Any]) -> Iterator[Candidate]:
        """The candidates of these ids, a page at a time, so that no reader holds up a writer."""
        order = self.database.read(lambda connection: connection.execute(ids).scalars().all())
        for start in range(0, len(order), _PAGE):
            page = order[start : start + _PAGE]
            wanted = _joined().where(schema.candidates.c.id.in_(page))
            rows = self.database.read(lambda connection, q=wanted: connection.execute(q).all())
            found = {row.id: row for row in rows}
            for number in page:
                candidate = _candidate(found[number]) if number in found else None
                if candidate is not None:
                    yield candidate


def _joined() -> Select[Any]:
    columns = (*schema.candidates.c, schema.conditions.c.key, schema.conditions.c.root)
    return select(*columns).join(
        schema.conditions, schema.conditions.c.digest == schema.candidates.c.conditions
    )


def _ids() -> Select[Any]:
    return select(schema.candidates.c.id).join(
        schema.conditions, schema.conditions.c.digest == schema.candidates.c.conditions
    )


def _shared(candidate: Candidate) -> dict[str, Any]:
    key = candidate.key.conditions
    return {
        "digest": key.digest,
        "kernel": key.kernel,
        "target": key.target,
        "device": key.device,
        "key": key.model_dump_json(),
        "root": candidate.trace.root,
    }


def _row(candidate: Candidate) -> dict[str, Any]:
    result = candidate.result
    timed = isinstance(result, Timed)
    data = candidate.model_dump(mode="json", by_alias=True, exclude={"key"})
    del data["trace"]["root"]
    return {
        "digest": candidate.key.digest,
        "conditions": candidate.key.conditions.digest,
        "program_sha256": candidate.key.program_sha256,
        "at": candidate.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "search": candidate.proposer.search,
        "reason": result.reason if isinstance(result, Failed) else None,
        "seconds": result.timing.median_s if timed else None,
        "provenance": result.timing.provenance if timed else None,
        "cut": timed and result.cut,
        "record": json.dumps(data, separators=(",", ":")),
    }


def _candidate(row: Row[Any]) -> Candidate | None:
    """None for a row that this version cannot read."""
    try:
        data = json.loads(row.record)
        data["trace"]["root"] = row.root
        data["key"] = {"conditions": json.loads(row.key), "program_sha256": row.program_sha256}
        return Candidate.model_validate(data)
    except (ValueError, TypeError, KeyError):
        return None
