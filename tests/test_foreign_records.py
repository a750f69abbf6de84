"""Databases that somebody else made, or that can only be read: an answer within seconds, nothing changed."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command_line import Outcome, clear
from test_candidates import evaluated, measured
from test_records_exchange import export, filled

from perfdojo_sdk.store import engine, t4
from perfdojo_sdk.store.candidates import Candidate
from perfdojo_sdk.store.database import Records, StoreError
from perfdojo_sdk.store.exchange import FormatError, import_file
from perfdojo_sdk.store.maintenance import statistics

Cli = Callable[..., Outcome]
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
COLUMNS = "1 AS id, '' AS created, '' AS digest, '' AS kernel, '' AS target, '' AS device, '' AS key"


def changed(path: Path, *statements: str) -> Path:
    """The records at ``path``, changed by hand; made when there are none."""
    if not path.exists():
        filled(path).close()
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


# -- what computes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statements",
    [
        (
            "DROP TABLE records",
            f"CREATE VIEW records AS {ENDLESS} SELECT {COLUMNS}, '' AS record FROM n WHERE i < 0",
        ),
        (
            "CREATE TRIGGER t BEFORE INSERT ON candidates BEGIN "
            f"INSERT INTO conditions SELECT i, '', '', '', '', '' FROM ({ENDLESS} SELECT i FROM n); END",
        ),
        ("ALTER TABLE records ADD COLUMN x AS (hex(zeroblob(400000000)))",),
        ("CREATE INDEX i ON records (hex(zeroblob(length(record) * 100)))",),
        ("CREATE INDEX i ON records (kernel) WHERE length(zeroblob(400000000)) > 0",),
    ],
    ids=["view", "trigger", "column", "index", "partial index"],
)
def test_a_file_that_computes_is_refused_at_once(statements: tuple[str, ...], tmp_path: Path) -> None:
    path = changed(tmp_path / "r.sqlite", *statements)
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError, match="not of this SDK's making") as refused:
            Records(path, create)
        assert refused.value.code == "PD-R003"
    assert path.read_bytes() == before


def test_a_journal_that_names_another_file_deletes_nothing(tmp_path: Path) -> None:
    path = changed(tmp_path / "r.sqlite", "PRAGMA journal_mode = DELETE")
    victim = tmp_path / "thesis.txt"
    victim.write_text("years of work")
    (tmp_path / "r.sqlite-journal").write_bytes(journal(path, victim))
    with pytest.raises(StoreError, match="not left by this SDK"):
        Records(path)
    assert victim.exists()
    sqlite3.connect(path).execute("SELECT count(*) FROM records").fetchall()
    assert not victim.exists(), "SQLite alone does delete it, so the journal was a real one"


def journal(database: Path, other: Path) -> bytes:
    """A journal as a transaction over several databases leaves it: nothing to restore, a file to delete."""
    pages = database.stat().st_size // 4096
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">5I", 0, 0, pages, 512, 4096)
    name = os.fsencode(other)
    lock_page = (1 << 30) // 4096 + 1
    end = struct.pack(">I", lock_page) + name + struct.pack(">II", len(name), sum(name)) + head[:8]
    return head.ljust(512, b"\0") + end


# -- rows that fit nowhere ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM conditions",
        "UPDATE candidates SET seconds = 'soon' WHERE seconds IS NOT NULL",
        "UPDATE candidates SET propose_s = x'ff'",
        "UPDATE candidates SET at = 5",
        "UPDATE conditions SET key = x'ff'",
        "UPDATE conditions SET kernel = x'ff' WHERE rowid = 1",
        "UPDATE candidates SET record = '" + "[" * 100_000 + "'",
        "DROP TABLE conditions",
    ],
)
def test_rows_that_fit_nowhere_are_an_error_or_left_out(cli: Cli, tmp_path: Path, statement: str) -> None:
    changed(tmp_path / "r.sqlite", statement)
    commands = (
        "db stats",
        "db stats --json",
        "db export a.jsonl",
        "db export a.t4 --format t4",
        "cost --json",
    )
    for words in commands:
        outcome = cli(*words.split(), "--db", "r.sqlite")
        assert "Traceback" not in outcome.err
        assert outcome.code == 0 or "error[PD-R00" in outcome.err or outcome.code == 5, outcome


def test_candidates_that_lost_their_conditions_are_counted(tmp_path: Path) -> None:
    changed(tmp_path / "r.sqlite", "DELETE FROM conditions")
    with Records(tmp_path / "r.sqlite") as records, pytest.raises(StoreError, match="damaged") as refused:
        statistics(records)
    assert "lost the conditions" in refused.value.why and "db export" in refused.value.hint


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_file_holds_no_records(cli: Cli, tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "r") if kind == "fifo" else (tmp_path / "r").mkdir()
    (tmp_path / "none.jsonl").write_text('{"perfdojo_records": 1}\n')
    for words in (("stats",), ("import", "none.jsonl")):
        clear(cli("db", *words, "--db", "r"), 1, "PD-R001")


@pytest.mark.parametrize("name", ["fifo", "/dev/zero"])
def test_an_endless_file_is_not_imported(cli: Cli, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    clear(cli("db", "import", name, "--db", "r.sqlite"), 1, "PD-R005")


# -- what can only be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("closed", ["file", "folder"])
def test_records_that_cannot_be_written_are_read(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str, closed: str
) -> None:
    monkeypatch.setattr(engine, "filesystem", lambda path: "ext4" if journal == "wal" else "nfs")
    folder = tmp_path / "theirs"
    path = changed(folder / "r.sqlite") if folder.mkdir() is None else folder
    protected = path if closed == "file" else folder
    kept = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: Path(p) != protected and kept(p, mode))
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}
    outcome = cli("db", "stats", "--db", str(path), "--json")
    assert outcome.code == 0 and outcome.data["candidates"] == 4, outcome.err
    assert cli("db", "export", "out.jsonl", "--db", str(path)).code == 0
    clear(cli("db", "prune", "--failures", "--db", str(path)), 1, "PD-R001")
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()} == before


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_file_without_permission_to_write_is_read(cli: Cli, tmp_path: Path) -> None:
    changed(tmp_path / "r.sqlite").chmod(0o444)
    assert cli("db", "stats", "--db", "r.sqlite").code == 0


# -- where a file lies -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Dönges", "数据", "a\u2028b", "b\x85c", "a b\tc\\d", "caf\udce9"])
def test_a_file_system_is_known_under_any_name(tmp_path: Path, name: str) -> None:
    point = f"/mnt/{name}"
    written = "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in point)
    lines = f"21 1 0:1 / / rw - ext4 /dev/a rw\n22 21 0:2 / {written} rw - nfs4 server:/x rw\n"
    (tmp_path / "mounts").write_bytes(os.fsencode(lines))
    assert engine.filesystem(Path(point, "r.sqlite"), str(tmp_path / "mounts")) == "nfs4"


# -- dates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0000-01-01T00:00:00Z"]
)
def test_a_date_that_no_calendar_has_is_a_bad_line(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are the lines before it taken, though they fill several transactions."""
    monkeypatch.setattr("perfdojo_sdk.store.exchange.BATCH", 1)
    with filled(tmp_path / "a.sqlite") as source:
        file = export(source, tmp_path / "r.jsonl")
    lines = file.read_text().splitlines()
    last = json.loads(lines[-1])
    last["candidate"]["at"] = at
    file.write_text("\n".join([*lines[:-1], json.dumps(last)]))
    with Records(tmp_path / "b.sqlite") as records:
        with pytest.raises(FormatError, match=f"line {len(lines)} "):
            import_file(records, file)
        assert not list(records) and not list(records.candidates)


def test_the_first_and_the_last_moment_are_dates() -> None:
    for at in (datetime.min, datetime.max):
        data = evaluated().model_dump(mode="json", by_alias=True)
        read = Candidate.model_validate({**data, "at": at.replace(tzinfo=UTC).isoformat()})
        assert read.at.replace(tzinfo=None) == at


# -- T4 ----------------------------------------------------------------------------------------------


def test_a_t4_entry_says_each_name_once() -> None:
    found = measured(2e-3, details={"calls": 9, "time": 1.0})
    names = [each["name"] for each in t4.result(evaluated(found=found))["measurements"]]
    assert len(names) == len(set(names)) and "calls" in names


# -- what is shown -----------------------------------------------------------------------------------


def test_an_export_to_the_terminal_commands_it_nothing(cli: Cli, tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as records:
        records.candidates.put(evaluated(search="wa\x9b2Jl\x7fk\x1b"))
        outcome = cli("db", "export", "-", "--db", "r.sqlite")
        assert all(c.isprintable() or c == "\n" for c in outcome.out)
        (tmp_path / "out.jsonl").write_text(outcome.out)
        with Records(tmp_path / "again.sqlite") as again:
            import_file(again, tmp_path / "out.jsonl")
            assert list(again.candidates) == list(records.candidates)


SECRET = "hunter2"


@pytest.mark.parametrize(
    "place",
    [
        f"postgresql://me:{SECRET}@localhost:1/x",
        f"postgresql://me@localhost:1/x?password={SECRET}",
        f"postgresql://me@localhost:1/x?sslpassword={SECRET}&connect_timeout=1",
        f"postgresql://me@localhost:1/x?passfile={SECRET}",
        f"postgresql://me@localhost:1/x?password={SECRET}&password={SECRET}",
        f"postgresql://me@localhost:1/x?nonsense=1&password={SECRET}",
        f"postgresql://me@localhost:{SECRET}/x",
        f"postgres:me:{SECRET}@localhost/x",
        f"postgresql:/me:{SECRET}@localhost/x",
    ],
)
@pytest.mark.parametrize("words", [("db", "stats"), ("db", "merge", "other.sqlite"), ("cost",)], ids=" ".join)
def test_a_password_is_never_shown(cli: Cli, tmp_path: Path, place: str, words: tuple[str, ...]) -> None:
    filled(tmp_path / "other.sqlite").close()
    outcome = cli(*words, "--db", place, "--json")
    assert outcome.code == 1 and SECRET not in outcome.out + outcome.err
    assert [p.name for p in tmp_path.iterdir()] == ["other.sqlite"]
