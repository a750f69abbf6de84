"""Candidates of searches: each is kept once, as it was, in a file and on a server alike."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from postgres import Server
from pydantic import ValidationError

from benchmarks.records import CONDITIONS, PROGRAM, candidate, conditions, kill_writers
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import Failure, FailureReason, Measurement
from perfdojo_sdk.store.candidates import (
    MAX_DETAIL,
    Candidate,
    CandidateStore,
    Failed,
    Proposer,
    StageSeconds,
    Timed,
    key_of,
    result_of,
)
from perfdojo_sdk.store.database import ImportCounts, Records
from perfdojo_sdk.store.records import RecordKey

RULES = Rules(CORE_DIALECT, GENERIC)
ROOT = Trace(parse(PROGRAM))
SPLIT = ROOT.play_all(RULES, [Move.of("split_scope", "s0", factor=16)])
WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def measured(*seconds: float, **more: Any) -> Measurement:
    return Measurement(None, seconds, more.pop("provenance", "measured"), "here", 1, **more)


def evaluated(
    trace: Trace = SPLIT,
    found: Measurement | Failure | None = None,
    key: RecordKey = CONDITIONS,
    at: datetime = WHEN,
    search: str = "walk",
) -> Candidate:
    result = result_of(found or measured(1e-3, 2e-3, 4e-3), ("outputs",))
    took = StageSeconds(propose_s=1e-3, compile_s=0.5, measure_s=1.0)
    return Candidate.of(key, trace, result, Proposer(search=search, seed=7, number=3), took, at)


# -- what a record says ----------------------------------------------------------------------------


def test_a_measurement_becomes_a_time_with_its_spread() -> None:
    result = evaluated().result
    assert isinstance(result, Timed)
    assert (result.timing.median_s, result.timing.best_s, result.timing.calls) == (2e-3, 1e-3, 3)
    assert result.spread_s == pytest.approx(1.5e-3) and result.passed == ("outputs",) and not result.cut


def test_a_run_that_was_given_up_says_so() -> None:
    result = result_of(measured(1.0, details={"stopped": 1.0}))
    assert isinstance(result, Timed) and result.cut


@pytest.mark.parametrize("seconds", [(), (0.0,), (float("nan"),), (float("inf"), 1.0), (-1.0,)], ids=str)
def test_a_time_that_is_none_is_a_failure(seconds: tuple[float, ...]) -> None:
    result = result_of(measured(*seconds))
    assert isinstance(result, Failed) and result.reason == "runtime"


@pytest.mark.parametrize("reason", get_args(FailureReason))
def test_a_failure_keeps_its_reason(reason: FailureReason) -> None:
    found = evaluated(found=Failure(reason, "because"))
    assert found.failure == Failure(reason, "because") and found.seconds is None


def test_what_a_compiler_says_is_bounded_and_its_ends_are_kept() -> None:
    said = f"first\0{'x' * 100_000}\ud800{'y' * 100_000}last"
    result = result_of(Failure("compile", said))
    assert isinstance(result, Failed) and len(result.detail) <= MAX_DETAIL
    assert result.detail.startswith("first?xxx") and result.detail.endswith("yyylast")
    assert "characters and more left out" in result.detail


@pytest.mark.parametrize(
    "change",
    [
        {"program": PROGRAM + "\n"},
        {"key": key_of(conditions(), ROOT).model_dump()},
        {"key": {"conditions": CONDITIONS.model_copy(update={"program_sha256": "0" * 64}).model_dump()}},
        {"result": {"outcome": "failed", "reason": "bad luck"}},
        {"result": {"outcome": "failed", "reason": "crash", "detail": "x" * (MAX_DETAIL + 1)}},
        {"result": {"outcome": "lost"}},
        {"proposer": {"search": "a\0b"}},
        {"proposer": {"search": "x", "seed": 2**64}},
        {"took": {"propose_s": -1}},
        {"took": {"propose_s": float("nan")}},
        {"at": "2026-01-02T03:04:05"},
        {"more": 1},
    ],
    ids=lambda change: str(change)[:40],
)
def test_data_that_is_no_candidate_is_refused(change: dict[str, Any]) -> None:
    data = evaluated().model_dump(by_alias=True)
    assert Candidate.model_validate(data) == evaluated()
    with pytest.raises(ValidationError):
        Candidate.model_validate({**data, **change})


def test_a_median_must_be_a_time() -> None:
    data = evaluated().model_dump(by_alias=True)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        data["result"]["timing"]["median_s"] = wrong
        with pytest.raises(ValidationError):
            Candidate.model_validate(data)


# -- the store -------------------------------------------------------------------------------------


def test_what_was_put_is_found_as_it_was(place: str) -> None:
    fast, slow, failed = (
        evaluated(),
        evaluated(ROOT, measured(1.0)),
        evaluated(found=Failure("crash", "SIGSEGV")),
    )
    other = evaluated(ROOT, key=conditions(seed=1))
    with Records(place) as records:
        store: CandidateStore = records.candidates
        assert store.find(fast.key) is None and store.best(CONDITIONS) is None
        for each in (slow, fast, other):
            store.put(each)
    with Records(place) as records:
        assert records.candidates.find(fast.key) == fast
        assert records.candidates.best(CONDITIONS) == fast
        assert list(records.candidates.ranked(CONDITIONS)) == [fast, slow]
        assert list(records.candidates.of("f[64]", "toy")) == [slow, fast, other]
        assert list(records.candidates.of("f[64]", "other")) == list(records.candidates.of("g", "toy")) == []
        records.candidates.put(failed.model_copy(update={"at": WHEN + timedelta(seconds=1)}))
        assert records.candidates.best(CONDITIONS) == slow, "a failure has no time"


def test_of_two_under_one_key_the_later_stays_whichever_comes_first(place: str) -> None:
    early = evaluated(found=measured(1.0))
    late = evaluated(found=measured(2.0), at=WHEN + timedelta(microseconds=1), search="other")
    with Records(place) as records:
        for order in ((early, late), (late, early), (late, late)):
            for each in order:
                records.candidates.put(each)
            assert list(records.candidates) == [late]
        assert records.candidates.put_all([early, late, evaluated(ROOT)]) == ImportCounts(new=1, kept=2)


def test_another_way_to_the_same_program_is_the_same_candidate(place: str) -> None:
    two = [Move.of("split_scope", "s0", factor=16), Move.of("split_scope", "s0.i", factor=4)]
    there = ROOT.play_all(RULES, two)
    again = Trace(ROOT.root).play_all(RULES, two)
    assert key_of(CONDITIONS, there).digest == key_of(CONDITIONS, again).digest
    assert key_of(CONDITIONS, there).digest != key_of(CONDITIONS, SPLIT).digest
    assert key_of(conditions(seed=2), there).digest != key_of(CONDITIONS, there).digest


def test_figures_of_different_provenance_are_not_mixed(place: str) -> None:
    estimated = evaluated(ROOT, measured(1e-9, provenance="estimated"))
    timed = evaluated(found=measured(1.0))
    with Records(place) as records:
        records.candidates.put_all([estimated, timed])
        assert list(records.candidates.ranked(CONDITIONS)) == [timed, estimated]


def test_a_run_that_was_given_up_is_never_the_best(place: str) -> None:
    with Records(place) as records:
        records.candidates.put(evaluated(found=measured(1e-9, details={"stopped": 1.0})))
        assert records.candidates.best(CONDITIONS) is None
        assert len(list(records.candidates)) == 1


def test_a_row_that_does_not_read_counts_as_absent(place: str) -> None:
    with Records(place) as records:
        records.candidates.put_all([evaluated(), evaluated(ROOT)])
        records.database.write(
            lambda connection: connection.exec_driver_sql(
                f"UPDATE candidates SET record = '{{}}' WHERE digest = '{evaluated().key.digest}'"
            )
        )
        assert records.candidates.find(evaluated().key) is None
        assert list(records.candidates) == [evaluated(ROOT)]


@pytest.mark.parametrize("text", ["", "5", "[]", "{}", "[" * 100_000, '{"trace": 5}'], ids=range(6))
def test_whatever_stands_in_a_row_it_is_only_absent(text: str, tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as records:
        records.candidates.put(evaluated())
        change = "UPDATE candidates SET record = ?"
        records.database.write(lambda connection: connection.exec_driver_sql(change, (text,)))
        assert records.candidates.find(evaluated().key) is None


def test_pages_come_in_order(place: str) -> None:
    with Records(place) as records:
        records.candidates.put_all([candidate(n) for n in range(450)])
        assert {c.proposer.number for c in records.candidates} == set(range(450))
        times = [c.seconds for c in records.candidates.ranked(CONDITIONS)]
        assert len(times) == 300 and times == sorted(times, key=lambda t: t or 0)


# -- many at once ----------------------------------------------------------------------------------


def _children(work: Callable[[int], None], count: int = 4) -> list[int | None]:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(n,)) for n in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    return [child.exitcode for child in children]


def test_processes_that_meet_at_a_new_database_share_it(place: str) -> None:
    def work(number: int) -> None:
        with Records(place) as records:
            for k in range(10):
                records.candidates.put(candidate(k))  # all of them the same ones
                records.candidates.put(candidate(100 + 10 * number + k))

    assert _children(work) == [0] * 4
    with Records(place) as records:
        assert len(list(records.candidates)) == 50


def test_a_child_goes_on_with_its_parents_object(place: str) -> None:
    with Records(place) as records:
        records.candidates.put(candidate(0))

        def work(number: int) -> None:
            assert records.candidates.find(candidate(0).key)
            records.candidates.put(candidate(1 + number))
            records.close()

        assert _children(work) == [0] * 4
        records.candidates.put(candidate(9))
        assert {c.proposer.number for c in records.candidates} == {0, 1, 2, 3, 4, 9}


def _holds(path: Path) -> bool:
    """True if this process has the file or one of its companions open."""
    names = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
    return any(str(path) in name for name in names)


def test_a_fork_inherits_no_open_file(tmp_path: Path) -> None:
    """SQLite's locks belong to a process: an inherited connection would not hold those it believes in."""
    path = tmp_path / "r.sqlite"

    def work(number: int) -> None:
        assert not _holds(path)

    with Records(path) as records:
        records.candidates.put(candidate(0))
        assert _holds(path)
        assert _children(work, 1) == [0]


# -- ends without warning --------------------------------------------------------------------------


def test_kill_at_any_moment_loses_nothing_that_was_kept(place: str) -> None:
    """Hundreds of kills, as long as the machine makes them in time; `benchmarks/records.py` has more."""
    server = "://" in place
    killed = kill_writers(place, 30 if server else 240, writers=4, most_s=3 if server else 12)
    assert killed.kills >= 8 and killed.acknowledged >= 8, killed
    assert killed.health == "ok" and killed.missing == killed.wrong == [], killed


def test_a_server_that_went_away_is_found_again(postgres_server: Server, server_place: str) -> None:
    with Records(server_place) as records:
        records.candidates.put(candidate(1))
        postgres_server.crash()
        postgres_server.start()
        records.candidates.put(candidate(2))
        assert {c.proposer.number for c in records.candidates} == {1, 2}


def test_the_name_of_a_server_shows_no_password() -> None:
    from perfdojo_sdk.store.schema import StoreError

    pytest.importorskip("psycopg")
    with pytest.raises(StoreError) as caught:
        Records(f"postgresql://me:verysecret@/x?host=/nowhere{os.getpid()}")
    assert caught.value.code == "PD-R001" and "verysecret" not in caught.value.render()
    with pytest.raises(StoreError) as caught:
        Records("postgresql://me:verysecret@host:port:x/y")
    assert caught.value.code == "PD-R004" and "verysecret" not in caught.value.render()
