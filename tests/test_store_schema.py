"""Versions of the database, files that are damaged or not ours, and file systems that share no memory."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from postgres import Server
from test_store import key, record

from benchmarks.records import candidate
from perfdojo_sdk.store import engine, schema
from perfdojo_sdk.store.database import SCHEMA, Records, StoreError

#: The tables as the first version made them.
FIRST = """
CREATE TABLE records (
    id INTEGER NOT NULL, created VARCHAR NOT NULL, digest VARCHAR NOT NULL, kernel VARCHAR NOT NULL,
    target VARCHAR NOT NULL, device VARCHAR NOT NULL, "key" TEXT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX records_by_digest ON records (digest);
PRAGMA application_id = 0x50446A6F;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""


@pytest.fixture
def first_version(tmp_path: Path) -> Path:
    """A database of the first version with one finished kernel."""
    path = tmp_path / "first.sqlite"
    values = ("2026-01-01T00:00:00+00:00", key().digest, "f_64_f32", "toy", "here")
    data = (key().model_dump_json(), record().model_dump_json(by_alias=True))
    with sqlite3.connect(path) as connection:
        connection.executescript(FIRST)
        connection.execute("INSERT INTO records VALUES (1, ?, ?, ?, ?, ?, ?, ?)", (*values, *data))
    connection.close()
    return path


def tables(path: Path) -> list[tuple[str, str, int]]:
    """Every column and index, whatever the spelling of the statement that made it."""
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = [(name, *row[1:]) for name in names for row in connection.execute(f"PRAGMA table_info({name})")]
    rows += [(name, *row[1:]) for name in names for row in connection.execute(f"PRAGMA index_list({name})")]
    connection.close()
    return sorted(rows, key=str)


# -- versions --------------------------------------------------------------------------------------


def test_the_first_version_becomes_the_current_one(first_version: Path, tmp_path: Path) -> None:
    with Records(first_version) as records:
        assert records.find(key()) == record()
        records.candidates.put(candidate(1))
        assert list(records.candidates) == [candidate(1)]
    Records(tmp_path / "new.sqlite").close()
    assert tables(first_version) == tables(tmp_path / "new.sqlite")
    assert sqlite3.connect(first_version).execute("PRAGMA user_version").fetchone() == (SCHEMA,)


def test_every_earlier_version_has_a_migration() -> None:
    assert sorted(schema._MIGRATIONS) == list(range(1, SCHEMA))


def test_a_migration_that_fails_leaves_the_old_version(
    first_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(connection: object) -> None:
        schema.conditions.create(connection)  # type: ignore[arg-type]
        raise RuntimeError("the light went out")

    before = tables(first_version)
    monkeypatch.setitem(schema._MIGRATIONS, 1, half)  # type: ignore[call-overload]
    with pytest.raises(RuntimeError):
        Records(first_version)
    assert tables(first_version) == before
    monkeypatch.undo()
    with Records(first_version) as records:
        assert records.find(key()) == record()


def _killed(work: Callable[[], None], after_s: float) -> None:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    time.sleep(after_s)
    assert child.pid
    os.kill(child.pid, signal.SIGKILL)
    child.join()


@pytest.mark.parametrize("start", ["new", "first version"])
def test_whoever_dies_while_opening_spoils_nothing(start: str, first_version: Path, tmp_path: Path) -> None:
    chance = random.Random(0)
    for number in range(12):
        path = tmp_path / f"{number}.sqlite"
        if start != "new":
            shutil.copy(first_version, path)
        _killed(lambda path=path: Records(path).close(), chance.uniform(0, 0.04))  # type: ignore[misc]
        with Records(path) as records:
            assert records.find(key()) == (None if start == "new" else record())
            records.candidates.put(candidate(1))
        assert not list(tmp_path.glob("*.damaged-*"))


def test_a_server_of_a_newer_sdk_or_of_somebody_else_is_left_alone(
    server_place: str, postgres_server: Server
) -> None:
    name = server_place.rpartition("%3D")[2]
    postgres_server.execute(f"CREATE TABLE {name}.songs (title text)")  # somebody else's, and no harm
    Records(server_place).close()
    postgres_server.execute(f"UPDATE {name}.perfdojo_schema SET version = {SCHEMA + 1}")
    with pytest.raises(StoreError, match=f"schema version {SCHEMA + 1}") as caught:
        Records(server_place)
    assert caught.value.code == "PD-R003"
    postgres_server.execute(f"DROP TABLE {name}.perfdojo_schema")
    with pytest.raises(StoreError, match="another program") as caught:
        Records(server_place)
    assert caught.value.code == "PD-R003"


# -- damage ----------------------------------------------------------------------------------------


def test_who_only_reads_leaves_a_damaged_file_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(b"not a database, " * 100)
    with pytest.raises(StoreError) as caught:
        Records(path, create=False)
    assert caught.value.code == "PD-R002" and path.read_bytes() == b"not a database, " * 100


def test_damage_in_the_middle_of_a_run_is_said_and_nothing_is_moved(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as records:
        records.candidates.put_all([candidate(n) for n in range(300)])
    content = path.read_bytes()
    with Records(path) as records:
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(len(content) - 4096))
        with pytest.raises(StoreError) as caught:
            list(records.candidates)
        assert caught.value.code == "PD-R002" and ".recover" in caught.value.hint
    assert [p.name for p in tmp_path.glob("r.sqlite*")] == ["r.sqlite"]


def test_who_only_reads_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no records") as caught:
        Records(tmp_path / "none.sqlite", create=False)
    assert caught.value.code == "PD-R001" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "place",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://me@here/x",
        "postgresql+asyncpg://me@here/x",
        "oracle://x",
        "://",
        "http://example.org",
        "postgresql://host:notaport/x",
    ],
)
def test_a_place_that_is_none(place: str) -> None:
    with pytest.raises(StoreError) as caught:
        Records(place)
    assert caught.value.code == "PD-R004" and "postgresql://" in caught.value.hint


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match="no driver") as caught:
        Records("postgresql://me@/x?host=/nowhere")
    assert caught.value.code == "PD-R004" and "perfdojo-sdk[postgres]" in caught.value.hint


def test_a_url_of_a_file_is_that_file(tmp_path: Path) -> None:
    Records(f"sqlite:///{tmp_path}/r.sqlite").close()
    assert (tmp_path / "r.sqlite").exists()


# -- file systems ----------------------------------------------------------------------------------

MOUNTS = r"""
21 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:30 / /home rw shared:2 - nfs4 server:/home rw
31 30 0:31 / /home/me/fast\040disk rw - xfs /dev/vdb rw
32 21 0:32 / /over rw - ext4 /dev/vdc rw
33 21 0:33 / /over rw - fuse.sshfs me@there: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/x.sqlite", "ext4"),
        ("/home/x.sqlite", "nfs4"),
        ("/homes/x.sqlite", "ext4"),
        ("/home/me/fast disk/x.sqlite", "xfs"),
        ("/over/x.sqlite", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert engine.filesystem(Path(path), str(mounts)) == kind


def test_without_a_list_of_mounts_nothing_is_assumed(tmp_path: Path) -> None:
    assert engine.filesystem(tmp_path, str(tmp_path / "none")) == ""
    (tmp_path / "odd").write_text("\n1 2\n - \n")
    assert engine.filesystem(tmp_path, str(tmp_path / "odd")) == ""


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "virtiofs", "lustre", ""])
def test_where_memory_is_not_shared_the_log_is_not_used(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.sqlite"
    monkeypatch.setattr(engine, "filesystem", lambda path: "ext4")
    with Records(path) as records:
        records.candidates.put(candidate(1))
        assert records.database.journal() == "wal"
    monkeypatch.setattr(engine, "filesystem", lambda path: kind)
    with Records(path) as records:  # moved there, say
        assert records.database.journal() == "delete"
        records.candidates.put(candidate(2))
        full = records.database.read(lambda c: c.exec_driver_sql("PRAGMA synchronous").scalar_one())
        assert full == 2
    assert not list(tmp_path.glob("*-wal"))
    with Records(path) as records:
        assert len(list(records.candidates)) == 2


def test_a_log_that_others_use_cannot_be_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.sqlite"
    monkeypatch.setattr(engine, "filesystem", lambda path: "ext4")
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.2)
    with Records(path) as records:
        records.candidates.put(candidate(1))
        monkeypatch.setattr(engine, "filesystem", lambda path: "nfs")
        with pytest.raises(StoreError, match="cannot use") as caught:
            Records(path)
        assert caught.value.code == "PD-R001" and "locked" in caught.value.why
        assert len(list(records.candidates)) == 1
