"""Records are found under an equal key only, survive everything, and are never silently lost."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import DojoError, MoveError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.store.database import SCHEMA, Records, StoreError
from perfdojo_sdk.store.records import KernelRecord, LegResult, RecordKey, Timing, Verification
from perfdojo_sdk.store.traces import SavedMove, SavedTrace

LOOP = "kernel f(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{0}] = x[{0}]\n"
RULES = Rules(CORE_DIALECT, GENERIC)
TRACE = Trace(parse(LOOP)).play_all(RULES, [Move.of("split_scope", "s0", factor=16)])


def key(**changes: Any) -> RecordKey:
    base: dict[str, Any] = {
        "kernel": "f_64_f32",
        "program_sha256": "0" * 64,
        "target": "toy",
        "target_sha256": "1" * 64,
        "device": "here",
        "toolchain": "cc 1.0 -O2",
        "plugins": {"toy": "0.1+abc"},
        "settings": {"threads": 1, "seed": 0},
    }
    return RecordKey(**{**base, **changes})


def record(note: str = "") -> KernelRecord:
    leg = LegResult(passed=True, detail="fine", figures={"worst": 0.25, "classes": "random"})
    timing = Timing(
        median_s=1e-3, best_s=9e-4, calls=7, threads=1, cold=False, provenance="measured", device="here"
    )
    return KernelRecord(
        trace=SavedTrace.of(TRACE),
        program=TRACE.program.text,
        source_sha256="2" * 64,
        kind="exact",
        laws=(),
        verification=Verification(exact=leg, numeric=leg, dependence=leg),
        initial=timing,
        final=timing,
        bound=None,
        output_sha256="3" * 64,
        notes=(note,) if note else (),
    )


# -- the key ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "g"},
        {"program_sha256": "9" * 64},
        {"target": "other"},
        {"target_sha256": "9" * 64},
        {"device": "there"},
        {"toolchain": "cc 1.0 -O3"},
        {"plugins": {"toy": "0.2+abc"}},
        {"plugins": {"toy": "0.1+abc", "more": "1"}},
        {"settings": {"threads": 2, "seed": 0}},
        {"settings": {"threads": 1, "seed": 0, "most": "exact"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_a_result_depends_on_is_in_the_key(tmp_path: Path, change: dict[str, Any]) -> None:
    with Records(tmp_path / "r.sqlite") as records:
        records.add(key(), record())
        assert records.find(key()) == record()
        assert records.find(key(**change)) is None


def test_the_order_of_a_mapping_does_not_matter() -> None:
    assert key(plugins={"a": "1", "b": "2"}).digest == key(plugins={"b": "2", "a": "1"}).digest


# -- the file --------------------------------------------------------------------------------------


def test_records_are_appended_and_the_newest_is_found(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "r.sqlite"
    with Records(path) as records:
        records.add(key(), record("first"))
    with Records(path) as records:
        records.add(key(), record("second"))
        assert records.find(key()) == record("second")
        assert [r.notes for _, r in records] == [("first",), ("second",)]
        assert next(iter(records))[0] == key()


def test_a_finished_kernel_is_on_the_disk_when_it_is_kept(tmp_path: Path) -> None:
    """Not even a power cut takes it; SQLite's own word for that is FULL, 2."""
    with Records(tmp_path / "r.sqlite") as records:
        records.add(key(), record())
        mode = records.database.read(lambda c: c.exec_driver_sql("PRAGMA synchronous").scalar_one())
        assert mode == 2


def _append(path: Path, number: int) -> None:
    with Records(path) as records:
        for k in range(10):
            records.add(key(kernel=f"k{number}_{k}"), record())


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    Records(path).close()
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_append, args=(path, n)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [p.exitcode for p in processes] == [0, 0, 0]
    with Records(path) as records:
        assert len(list(records)) == 30


@pytest.mark.parametrize("damage", ["garbage", "torn"])
def test_a_damaged_file_is_put_aside_with_all_its_bytes(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as records:
        for _ in range(50):
            records.add(key(), record("x" * 500))
    content = path.read_bytes()
    broken = b"not a database, " * 100 if damage == "garbage" else content[: len(content) // 2 + 7]
    path.write_bytes(broken)
    with pytest.raises(StoreError) as caught:
        Records(path)
    assert caught.value.code == "PD-R002" and "renamed" in caught.value.what
    [aside] = [p for p in tmp_path.glob("r.sqlite.damaged-*") if not p.name.endswith(("-wal", "-shm"))]
    assert aside.read_bytes() == broken
    with Records(path) as records:
        assert list(records) == []


def test_an_unreadable_record_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as records:
        records.add(key(), record())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET record = '{}'")
    with Records(path) as records:
        assert records.find(key()) is None and list(records) == []


def test_a_file_of_a_newer_sdk_or_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    newer, foreign = tmp_path / "newer.sqlite", tmp_path / "foreign.sqlite"
    Records(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE songs (title)")
    for path, words in ((newer, "schema version"), (foreign, "another program")):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=words):
            Records(path)
        assert path.read_bytes()[100:] == before[100:]


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create"):
        Records(tmp_path / "file" / "r.sqlite")
    (tmp_path / "r.sqlite").mkdir()
    with pytest.raises(StoreError, match="cannot use"):
        Records(tmp_path / "r.sqlite")


# -- traces ----------------------------------------------------------------------------------------


def test_a_trace_comes_back_as_it_was() -> None:
    text = SavedTrace.of(TRACE).model_dump_json(by_alias=True)
    assert SavedTrace.model_validate_json(text).replay(RULES) == TRACE


def test_a_trace_that_no_longer_replays_says_which_move_and_why() -> None:
    saved = SavedTrace(
        root=LOOP,
        moves=(
            SavedMove(transformation="split_scope", place="s0", parameters={"factor": 16}),
            SavedMove(transformation="split_scope", place="s0.i", parameters={"factor": 5}),
        ),
    )
    with pytest.raises(MoveError, match=r"move 1 of 2 does not replay.*factor=5"):
        saved.replay(RULES)


def test_a_move_of_another_version_is_refused() -> None:
    saved = SavedMove(transformation="split_scope", version=99, place="s0", parameters={"factor": 16})
    with pytest.raises(MoveError, match="version 99"):
        SavedTrace(root=LOOP, moves=(saved,)).replay(RULES)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 3},
        {"root": 5},
        {"root": "x" * 1_000_001},
        {"moves": [{}]},
        {"moves": [{"transformation": "a b", "place": "s0"}]},
        {"moves": [{"transformation": "split_scope", "place": "../s0"}]},
        {"moves": [{"transformation": "split_scope", "place": "s0", "parameters": {"factor": 1.5}}]},
        {"moves": [{"transformation": "split_scope", "place": "s0", "parameters": {"factor": 10**40}}]},
        {"moves": [{"transformation": "split_scope", "place": "s0", "version": 0}]},
        {"moves": [{"transformation": "split_scope", "place": "s0", "more": 1}]},
        {"moves": [{"transformation": "split_scope", "place": "s0"}] * 10_001},
        {"extra": 1},
    ],
    ids=str,
)
def test_data_that_is_no_trace_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        SavedTrace.model_validate({"schema": 1, "root": LOOP, "moves": [], **change})


def test_a_root_that_is_no_program_is_a_program_error() -> None:
    with pytest.raises(DojoError, match="saved game"):
        SavedTrace(root="kernel").replay(RULES)


def test_a_game_of_deep_nests_can_be_kept() -> None:
    """A place names a path for each access: annealing came to more than a thousand characters."""
    place = "a_r" + ".0.o.o.i" * 400
    assert SavedMove(transformation="split_scope", place=place).move().place == place
