"""Tuning from the outside: it stops anywhere, goes on from there, and never ends empty-handed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, Outcome, clear
from made_plugins import plugin
from snippets import DIALECT

from perfdojo_sdk.cli.tune import duration
from perfdojo_sdk.hookspecs.search import SearchStrategy
from perfdojo_sdk.hookspecs.types import Capabilities, Failure, Target
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.library import tuning
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import Search, SearchStatus, Session, TuneError, conditions, tune
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.store.candidates import CandidateStore
from perfdojo_sdk.store.database import Records
from perfdojo_sdk.testing.estimate import AnalyticGenerator, AnalyticMachine, AnalyticRunner

Cli = Callable[..., Outcome]

MACHINE = AnalyticMachine(DIALECT, launch=100)
CAPABILITIES = Capabilities(name="sheet", description="", suffixes=("u", "p", "v"), lanes={"f32": 16})
TARGET = Target("sheet", CAPABILITIES, DIALECT, "")


class Hopeless:
    """A player whose code fails after its first proposal."""

    def __init__(self, task: Any, state: Any) -> None:
        self.task, self.told = task, False

    def propose(self, count: int) -> list[Any]:
        if self.told:
            raise RuntimeError("out of ideas")
        return [tuning.Trace(self.task.root)]

    def observe(self, evaluations: Any) -> None:
        self.told = True

    def state(self) -> dict[str, Any]:
        return {}


def plugins(runner: Any = None) -> Plugins:
    made = plugin(
        "sheet",
        targets=lambda: [TARGET],
        code_generator=lambda target: AnalyticGenerator(),
        runner=lambda target: runner or AnalyticRunner(MACHINE),
        search_strategies=lambda: [SearchStrategy("sheet/hopeless", "Fails.", Hopeless)],
    )
    return load_plugins(extra=[made], targets=["sheet"])


def searching(
    kernel: Kernel,
    store: CandidateStore | None = None,
    session: Session | None = None,
    watch: Any = None,
    *,
    search: str = "annealing",
    evaluations: int = 40,
    runner: Any = None,
    seed: int = 0,
) -> Search:
    """A search on the machine on paper, which computes nothing that could be verified."""
    settings = Settings(threads=1, search=search, evaluations=evaluations, seed=seed)
    loaded = plugins(runner)
    context = BuildContext.of(loaded, loaded.target("sheet"), settings)
    return tune(context, kernel, Evaluator(conditions(context, kernel), store), session, watch)


@pytest.fixture
def kernel() -> Kernel:
    [found] = select("softmax[16,32]", load_plugins(targets=["sheet"]).operators, DIALECT)
    return found


@pytest.fixture
def store(tmp_path: Path) -> CandidateStore:
    return Records(tmp_path / "records.sqlite").candidates


def programs(store: CandidateStore) -> list[str]:
    return [candidate.program for candidate in store.of("softmax_16x32_f32", "sheet")]


class Stop:
    """Ctrl-C after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def round(self, kernel: Kernel, status: SearchStatus) -> None:
        self.rounds -= 1
        if self.rounds == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("search", ["sampling", "annealing", "evolution"])
def test_a_search_that_was_stopped_ends_as_if_it_had_not_been(
    search: str, kernel: Kernel, tmp_path: Path
) -> None:
    whole, parts = (Records(tmp_path / name).candidates for name in ("whole", "parts"))
    expected = searching(kernel, whole, search=search)
    session = Session(file=tmp_path / "state.json", resume=True)
    with pytest.raises(KeyboardInterrupt):
        searching(kernel, parts, session, Stop(3), search=search)
    assert len(programs(parts)) < len(programs(whole))
    found = searching(kernel, parts, session, search=search)
    assert found.resumed and found.evaluations == expected.evaluations == 40
    assert programs(parts) == programs(whole)
    assert found.champion and expected.champion and found.champion.seconds == expected.champion.seconds
    assert sum(found.tally.failures.values()) == sum(expected.tally.failures.values())


def test_a_larger_budget_goes_on_and_an_equal_one_is_done(
    kernel: Kernel, tmp_path: Path, store: CandidateStore
) -> None:
    session = Session(file=tmp_path / "state.json", resume=True)
    assert not searching(kernel, store, session, evaluations=16).resumed
    count = len(programs(store))
    assert searching(kernel, store, session, evaluations=16).evaluations == 16
    assert len(programs(store)) == count
    assert searching(kernel, store, session, evaluations=32).evaluations == 32
    assert len(programs(store)) > count


def test_a_weaker_search_keeps_what_an_earlier_one_has_found(kernel: Kernel, tmp_path: Path) -> None:
    session = Session(game=tmp_path / "game.json")
    best = searching(kernel, session=session, search="evolution", evaluations=60).champion
    kept = (tmp_path / "game.json").read_text(encoding="utf-8")
    weaker = searching(kernel, search="sampling", evaluations=8, seed=3).champion
    assert best and weaker and weaker.seconds > best.seconds
    again = searching(kernel, session=session, search="sampling", evaluations=8, seed=3)
    assert again.champion and again.champion.seconds == best.seconds and again.evaluations == 8
    assert (tmp_path / "game.json").read_text(encoding="utf-8") == kept
    for broken in ("{", kept.replace('"sheet"', '"other"'), kept.replace("max=", "+=")):
        (tmp_path / "game.json").write_text(broken, encoding="utf-8")
        again = searching(kernel, session=session, search="sampling", evaluations=8, seed=3)
        assert again.champion and again.champion.seconds == weaker.seconds


def test_a_second_search_measures_nothing_again(kernel: Kernel, store: CandidateStore) -> None:
    first = searching(kernel, store)
    again = searching(kernel, store)
    assert again.evaluations == again.tally.evaluations == 40
    # A program that seems to win has to run again; all others are known.
    assert again.tally.reused >= 40 - len(again.games)
    assert again.champion and first.champion and again.champion.game.moves == first.champion.game.moves


def test_time_ends_a_search(kernel: Kernel, tmp_path: Path) -> None:
    session = Session(seconds=1e-6, file=tmp_path / "state.json", resume=True)
    played = searching(kernel, None, session).evaluations
    assert 0 < played <= 8, "one round is always played"
    assert searching(kernel, None, session).evaluations == played, "and no more when time is up"


def test_another_search_is_not_resumed(kernel: Kernel, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    searching(kernel, None, Session(file=file), evaluations=8)
    with pytest.raises(TuneError) as refused:
        searching(kernel, None, Session(file=file, resume=True), evaluations=8, seed=1)
    assert refused.value.code == "PD-U002"
    for content in (
        "{",
        json.dumps({"schema": 1}),
        json.dumps({**json.loads(file.read_text()), "schema": 9}),
    ):
        file.write_text(content)
        with pytest.raises(TuneError) as damaged:
            searching(kernel, None, Session(file=file, resume=True), evaluations=8)
        assert damaged.value.code == "PD-U001"


def test_a_player_that_fails_ends_the_search_with_what_was_found(kernel: Kernel) -> None:
    found = searching(kernel, search="sheet/hopeless")
    assert found.notes == ["the search sheet/hopeless failed (RuntimeError: out of ideas)"]
    assert found.champion is not None and found.evaluations == 1


def test_a_device_that_is_gone_ends_the_search_with_what_was_found(kernel: Kernel) -> None:
    class Dying(AnalyticRunner):
        left = 5

        def run(self, artifact: Any, request: Any) -> Any:
            Dying.left -= 1
            return super().run(artifact, request) if Dying.left >= 0 else Failure("device", "fell off")

    found = searching(kernel, runner=Dying(MACHINE))
    assert "the device is gone: fell off" in found.notes[0] and found.champion is not None


def test_the_commonest_failure_is_told(kernel: Kernel) -> None:
    class Picky(AnalyticRunner):
        def compile(self, source: Any) -> Any:
            if ":v" in source.code:
                return Failure("compile", f"no vectors today\nin line {len(source.code)}")
            return super().compile(source)

    found = searching(kernel, search="sampling", evaluations=100, runner=Picky(MACHINE))
    assert found.tally.failures["compile"] >= 2
    assert tuning.commonest(found.tally)[0] == (
        "compile",
        "no vectors today",
        found.tally.failures["compile"],
    )


# -- through the command line ---------------------------------


@pytest.mark.parametrize(("words", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200)])
def test_durations(words: str, seconds: float) -> None:
    assert duration(words) == seconds


def test_tune_through_the_installed_command(cli: Cli, plugin_folder: Path, tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("perfdojo-sdk")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "perfdojo_sdk.cli"]
    folders = [plugin_folder, ROOT, ROOT / "tests" / "toy_target"]
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PERFDOJO_PLUGINS": "toy"}
    words = ["tune", "softmax[64,48]", "--target", "best", "--budget", "8", "--threads", "1"]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "8 evaluations" in done.stdout and "verified (exact, numeric, dependence)" in done.stdout
    assert "best" in done.stderr
    game = tmp_path / "build" / "library" / "toy" / "tuned" / "softmax_64x48_f32.json"
    assert game.exists() and cli("replay", str(game), plugins="toy").code == 0
    again = cli(*words, "--resume", "--json", plugins="toy").data
    assert again["verified"] and again["provenance"] == "measured" and again["seconds"] > 0
    assert again["search"]["evaluations"] == 8 and again["search"]["resumed"]
    build = ["build-library", "--target", "toy", "--kernels", "softmax[64,48]", "--threads", "1"]
    built = cli(*build, "--tune", "8", plugins="toy")
    assert built.code == 0 and "taken from the records" in built.err


def test_the_help_names_the_command_that_lists_the_searches(cli: Cli) -> None:
    said = " ".join(cli("tune", "--help").out.split())
    assert "`plugins show perfdojo_sdk` lists the SDK's searches" in said
    shown = cli("plugins", "show", "perfdojo_sdk", "--json").data["searches"]
    assert {"auto", "annealing", "perfllm"} <= set(shown)


def test_what_a_user_can_get_wrong(cli: Cli) -> None:
    clear(cli("tune", "softmax[4,4]", "--target", "toy", "--search", "nobody", plugins="toy"), 3, "PD-G007")
    clear(cli("tune", "layernorm", "--target", "toy", plugins="toy"), 1, "PD-C008")
    assert cli("tune", "softmax[4,4]", "--time", "soon", plugins="toy").code == 2
    assert cli("tune", "softmax[4,4]", "--budget", "0", plugins="toy").code == 2
    for search in ("auto", "evolution", "heuristic"):  # they would not look at it
        ignored = cli("tune", "softmax[4,4]", "--search", search, "--option", "hiden=3", plugins="toy")
        assert ignored.code == 2 and f"--search {search} takes no --option hiden=3" in ignored.err
    missing = cli("tune", "softmax[4,4]", "--agent", "no.safetensors", plugins="toy")
    assert missing.code == 2 and "no.safetensors" in missing.err and "does not exist" in missing.err
