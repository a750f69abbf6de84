"""Records in a database: finished kernels, and the candidates of searches.

Importing this module loads SQLAlchemy; import it where records are opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json
from sqlalchemy import Connection, Row, Select, bindparam, case, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from perfdojo_sdk.store import schema
from perfdojo_sdk.store.candidates import Candidate, CandidateKey, Failed, Timed
from perfdojo_sdk.store.engine import Database
from perfdojo_sdk.store.records import KernelRecord, RecordKey
from perfdojo_sdk.store.schema import SCHEMA, StoreError

__all__ = ["SCHEMA", "ImportCounts", "Candidates", "Records", "StoreError"]

#: Rows that are fetched at once.
_PAGE = 200
#: Provenance -> rank; figures with a lower rank count more.
PROVENANCE_RANK = {"measured": 0, "simulated": 1, "estimated": 2}


@dataclass(frozen=True)
class ImportCounts:
    """Counts of stored records: new ones, and those whose key was present already."""

    new: int = 0
    replaced: int = 0
    """Records that replaced an earlier one."""
    kept: int = 0
    """Records that were not stored, since an equal or later one was present."""

    def __add__(self, other: ImportCounts) -> ImportCounts:
        return ImportCounts(self.new + other.new, self.replaced + other.replaced, self.kept + other.kept)


class Records:
    """The records in one database; made when there is none. Use as a context manager.

    As itself it is the store of finished kernels; :attr:`candidates` is that of searches.
    """

    def __init__(self, place: Path | str, create: bool = True) -> None:
        """``place``: a file, or the URL of a server; ``create``: true if it may be new."""
        self.database = Database(place, create)
        self.candidates = Candidates(self.database)

    def add(self, key: RecordKey, record: KernelRecord) -> None:
        """Append a finished kernel; from when this returns it survives the process, and a power cut."""
        row = _kernel_row(key, record)
        self.database.write(lambda c: c.execute(insert(schema.kernels), row), durable=True)

    def add_missing(self, found: Sequence[tuple[RecordKey, KernelRecord]]) -> ImportCounts:
        """Append those of which there is no identical record yet; all of them, or none if it does not
        return."""
        rows = [_kernel_row(key, record) for key, record in found]
        table = schema.kernels.c

        def work(connection: Connection) -> ImportCounts:
            same = select(table.digest, table.record).where(table.digest.in_({r["digest"] for r in rows}))
            there = {tuple(row) for row in connection.execute(same)}
            new = []
            for row in rows:
                if (row["digest"], row["record"]) not in there:
                    new.append(row)
                    there.add((row["digest"], row["record"]))
            if new:
                connection.execute(insert(schema.kernels), new)
            return ImportCounts(new=len(new), kept=len(rows) - len(new))

        return self.database.write(work) if rows else ImportCounts()

    def find(self, key: RecordKey) -> KernelRecord | None:
        """The newest finished kernel under ``key``; an unreadable one counts as absent."""
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
        # Statements are made once, since composing one takes longer than executing it.
        insert = postgresql.insert if database.dialect == "postgresql" else sqlite.insert
        self._share = insert(schema.conditions).on_conflict_do_nothing()
        new = insert(schema.candidates)
        changed = {c.name: c for c in new.excluded if c.name not in ("id", "digest")}
        later = new.excluded.at >= schema.candidates.c.at
        self._upsert = new.on_conflict_do_update(index_elements=["digest"], set_=changed, where=later)

    # -- writing -------------------------------------------------------------------------------

    def put(self, candidate: Candidate) -> None:
        """Keep a candidate; it survives the end of this process from when this returns.

        Of two under one key the one that was evaluated later stays.
        """
        self.put_all([candidate])

    def put_all(self, candidates: Iterable[Candidate]) -> ImportCounts:
        """Keep all; none, when the process ends before this returns."""
        shared: dict[str, dict[str, Any]] = {}
        rows: dict[str, dict[str, Any]] = {}
        count = 0
        for candidate in candidates:
            count += 1
            row = _row(candidate)
            if row["conditions"] not in shared:
                shared[row["conditions"]] = _shared(candidate)
            if row["at"] >= rows.get(row["digest"], row)["at"]:
                rows[row["digest"]] = row
        if not rows:
            return ImportCounts()

        def work(connection: Connection) -> ImportCounts:
            there = connection.execute(_TIMES, {"digests": list(rows)})
            before = {row.digest: row.at for row in there}
            # In the order of their keys, so that writers on a server cannot deadlock.
            connection.execute(self._share, [shared[digest] for digest in sorted(shared)])
            connection.execute(self._upsert, [rows[digest] for digest in sorted(rows)])
            replaced = sum(at < rows[digest]["at"] for digest, at in before.items())
            new = len(rows) - len(before)
            return ImportCounts(new, replaced, count - new - replaced)

        return self.database.write(work)

    # -- reading -------------------------------------------------------------------------------

    def find(self, key: CandidateKey) -> Candidate | None:
        """The candidate under ``key``; an unreadable one counts as absent."""
        wanted = {"digest": key.digest}
        row = self.database.read(lambda connection: connection.execute(_BY_DIGEST, wanted).one_or_none())
        return _candidate(row) if row else None

    def of(self, kernel: str, target: str) -> Iterator[Candidate]:
        """All candidates of a kernel for a target, on any device, in the order of their first put."""
        table = schema.conditions.c
        where = (table.kernel == kernel) & (table.target == target)
        mine = schema.candidates.c.id
        return self._in_order(_with_conditions(mine).where(where).order_by(mine))

    def best(self, conditions: RecordKey) -> Candidate | None:
        """The first of :meth:`ranked`."""
        return next(self.ranked(conditions), None)

    def ranked(self, conditions: RecordKey) -> Iterator[Candidate]:
        """The candidates timed to the end under equal conditions, the fastest first.

        All that were measured come before those simulated, and these before those estimated.
        """
        table = schema.candidates.c
        rank = case(PROVENANCE_RANK, value=table.provenance, else_=9)
        timed = (table.conditions == conditions.digest) & table.seconds.is_not(None) & ~table.cut
        return self._in_order(select(table.id).where(timed).order_by(rank, table.seconds, table.id))

    def __iter__(self) -> Iterator[Candidate]:
        """Every candidate, in the order of their first put."""
        return self._in_order(select(schema.candidates.c.id).order_by(schema.candidates.c.id))

    def _in_order(self, ids: Select[Any]) -> Iterator[Candidate]:
        """The candidates of these ids, a page at a time, so that a reader does not block writers."""
        order = self.database.read(lambda connection: connection.execute(ids).scalars().all())
        for start in range(0, len(order), _PAGE):
            page = order[start : start + _PAGE]
            found = {row.id: row for row in self._page(page)}
            for number in page:
                candidate = _candidate(found[number]) if number in found else None
                if candidate is not None:
                    yield candidate

    def _page(self, ids: Sequence[int]) -> Sequence[Row[Any]]:
        return self.database.read(lambda connection: connection.execute(_BY_ID, {"ids": ids}).all())


def _with_conditions(*columns: Any) -> Select[Any]:
    shared = schema.conditions.c
    return select(*columns).join(schema.conditions, shared.digest == schema.candidates.c.conditions)


_WHOLE = _with_conditions(*schema.candidates.c, schema.conditions.c.key, schema.conditions.c.root)
_BY_DIGEST = _WHOLE.where(schema.candidates.c.digest == bindparam("digest"))
_TIMES = select(schema.candidates.c.digest, schema.candidates.c.at).where(
    schema.candidates.c.digest.in_(bindparam("digests", expanding=True))
)
_BY_ID = _WHOLE.where(schema.candidates.c.id.in_(bindparam("ids", expanding=True)))


def _kernel_row(key: RecordKey, record: KernelRecord) -> dict[str, str]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "digest": key.digest,
        "kernel": key.kernel,
        "target": key.target,
        "device": key.device,
        "key": key.model_dump_json(),
        "record": record.model_dump_json(by_alias=True),
    }


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
    timed = result if isinstance(result, Timed) else None
    data = candidate.model_dump(mode="json", by_alias=True, exclude={"key"})
    del data["trace"]["root"]
    return {
        "digest": candidate.key.digest,
        "conditions": candidate.key.conditions.digest,
        "program_sha256": candidate.key.program_sha256,
        "at": candidate.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "search": candidate.proposer.search,
        "reason": result.reason if isinstance(result, Failed) else None,
        "seconds": timed.timing.median_s if timed else None,
        "provenance": timed.timing.provenance if timed else None,
        "cut": timed.cut if timed else False,
        **candidate.took.model_dump(),
        "record": json.dumps(data, separators=(",", ":")),
    }


def _candidate(row: Row[Any]) -> Candidate | None:
    """The candidate in a row; None if this version cannot read it."""
    try:
        data = from_json(row.record)
        data["trace"]["root"] = row.root
        data["key"] = {"conditions": from_json(row.key), "program_sha256": row.program_sha256}
        return Candidate.model_validate(data)
    except (ValueError, TypeError, KeyError):
        return None
