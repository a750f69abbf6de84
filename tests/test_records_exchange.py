"""Records on their way: export, import, merge, T4; hostile files; and what may be deleted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from command_line import Outcome, clear
from test_candidates import ROOT, SPLIT, WHEN, evaluated, measured
from test_store import key, record

from benchmarks.records import CONDITIONS, candidate, conditions
from perfdojo_sdk.hookspecs.types import Failure, FailureReason
from perfdojo_sdk.store import exchange, t4
from perfdojo_sdk.store.database import ImportCounts, Records
from perfdojo_sdk.store.exchange import FormatError, import_file, lines_of, merge
from perfdojo_sdk.store.maintenance import PruningRule, prune, statistics

Cli = Callable[..., Outcome]


def filled(place: str | Path) -> Records:
    """Two finished kernels under one key, and four candidates."""
    records = Records(place)
    records.add(key(), record("first"))
    records.add(key(), record("second"))
    records.candidates.put_all([evaluated(), *(candidate(n) for n in range(3))])
    return records


def content(records: Records) -> tuple[list[Any], list[Any]]:
    return list(records), list(records.candidates)


def export(records: Records, path: Path) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines_of(records)))
    return path


# -- there and back --------------------------------------------------------------------------------


def test_what_is_exported_is_imported_as_it_was(place: str, tmp_path: Path) -> None:
    with filled(tmp_path / "from.sqlite") as source, Records(place) as records:
        file = export(source, tmp_path / "r.jsonl")
        first = import_file(records, file)
        assert content(records) == content(source)
        again = import_file(records, file)
        assert content(records) == content(source)
    assert first.as_json() == {
        "kernels": {"new": 2, "replaced": 0, "kept": 0},
        "candidates": {"new": 4, "replaced": 0, "kept": 0},
    }
    assert again.kernels.kept == 2 and again.candidates.kept == 4


def test_of_two_databases_the_later_candidate_stays(place: str, tmp_path: Path) -> None:
    late = evaluated(found=measured(9.0), at=WHEN + timedelta(days=1))
    with filled(tmp_path / "a.sqlite") as a, Records(place) as b:
        b.candidates.put_all([late, evaluated(ROOT)])
        assert merge(a, b).candidates == ImportCounts(new=1, replaced=1)
        assert merge(b, a).candidates == ImportCounts(new=3, kept=2)
        assert a.candidates.find(late.key) == b.candidates.find(late.key) == late
        assert sorted(content(a)[1], key=str) == sorted(content(b)[1], key=str)


def test_an_import_that_was_interrupted_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BATCH", 2)
    with filled(tmp_path / "from.sqlite") as source, Records(tmp_path / "to.sqlite") as records:
        file = export(source, tmp_path / "r.jsonl")
        put_all, calls = records.candidates.put_all, []

        def dies(found: Any) -> Any:
            calls.append(found)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return put_all(found)

        monkeypatch.setattr(records.candidates, "put_all", dies)
        with pytest.raises(KeyboardInterrupt):
            import_file(records, file)
        assert 0 < len(list(records.candidates)) < 4
        monkeypatch.setattr(records.candidates, "put_all", put_all)
        import_file(records, file)
        assert content(records) == content(source)


# -- hostile files ---------------------------------------------------------------------------------

HEADER = '{"perfdojo_records":1}'
GOOD = f'{{"candidate":{evaluated().model_dump_json(by_alias=True)}}}'


def changed(**change: Any) -> str:
    data = json.loads(GOOD)
    data["candidate"].update(change)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("\n", 1),
        ("[]", 1),
        ('{"perfdojo_records":"1"}', 1),
        (GOOD, 1),
        (f"{HEADER}\n{GOOD}\n{{", 3),
        (f"{HEADER}\n\n{GOOD}\n[]", 4),
        (f"{HEADER}\n{GOOD}\n{{}}", 3),
        (f"{HEADER}\n{'[' * 100_000}", 2),
        (f'{HEADER}\n{{"candidate":null,"kernel":null}}', 2),
        (f'{HEADER}\n{GOOD[:-1]},"more":1}}', 2),
        (f"{HEADER}\n{GOOD}\n{changed(program='another')}", 3),
        (f"{HEADER}\n{changed(at='yesterday')}", 2),
        (f"{HEADER}\n{changed(at='2999-01-01T00:00:00Z')}", 2),
        (f"{HEADER}\n{changed(result={'outcome': 'failed', 'reason': 'none of these'})}", 2),
        (f"{HEADER}\n{changed(trace={'schema': 2, 'root': 'x' * 1_000_001, 'moves': []})}", 2),
        (f"{HEADER}\n{changed(proposer={'search': 'x' * 100_000})}", 2),
        (HEADER + "\n" + GOOD.replace('"seed":7', '"seed":1e400'), 2),
        (HEADER + "\n" + GOOD.replace('"median_s":0.002', '"median_s":NaN'), 2),
        (HEADER + "\n" + GOOD.replace('"walk"', r'"wa\u0000lk"'), 2),
        (HEADER + "\n" + GOOD.replace('"walk"', r'"wa\ud800lk"'), 2),
        (HEADER + "\n\0\0\0", 2),
    ],
    ids=range(22),
)
def test_a_bad_line_is_named_and_nothing_is_changed(text: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(text)
    with Records(tmp_path / "r.sqlite") as records:
        with pytest.raises(FormatError, match=rf"r\.jsonl, line {line} is no record") as caught:
            import_file(records, file)
        assert content(records) == ([], [])
    assert caught.value.code == "PD-R005" and len(caught.value.render()) < 2000


def test_a_database_with_a_record_of_the_future_is_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "BATCH", 2)  # the good ones before it would go in first
    late = evaluated(SPLIT, at=datetime.now(UTC) + timedelta(days=2))
    with Records(tmp_path / "a.sqlite") as a, filled(tmp_path / "b.sqlite") as b:
        b.candidates.put(late)
        assert len(list(b.candidates)) > 3
        with pytest.raises(FormatError, match="b.sqlite cannot come in") as caught:
            merge(a, b)
        assert "future" in caught.value.why and content(a) == ([], [])


def test_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_LINE", 10_000)
    file = tmp_path / "r.jsonl"
    file.write_bytes(HEADER.encode() + b"\n" + b"\xff" * 20_000)
    with Records(tmp_path / "r.sqlite") as records, pytest.raises(FormatError, match="line 2"):
        import_file(records, file)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(HEADER.encode() + b"\n\xff\xfe\n")
    with Records(tmp_path / "r.sqlite") as records, pytest.raises(FormatError, match="line 2"):
        import_file(records, file)


def test_a_newer_format_is_refused_as_such(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text('{"perfdojo_records":2}\n{"anything":1}\n')
    with Records(tmp_path / "r.sqlite") as records, pytest.raises(FormatError, match="format 2"):
        import_file(records, file)


# -- T4 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", get_args(FailureReason))
def test_every_reason_has_a_word_in_t4(reason: FailureReason) -> None:
    entry = t4.result(evaluated(found=Failure(reason, "because")))
    assert entry["invalidity"] in {"timeout", "compile", "runtime", "correctness", "constraints"}
    assert entry["correctness"] == 0
    assert {"name": "failure", "value": reason, "unit": ""} in entry["measurements"]


def test_a_t4_file_is_what_its_schema_says(tmp_path: Path) -> None:
    """The required fields and types of T4 1.0.0's results."""
    data = json.loads("".join(t4.document([evaluated(), evaluated(ROOT, Failure("timeout"))])))
    assert data["schema_version"] == "1.0.0" and len(data["results"]) == 2
    for entry in data["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= entry.keys()
        assert isinstance(entry["timestamp"], str) and isinstance(entry["objectives"], list)
        assert all(isinstance(entry["times"][name], float) for name in entry["times"])
        for each in entry["measurements"]:
            assert each.keys() == {"name", "value", "unit"}
            assert isinstance(each["value"], int | float | str | list)
    first = data["results"][0]
    assert first["invalidity"] == "correct" and first["correctness"] == 1
    assert {"name": "time", "value": 2.0, "unit": "ms"} in first["measurements"]
    assert first["times"] == {"search_algorithm": 1.0, "compilation_time": 500.0, "benchmark": 1000.0}
    assert first["configuration"]["moves"] == ["split_scope(s0, factor=16)"]
    assert first["configuration"]["setting_threads"] == 1
    assert json.loads("".join(t4.document([])))["results"] == []


# -- pruning ---------------------------------------------------------------------------------------


def numbers(records: Records) -> set[int]:
    return {c.proposer.number for c in records.candidates}


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (PruningRule(failures=True), {1, 2, 4, 5}),
        (PruningRule(keep=2), {1, 2}),
        (PruningRule(keep=4), {1, 2, 4, 5}),
        (PruningRule(keep=5), {1, 2, 4, 5, 0}),
        (PruningRule(keep=2, failures=True), {1, 2, 4, 5}),
        (PruningRule(keep=0), set()),
        (PruningRule(keep=0, kernel="another"), set(range(7))),
        (PruningRule(keep=0, target="toy", kernel="f[64]"), set()),
        (PruningRule(before=datetime(2026, 1, 1, tzinfo=UTC)), set(range(7))),
        (PruningRule(before=datetime(2026, 1, 3, tzinfo=UTC)), set()),
        (PruningRule(before=datetime(2026, 1, 3, tzinfo=UTC), keep=1), {1}),
    ],
    ids=str,
)
def test_what_all_rules_agree_on_goes(rule: PruningRule, left: set[int], place: str) -> None:
    """0, 3 and 6 failed; the others are slower the higher their number; 6 came last."""
    with Records(place) as records:
        records.add(key(), record())
        records.candidates.put_all([candidate(n) for n in range(7)])
        would = prune(records, rule, dry_run=True)
        assert numbers(records) == set(range(7))
        assert prune(records, rule) == would
        assert numbers(records) == left and would.left == len(left)
        assert would.timed + would.failed == 7 - len(left)
        assert len(list(records)) == 1, "finished kernels stay"


def test_the_fastest_are_kept_for_each_set_of_conditions(place: str) -> None:
    other = evaluated(SPLIT, measured(9.0), conditions(threads=2))
    with Records(place) as records:
        records.candidates.put_all([candidate(1), candidate(2), other])
        prune(records, PruningRule(keep=1))
        assert numbers(records) == {1, 3}
        assert records.candidates.best(CONDITIONS) == candidate(1)
        records.candidates.put(candidate(2))
        assert numbers(records) == {1, 2, 3}


def test_space_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as records:
        records.candidates.put_all([candidate(n) for n in range(600)])
    before = path.stat().st_size
    with Records(path) as records:
        prune(records, PruningRule(keep=10))
    assert path.stat().st_size < before / 4


def test_figures_of_a_database_with_rows_that_do_not_read(place: str) -> None:
    with filled(place) as records:
        for statement in (
            "UPDATE candidates SET provenance = 'guessed', record = '[[['",
            "UPDATE conditions SET key = '{}'",
        ):
            records.database.write(lambda c, s=statement: c.exec_driver_sql(s))  # type: ignore[misc]
        found = statistics(records)
        assert found["candidates"] == 4 and [g["candidates"] for g in found["groups"]] == [4]
        assert list(records.candidates) == []


# -- the commands ----------------------------------------------------------------------------------


def test_an_empty_export_says_why(cli: Cli, tmp_path: Path) -> None:
    with Records("a.sqlite") as records:
        records.add(key(), record("first"))
    empty = cli("db", "export", "t4.json", "--db", "a.sqlite", "--format", "t4")
    assert empty.code == 0 and "0 records" in empty.out
    assert "nothing to export; t4 leaves out finished kernels" in empty.err


def test_the_commands_from_end_to_end(cli: Cli, tmp_path: Path) -> None:
    filled("a.sqlite").close()
    text = cli("db", "stats", "--db", "a.sqlite")
    assert text.code == 0 and "2 finished kernels" in text.out and "crash 1" in text.out
    assert "1 ms measured" in text.out
    data = cli("db", "stats", "--db", "a.sqlite", "--json").data
    assert (data["candidates"], data["timed"], data["failed"], data["health"]) == (4, 3, 1, "ok")
    assert data["searches"] == {"bench": 3, "walk": 1}
    assert data["spent_s"] == {"propose": 0.001, "compile": 0.5, "verify": 0.0, "measure": 1.0}
    [group] = data["groups"]
    assert (group["kernel"], group["candidates"], group["provenance"]) == ("f[64]", 4, "measured")

    assert cli("db", "export", "r.jsonl", "--db", "a.sqlite", "--json").data["records"] == 6
    assert cli("db", "export", "t4.json", "--db", "a.sqlite", "--format", "t4").code == 0
    assert len(json.loads(Path("t4.json").read_text())["results"]) == 4
    one = cli("db", "export", "-", "--db", "a.sqlite", "--kernel", "f_64_f32")
    assert len(one.out.splitlines()) == 3

    none = cli("db", "export", "none.jsonl", "--db", "a.sqlite", "--kernel", "f", "--target", "toy")
    assert none.code == 0 and "0 records in none.jsonl" in none.out
    assert "nothing to export for kernel f and target toy; the full name of a kernel" in none.err

    assert cli("db", "import", "r.jsonl", "--db", "b.sqlite", "--json").data["candidates"]["new"] == 4
    assert cli("db", "merge", "a.sqlite", "--db", "b.sqlite", "--json").data["candidates"]["kept"] == 4
    merged = cli("db", "merge", "a.sqlite", "--db", "c.sqlite")
    assert "candidates: 4 new, 0 replaced" in merged.out
    with Records("a.sqlite") as a, Records("b.sqlite") as b, Records("c.sqlite") as c:
        assert content(a) == content(b) == content(c)

    dry = cli("db", "prune", "--keep", "1", "--dry-run", "--db", "a.sqlite")
    assert "3 candidates would be deleted (1 failed), 1 left" in dry.out and "dry run" in dry.err
    assert cli("db", "prune", "--keep", "1", "--db", "a.sqlite", "--json").data["left"] == 1
    assert cli("db", "stats", "--db", "a.sqlite", "--json").data["candidates"] == 1


def test_the_commands_know_a_server(cli: Cli, server_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled("a.sqlite").close()
    monkeypatch.setenv("PERFDOJO_DB", server_place)
    assert cli("db", "merge", "a.sqlite", "--json").data["candidates"]["new"] == 4
    assert cli("db", "stats", "--json").data["kind"] == "postgresql"
    assert "candidates" in cli("db", "stats").out


def test_builds_and_searches_share_a_server(
    cli: Cli, server_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOJO_DB", server_place)
    build = ("build-library", "--target", "toy", "--kernels", "toy_scale[64]", "--threads", "1", "-o")
    assert cli(*build, "one", plugins="toy").code == 0
    again = cli(*build, "another", plugins="toy")
    assert again.code == 0 and "taken from the records" in again.err
    tune = ("tune", "toy_scale[64]", "--target", "toy", "--threads", "1", "--budget", "4", "-o", "one")
    assert cli(*tune, "--search", "sampling", "--json", plugins="toy").code == 0
    found = cli("db", "stats", "--json").data
    assert found["finished_kernels"] == 2 and 1 <= found["candidates"] <= 5
    assert found["searches"].keys() == {"sampling"}
    assert not list(Path("one").glob("*.sqlite")) and not list(Path("another").glob("*.sqlite"))


def test_the_only_file_of_a_library_is_the_default(cli: Cli, tmp_path: Path) -> None:
    filled("build/library/toy/records.sqlite").close()
    found = cli("db", "stats", "--json").data["place"]
    assert found == "build/library/toy/records.sqlite"
    filled("build/library/other/records.sqlite").close()
    outcome = cli("db", "stats")
    clear(outcome, 1, "PD-R001")
    assert "toy" in outcome.err and "other" in outcome.err and "--db" in outcome.err


def test_errors_of_the_commands(cli: Cli, tmp_path: Path) -> None:
    clear(cli("db", "stats"), 1, "PD-R001")
    clear(cli("db", "stats", "--db", "mysql://x/y"), 1, "PD-R004")
    clear(cli("db", "merge", "none.sqlite", "--db", "r.sqlite"), 1, "PD-R001")
    assert not Path("r.sqlite").exists()
    Path("bad.jsonl").write_text("no\n")
    clear(cli("db", "import", "bad.jsonl", "--db", "r.sqlite"), 1, "PD-R005")
    clear(cli("db", "import", "none.jsonl", "--db", "r.sqlite"), 1, "PD-R005")
    clear(cli("db", "import", ".", "--db", "r.sqlite"), 1, "PD-R005")
    assert not Path("r.sqlite").exists()
    filled("r.sqlite").close()
    clear(cli("db", "export", "bad.jsonl/r.jsonl", "--db", "r.sqlite"), 1, "PD-J004")
    clear(cli("db", "stats", "--db", "r\0.sqlite"), 1, "PD-R004")
    clear(cli("db", "stats", "--db", "x" * 5000), 1, "PD-E001")
    clear(cli("db", "stats", "--db", "."), 1, "PD-R001")
    outcome = cli("db", "prune", "--db", "r.sqlite")
    assert outcome.code == 2 and "--older-than" in outcome.err
    assert cli("db", "prune", "--keep", "-1", "--db", "r.sqlite").code == 2
    assert cli("db", "export", "-", "--json", "--db", "r.sqlite").code == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--older-than", days) for days in ("100001", "1000000", "1e300", "inf", "nan", "-1", "week")),
        ("--keep", str(2**63)),
    ],
)
def test_a_number_that_nothing_can_be_older_or_faster_than_is_refused(
    cli: Cli, option: str, value: str
) -> None:
    filled("r.sqlite").close()
    outcome = cli("db", "prune", option, value, "--dry-run", "--db", "r.sqlite", "--json")
    assert (outcome.code, outcome.data["error"]["code"]) == (2, "PD-C010")
    assert option in outcome.data["error"]["what"] and outcome.data["error"]["try"]
    assert option in outcome.err and "Traceback" not in outcome.err


@pytest.mark.parametrize(("option", "value"), [("--older-than", "100000"), ("--keep", str(2**63 - 1))])
def test_the_largest_number_keeps_all(cli: Cli, option: str, value: str) -> None:
    filled("r.sqlite").close()
    outcome = cli("db", "prune", option, value, "--db", "r.sqlite", "--json")
    assert outcome.data == {"timed": 0, "failed": 0, "left": 4, "dry_run": False}


def test_a_database_that_others_write_into_is_exported_whole(tmp_path: Path) -> None:
    """An export is no snapshot; what was there when it began is in it."""
    with Records(tmp_path / "r.sqlite") as records:
        records.candidates.put_all([candidate(n) for n in range(300)])
        lines = lines_of(records)
        head = [next(lines) for _ in range(5)]
        with Records(tmp_path / "r.sqlite") as other:
            other.candidates.put(candidate(999))
        assert len(head) + len(list(lines)) == 301
    connection = sqlite3.connect(tmp_path / "r.sqlite")
    assert connection.execute("SELECT count(*) FROM candidates").fetchone() == (301,)
