"""Ranking: which of several attempts wins, and how often the winner is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paper_target import QUICK, Paper, build, entry, judged, parallel_pass
from snippets import RULES

from perfdojo_sdk.core.laws import FILTER
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Legal, Move, Rules, Trace
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Failure,
    Measurement,
    RunRequest,
    Target,
)
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library import ranking, verification
from perfdojo_sdk.library.attempts import Attempt
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import SLOW_S
from perfdojo_sdk.library.ranking import (
    FINALISTS,
    LONG_GAME,
    PATIENCE,
    first_unbeaten,
    near_fastest,
    plainness,
    timed_again,
)
from perfdojo_sdk.library.tuning import BUDGET_S
from perfdojo_sdk.library.work import Roofline

GAME = Trace(parse("kernel copy(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = x[{0}]\n"))


def taking(*seconds: float) -> Attempt:
    measured = Measurement({}, seconds, "measured", "here", threads=1)
    return Attempt(GAME, artifact=Artifact("copy", (), (), "paper", b"", ""), measured=measured)


def test_who_is_slower_beyond_doubt_loses() -> None:
    slow, fast = taking(*[1.1] * 20), taking(*[1.0] * 20)
    assert first_unbeaten([slow, fast]) is fast


def test_the_earlier_of_two_that_are_level_wins() -> None:
    earlier, luckier = taking(*[1.0, 1.2] * 10), taking(*[1.05, 1.1] * 10)
    assert first_unbeaten([earlier, luckier]) is earlier
    assert first_unbeaten([luckier, earlier]) is luckier


def test_a_plainer_game_stays_in_front_unless_it_is_slower_by_much() -> None:
    tiled = GAME.play(RULES, Move.of("split_scope", "s0", factor=2))
    longer = replace(taking(1.0, 1.0, 1.0), trace=tiled)
    plain, slower, initial = taking(0.96, 1.04, 1.06), taking(0.96, 1.06, 1.08), taking(1.0)
    assert sorted([initial, longer], key=plainness) == [longer, initial]
    assert first_unbeaten([plain, longer]) is plain
    assert first_unbeaten([slower, longer]) is longer


def test_a_long_game_has_to_be_worth_its_proofs() -> None:
    split = GAME.play(RULES, Move.of("split_scope", "s0", factor=2))
    short = replace(taking(*[1.08] * 20), trace=split)
    long = replace(taking(*[1.0] * 20), trace=replace(split, steps=split.steps * LONG_GAME))
    assert first_unbeaten([short, long]) is long
    assert first_unbeaten([short, long], 1.1) is short
    assert first_unbeaten([short, long], 1.05) is long
    half = replace(long, trace=replace(split, steps=split.steps * (LONG_GAME // 2)))
    assert first_unbeaten([replace(half, measured=short.measured), long], 1.1) is long
    assert first_unbeaten([taking(*[1.08] * 20), long], 1.1) is long, "the initial program is no short game"


def test_games_that_a_long_one_may_be_worth_less_than_take_turns_with_it() -> None:
    split = GAME.play(RULES, Move.of("split_scope", "s0", factor=2))
    short = replace(taking(*[1.4] * 20), trace=split)
    long = replace(taking(*[1.0] * 20), trace=replace(split, steps=split.steps * LONG_GAME))
    assert near_fastest([short, long]) == ([long], [short])
    assert near_fastest([short, long], 1.5) == ([short, long], [])
    assert near_fastest([short, taking(*[1.0] * 20)], 1.5)[1] == [short], "no long game"
    assert near_fastest([]) == ([], [])


def test_rounds_are_compared_where_levels_change() -> None:
    """Both fall on two levels, and the earlier is slower by a tenth on each."""
    weather = [1.0] * 10 + [2.0] * 11
    earlier, faster = taking(*[1.1 * w for w in weather]), taking(*weather)
    assert first_unbeaten([earlier, faster]) is faster


def test_who_ran_fewer_rounds_is_compared_over_those() -> None:
    slow, fast = taking(3.0, 3.0), taking(*[1.0] * 50)
    assert first_unbeaten([slow, fast]) is fast


def test_what_did_not_run_never_wins() -> None:
    failed, fine = Attempt(GAME, reason=Failure("runtime")), taking(1.0)
    assert first_unbeaten([failed, fine]) is fine
    assert first_unbeaten([failed]) is None and first_unbeaten([]) is None


@pytest.mark.parametrize(
    ("times", "kept", "runs"),
    [([1.0], 1.0, 1), ([4.0, 1.0], 1.0, 2), ([5.0, 4.0, 6.0, 5.0], 4.0, PATIENCE)],
    ids=["quiet", "busy once", "busy"],
)
def test_what_was_faster_at_first_is_timed_again(times: list[float], kept: float, runs: int) -> None:
    left = iter(times)

    def time(artifact: Artifact) -> Measurement | Failure:
        return Measurement({}, (next(left),), "measured", "here", threads=1)

    timed = timed_again(taking(1.0), time)
    assert timed.measured is not None and timed.measured.median == kept
    assert len(times) - len(list(left)) == runs


def test_what_takes_long_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.5])
    monkeypatch.setattr(ranking, "perf_counter", lambda: next(clock))
    timed = timed_again(taking(1.0), lambda _: Measurement({}, (4.0,), "measured", "here", threads=1))
    assert timed.measured is not None and timed.measured.median == 4.0 and next(clock, None) is None


# -- in a build ------------------------------------------------------------------------------------


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    return judged(Paper(), monkeypatch)


def test_a_slow_initial_program_is_called_once_and_the_record_says_so(paper: Paper, tmp_path: Path) -> None:
    paper.slow = 10 * SLOW_S
    kernel = entry(build(paper, tmp_path))
    assert kernel.timing.initial.details["stopped"] and not kernel.timing.final.details.get("stopped")
    paper.expert = None
    kernel = entry(build(paper, tmp_path / "alone"))
    assert kernel.moves == () and not kernel.timing.final.details.get("stopped"), (
        "what is shipped is timed well"
    )


def test_only_games_close_to_the_fastest_are_timed_again(paper: Paper, tmp_path: Path) -> None:
    def two_games(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
        (threads,) = parallel_pass(root, rules, target)
        return threads, Trace(root).play(rules, Move.of("annotate_scope", "s1", suffix="u"))

    def timings(slow: float) -> int:
        paper.slow, paper.runs = slow, []
        build(paper, tmp_path / f"{slow}")
        return len(paper.runs)

    paper.expert = two_games
    assert timings(1.2e-3) == timings(2e-3) + 2, "the slow game, and the initial program"


class Changing(Paper):
    """A clock on which parallel scopes are fast at first, but slow when kernels run in turns."""

    def time_interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Any]:
        found = [self.run(artifact, request) for artifact in artifacts]
        slow = [3 if b":p" in artifact.content else 1 for artifact in artifacts]
        return [replace(f, seconds=tuple(k * s for s in f.seconds)) for f, k in zip(found, slow, strict=True)]


@pytest.mark.parametrize(("initial", "kept"), [(1.2e-3, True), (2e-3, False)], ids=["close", "far behind"])
def test_the_initial_program_takes_turns_with_what_hardly_beats_it(
    paper: Paper, tmp_path: Path, initial: float, kept: bool
) -> None:
    kernel = entry(build(Changing(slow=initial), tmp_path))
    assert (kernel.moves == ()) == kept
    assert ("the only game of the expert is slower" in " ".join(kernel.notes)) == kept


class Tiring(Paper):
    """A clock on which every run takes longer than the one before."""

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        found = super().run(artifact, request)
        return replace(found, seconds=tuple(len(self.runs) * s for s in found.seconds))


def test_an_initial_program_that_is_kept_is_as_fast_as_itself(paper: Paper, tmp_path: Path) -> None:
    kernel = entry(build(Tiring(slow=1e-4), tmp_path))
    assert kernel.moves == () and kernel.speed_up == 1


class Estimating(Paper):
    """Says of an initial program what a model thinks, which is too good."""

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        found = super().run(artifact, request)
        model = isinstance(found, Measurement) and b":p" not in artifact.content
        return replace(found, provenance="estimated" if model else "measured")


def test_an_estimate_wins_over_no_measurement(paper: Paper, tmp_path: Path) -> None:
    kernel = entry(build(Estimating(slow=1e-4), tmp_path))
    assert kernel.moves and kernel.timing.initial.provenance == "estimated"


def test_a_game_that_saves_products_is_bound_by_what_it_computes(paper: Paper) -> None:
    plugins = paper.plugins()
    target = plugins.target("paper")
    kernel, other = select("relu[4,8] add[2,3]", plugins.operators, target.dialect)
    roofline = Roofline(BuildContext.of(plugins, target, QUICK))
    (trace,) = parallel_pass(kernel.program, plugins.rules(target), target)
    roofline.bound(kernel, trace)
    legal = Legal(Kind.DECLARED_LAW, frozenset((FILTER,)))
    saves = replace(trace, steps=(replace(trace.steps[0], legal=legal, after=other.program),))
    roofline.bound(kernel, saves)
    assert paper.bounded[-2:] == [kernel.program, other.program]


class Lucky(Paper):
    """A clock on which each challenger of a search's champion is fast in a short run; long runs are true."""

    def __init__(self, known: Mapping[str, float], others: tuple[float, ...]) -> None:
        """``known``: programs that always take so long; ``others``: what all others take."""
        super().__init__()
        self.known = {text.encode(): seconds for text, seconds in known.items()}
        self.others, self.won = others, set[bytes]()

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        known = self.known.get(artifact.content)
        seconds = (known,) * len(self.others) if known else self.others
        seconds = seconds if request.repeats else ()
        return replace(super().run(artifact, request), seconds=seconds, provenance="measured", details={})

    def time_interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Any]:
        found = [self.run(artifact, request) for artifact in artifacts]
        if request.budget_s <= BUDGET_S:
            found[0] = replace(found[0], seconds=tuple(s * 0.95 for s in found[0].seconds))
            self.won |= {artifacts[0].content} if found[0].median < 0.99 * found[1].median else set()
        return found


@pytest.mark.parametrize(
    ("others", "kept"),
    [
        ((1.03e-3,), True),
        ((0.9e-3, 1.08e-3) * 10, True),  # 1 % faster in the mean, in random calls
        ((0.96e-3, 0.98e-3) * 10, False),
    ],
    ids=["slower", "not faster beyond doubt", "faster"],
)
def test_luck_in_a_search_does_not_throw_out_what_the_expert_plays(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[float, ...], kept: bool
) -> None:
    monkeypatch.setattr(verification, "quick", verification.verify)
    plugins = paper.plugins()
    target = plugins.target("paper")
    [kernel] = select("softmax[4,8]", plugins.operators, target.dialect)
    [expert] = parallel_pass(kernel.program, plugins.rules(target), target)
    lucky = Lucky({kernel.program.text: 2e-3, expert.program.text: 1e-3}, others)
    settings = replace(QUICK, search="evolution", evaluations=24, budget_s=1.0)
    found = entry(build(lucky, tmp_path, "softmax[4,8]", settings))
    assert len(lucky.won) > FINALISTS, "too little luck to show anything"
    experts = [m.transformation for m in found.moves] == ["annotate_scope"]
    assert experts == kept, "the expert's one move, or what a search found"


class Known(Paper):
    """A clock that knows how long each program takes, and has one time for all others."""

    def __init__(self, known: Mapping[str, float], others: float) -> None:
        super().__init__()
        self.known, self.others = {text.encode(): seconds for text, seconds in known.items()}, others

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        seconds = (self.known.get(artifact.content, self.others),) * 20 if request.repeats else ()
        return replace(super().run(artifact, request), seconds=seconds, provenance="measured", details={})

    def time_interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Any]:
        return [self.run(artifact, request) for artifact in artifacts]


SPLITS = ("s0, factor=2", "s1, factor=2", "s1, factor=4", "s3, factor=2")


@pytest.mark.parametrize(
    ("others", "moves", "said"),
    [
        (1.02e-3, 1, "a game that the search began with is kept: in turns, none that it found is faster"),
        (
            0.5e-3,
            None,
            "a game that the search found is kept: in turns, 2.00 times as fast as where it began",
        ),
    ],
    ids=["the first", "the best"],
)
def test_a_search_ends_on_the_faster_of_where_it_began_and_what_it_found(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: float, moves: int | None, said: str
) -> None:
    """The budget is too small for all of the expert's games, of which the last is the fastest."""
    monkeypatch.setattr(verification, "quick", verification.verify)
    plugins = paper.plugins()
    target = plugins.target("paper")
    [kernel] = select("softmax[4,8]", plugins.operators, target.dialect)
    rules = plugins.rules(target)

    def split(words: str) -> Trace:
        place, factor = words.split(", factor=")
        return Trace(kernel.program).play(rules, Move.of("split_scope", place, factor=int(factor)))

    slow = [split(words) for words in SPLITS]
    [fast] = parallel_pass(kernel.program, rules, target)
    games = (*slow, fast)
    known = {
        kernel.program.text: 2e-3,
        **{game.program.text: 1.9e-3 for game in slow},
        fast.program.text: 1e-3,
    }
    clock = Known(known, others)
    clock.expert = lambda root, rules, target: games
    evaluations = 3 if moves else 40
    settings = replace(QUICK, search="evolution", evaluations=evaluations, budget_s=1.0)
    found = entry(build(clock, tmp_path, "softmax[4,8]", settings))
    assert said in found.notes
    if moves:
        assert [m.transformation for m in found.moves] == ["annotate_scope"]
    assert found.timing.final.median_s == min(others, 1e-3)


def test_what_a_search_began_with_stays_in_front_of_what_is_as_fast() -> None:
    tiled = GAME.play(RULES, Move.of("split_scope", "s0", factor=2))
    began = replace(
        taking(0.99, 1.0, 1.01), trace=tiled.play(RULES, Move.of("swap_scopes", "s0.o")), began=True
    )
    plainer = replace(taking(1.0, 1.0, 1.0), trace=tiled)
    assert sorted([plainer, began], key=plainness) == [began, plainer]
    assert first_unbeaten(sorted([plainer, began], key=plainness)) is began
