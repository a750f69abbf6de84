"""Records as lines of JSON: to move them from one database to another, on any machine, at any time.

The first line identifies the file; each other line is one complete record. A file is untrusted: lines are
bounded and every field is checked. An import reads the file twice, and a merge the other database: if any
record is bad, nothing is changed; then the records are inserted, some hundreds at a time. After an
interruption, import again: a record that is present already is not inserted twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field, ValidationError, model_validator

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import open_regular
from perfdojo_sdk.store.candidates import Candidate
from perfdojo_sdk.store.database import ImportCounts, Records
from perfdojo_sdk.store.records import KernelRecord, RecordKey
from perfdojo_sdk.store.traces import Strict, first_error

FORMAT = 1
#: Most bytes of one line.
MAX_LINE = 16 << 20
#: How far a record of another machine may be dated in the future.
CLOCKS_DIFFER = timedelta(days=1)
#: Records that go into a database in one transaction.
BATCH = 200


class FormatError(DojoError):
    """The file does not hold records."""


class Header(Strict):
    """The first line."""

    perfdojo_records: Annotated[int, Field(strict=True)]
    """Version of the format."""


class FinishedKernel(Strict):
    """A finished kernel and what it is filed under."""

    key: RecordKey
    record: KernelRecord


class Line(Strict):
    """Any other line: a finished kernel or a candidate."""

    kernel: FinishedKernel | None = None
    candidate: Candidate | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Line:
        if (self.kernel is None) == (self.candidate is None):
            raise ValueError("a line holds either a kernel or a candidate")
        if self.candidate is not None and self.candidate.at > datetime.now(UTC) + CLOCKS_DIFFER:
            raise ValueError("the evaluation ended in the future, and no later one would ever replace it")
        return self


@dataclass
class Imported:
    """Counts of imported records."""

    kernels: ImportCounts = field(default_factory=ImportCounts)
    candidates: ImportCounts = field(default_factory=ImportCounts)

    def as_json(self) -> dict[str, dict[str, int]]:
        return asdict(self)


# -- out -------------------------------------------------------------------------------------------


def lines_of(records: Records, chosen: Callable[[RecordKey], bool] = lambda key: True) -> Iterator[str]:
    """The file, line by line: finished kernels first, each kind oldest first."""
    yield Header(perfdojo_records=FORMAT).model_dump_json()
    for key, record in records:
        if chosen(key):
            finished = FinishedKernel(key=key, record=record)
            yield f'{{"kernel":{finished.model_dump_json(by_alias=True)}}}'
    for candidate in records.candidates:
        if chosen(candidate.key.conditions):
            yield f'{{"candidate":{candidate.model_dump_json(by_alias=True)}}}'


# -- in --------------------------------------------------------------------------------------------


def import_file(records: Records, path: Path) -> Imported:
    """Insert every record of a file. :class:`FormatError` names the first bad line; then nothing is
    changed."""
    with checked(path) as lines:
        return bring(records, lines)


@contextmanager
def checked(path: Path) -> Iterator[Iterable[Line]]:
    """The lines of a file that has been read to its end once; :class:`FormatError` names the first bad one.

    Open the database inside this context, so that none is created for a file that is refused.
    """
    with _opened(path) as file:
        for _ in _read(file, path.name):
            pass
        file.seek(0)
        yield _read(file, path.name)


def _opened(path: Path) -> BufferedReader:
    try:
        return open_regular(path)
    except OSError as error:
        why = "it is a folder" if path.is_dir() else error.strerror or error
        what = f"cannot read {path}: {why}"
        hint = "name a file that `perfdojo-sdk db export` wrote"
        raise FormatError("PD-R005", what, hint=hint) from None


def merge(records: Records, other: Records) -> Imported:
    """Insert every record of another database, which is read to its end before anything is changed.

    :class:`FormatError` for an invalid record.
    """
    try:
        deque(_lines_in(other), maxlen=0)
        return bring(records, _lines_in(other))
    except ValidationError as error:
        what = f"a record in {other.database.name} cannot come in"
        hint = "nothing was changed; export the other database, take that line out, and import the rest"
        raise FormatError("PD-R005", what, why=first_error(error), hint=hint) from None


def _lines_in(other: Records) -> Iterator[Line]:
    """The records of a database, each checked as a line of a file is; ValidationError for a bad one."""
    for key, record in other:
        yield Line(kernel=FinishedKernel(key=key, record=record))
    for candidate in other.candidates:
        yield Line(candidate=candidate)


def bring(records: Records, lines: Iterable[Line]) -> Imported:
    """Insert records, some hundreds at a time."""
    found, rest = Imported(), iter(lines)
    while batch := list(islice(rest, BATCH)):
        found.kernels += records.add_missing([(k.key, k.record) for k in (b.kernel for b in batch) if k])
        found.candidates += records.candidates.put_all([b.candidate for b in batch if b.candidate])
    return found


def _read(file: IO[bytes], name: str) -> Iterator[Line]:
    number = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        if len(raw) > MAX_LINE:
            raise _bad(name, number, f"the line is longer than {MAX_LINE} bytes")
        try:
            if number == 1:
                _check_format(name, Header.model_validate_json(raw))
            elif not raw.isspace():
                yield Line.model_validate_json(raw)
        except ValidationError as error:
            raise _bad(name, number, first_error(error)) from error
    if number == 0:
        raise _bad(name, 1, "the file is empty")


def _check_format(name: str, header: Header) -> None:
    if header.perfdojo_records != FORMAT:
        what = f"{name} has format {header.perfdojo_records}, this SDK reads format {FORMAT}"
        raise FormatError("PD-R005", what, hint="export it with an SDK of this version")


def _bad(name: str, number: int, why: str) -> FormatError:
    hint = "nothing was changed; `perfdojo-sdk db export` writes files that can be read"
    return FormatError("PD-R005", f"{name}, line {number} is no record", why=why, hint=hint)
