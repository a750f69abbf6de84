"""Verification of a library's kernels: a candidate's verification, and all three legs for real."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import pytest
from paper_target import QUICK
from toy_target import perfdojo_toy

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Trace
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Failure,
    KernelSource,
    Measurement,
    Runner,
    RunRequest,
)
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.manifest import read_manifest
from perfdojo_sdk.library.verification import Subject, VerificationCache
from perfdojo_sdk.measure.toolchain import Compiled, find_toolchain
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.store.records import LegResult, Verification
from perfdojo_sdk.verify import references

#: The mean over two of three dimensions, taken off: a row is a third of everything.
CENTRED = """kernel centred(x) -> y
x f32 [40,3,50] heap
s f32 [3] heap
y f32 [40,3,50] heap

3 s[{0}] = 0
3 40 50 s[{0}] += x[{1},{0},{2}]
3 40 50 y[{1},{0},{2}] = x[{1},{0},{2}] - s[{0}] / 2000
"""


@dataclass
class Shapes:
    """A runner that keeps the shape of the first input of whatever runs."""

    runner: Runner
    seen: list[tuple[int, ...]]
    spoilt: bool = False
    """True if the first element of each result is wrong."""

    def device(self) -> str:
        return self.runner.device()

    def compile(self, source: KernelSource) -> Artifact | Failure:
        if self.spoilt:
            source = replace(source, code=source.code.replace("return 0;", "y[0] += 1.0f; return 0;"))
        return self.runner.compile(source)

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        self.seen.append(artifact.inputs[0].shape)
        return self.runner.run(artifact, request)


def asked_of_a_candidate(runner: Shapes) -> Verification:
    plugins = load_plugins(extra=[perfdojo_toy])
    rules, generator = plugins.rules(plugins.require("toy")), plugins.code_generator(plugins.require("toy"))
    game = Trace(parse(CENTRED, rules.dialect))
    artifact = runner.compile(generator.generate(game.program, "pd_centred"))
    assert isinstance(artifact, Artifact)
    return verification.quick(Subject(game, rules, artifact, runner, {}, 1, 0, generator))


def test_a_candidate_whose_rows_are_dear_is_compared_at_a_smaller_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def runner(spoilt: bool = False) -> Shapes:
        plugins = load_plugins(extra=[perfdojo_toy])
        return Shapes(plugins.runner(plugins.require("toy")), [], spoilt)

    own = runner()
    assert asked_of_a_candidate(own).passed
    assert own.seen == [(40, 3, 50)], "a cheap kernel is compared as it is"

    monkeypatch.setattr(references, "_FULL_INSTANCES", 500)
    monkeypatch.setattr(references, "_ROW_INSTANCES", 500)
    monkeypatch.setattr(verification, "QUICK_COMPARED", 500)
    small = runner()
    assert asked_of_a_candidate(small).passed
    [shape] = small.seen
    assert prod(shape) < 500 and min(shape) > 1

    refused = asked_of_a_candidate(runner(spoilt=True))
    assert not refused.passed and "y[0,0,0]" in refused.failure


def compared_with_the_kernel(
    runner: Shapes, spoilt: str = "", text: str = "", cache: VerificationCache | None = None
) -> LegResult:
    """The numeric leg of a kernel; ``spoilt``: the shape at which its compiled end is wrong."""
    plugins = load_plugins(extra=[perfdojo_toy])
    rules, generator = plugins.rules(plugins.require("toy")), plugins.code_generator(plugins.require("toy"))
    game = Trace(parse(text or CENTRED, rules.dialect))
    runner.spoilt = spoilt == "full"
    artifact = runner.compile(generator.generate(game.program, "pd_centred"))
    runner.spoilt = spoilt == "small"
    assert isinstance(artifact, Artifact)
    cache = cache or VerificationCache()
    return verification.numeric(Subject(game, rules, artifact, runner, {}, 1, 0, generator, cache))


def test_a_large_kernel_is_mostly_called_at_a_smaller_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    def runner() -> Shapes:
        plugins = load_plugins(extra=[perfdojo_toy])
        return Shapes(plugins.runner(plugins.require("toy")), [])

    whole = compared_with_the_kernel(runner())
    monkeypatch.setattr(verification, "LARGE", 5000)
    monkeypatch.setattr(verification, "SMALLER", 500)
    both = runner()
    found = compared_with_the_kernel(both)
    assert found.passed and found.figures["reduced_shape"] and not whole.figures["reduced_shape"]
    assert "which more calls can be made at; the first inputs at full size" in found.detail
    for figure in ("classes", "executions"):
        assert found.figures[figure] == whole.figures[figure]
    large = both.seen.count((40, 3, 50))
    assert 1 <= large <= 2 < len(both.seen) and min(map(prod, both.seen)) < 500
    for spoilt in ("full", "small"):
        refused = compared_with_the_kernel(runner(), spoilt)
        assert not refused.passed and "y[0,0,0]" in refused.detail
    monkeypatch.setattr(verification, "SHORT_GAME", -1)
    assert not compared_with_the_kernel(runner()).figures["reduced_shape"], "too long a game to play again"


def test_a_report_at_a_smaller_shape_is_kept_for_equal_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "LARGE", 5000)
    monkeypatch.setattr(verification, "SMALLER", 50)
    plugins = load_plugins(extra=[perfdojo_toy])
    cache, shapes = VerificationCache(), list[int]()
    for text in (CENTRED, CENTRED.replace("40", "48")):
        runner = Shapes(plugins.runner(plugins.require("toy")), [])
        assert compared_with_the_kernel(runner, text=text, cache=cache).passed
        shapes.append(sum(prod(shape) < 500 for shape in runner.seen))
    assert shapes[0] > 0 and shapes[1] == 0 and len(cache.shared.numeric) == 1


def test_games_that_are_alike_at_a_small_shape_are_compared_once() -> None:
    plugins = load_plugins(extra=[perfdojo_toy])
    rules, shared = plugins.rules(plugins.require("toy")), verification.SharedResults()

    def compared(text: str) -> int:
        before = len(shared.exact)
        assert verification.exact(Trace(parse(text, rules.dialect)), rules, 0, (), shared).passed
        return len(shared.exact) - before

    longer, wider = CENTRED.replace("40", "48000"), CENTRED.replace("50", "7000")
    assert [compared(text) for text in (CENTRED.replace("40", "40000"), longer, wider)] == [1, 0, 0]
    assert compared(longer.replace("2000", "1000")) == 1, "another number is another kernel"


def test_a_report_on_a_game_does_not_speak_for_a_spoiled_one() -> None:
    """Neither for one that is small enough as it is, nor for one with other ids in the same text."""
    plugins = load_plugins(extra=[perfdojo_toy])
    rules, shared = plugins.rules(plugins.require("toy")), verification.SharedResults()
    text = "kernel f(x) -> y\nx f32 [{0}] heap\ny f32 [{0}] heap\n\n{0} y[{{0}}] = exp(x[{{0}}]) + 1\n"

    def tiled(root: Program) -> Trace:
        game = Trace(root).play(rules, Move.of("split_scope", root.body[0].id, factor=2))
        assert verification.exact(game, rules, 0, (), shared).passed
        return game

    game = tiled(parse(text.format(8), rules.dialect))
    wrong = parse(game.program.text.replace("+ 1", "+ 2"), rules.dialect)
    spoiled = replace(game, steps=(replace(game.steps[0], after=wrong),))
    assert not verification.exact(spoiled, rules, 0, (), shared).passed
    root = parse(text.format(80000), rules.dialect)
    assert tiled(root) and len(shared.exact) == 1
    other = root.with_body(tuple(replace(node, id=f"{node.id}_other") for node in root.body))
    assert other.text == root.text and tiled(other) and len(shared.exact) == 2


def test_a_kernel_of_large_arrays_is_large_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_smaller() -> bool:
        plugins = load_plugins(extra=[perfdojo_toy])
        runner = Shapes(plugins.runner(plugins.require("toy")), [])
        return compared_with_the_kernel(runner).figures["reduced_shape"] is True

    monkeypatch.setattr(verification, "SMALLER", 500)
    elements = 2 * prod((40, 3, 50))
    monkeypatch.setattr(verification, "LARGE_ARGUMENTS", elements)
    assert not is_smaller()
    monkeypatch.setattr(verification, "LARGE_ARGUMENTS", elements - 1)
    assert is_smaller()


# -- the real thing --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of one kernel that went through everything for real."""
    folder = tmp_path_factory.mktemp("verified")
    plugins = load_plugins(extra=[perfdojo_toy])
    target = plugins.require("toy")
    result = build_library(plugins, target, select("softmax[9,33]", plugins.operators), folder, QUICK)
    assert result.manifest, result.failed
    return folder


def test_a_library_carries_all_three_legs(verified: Path) -> None:
    [kernel] = read_manifest(verified).kernels
    assert kernel.verification.passed and kernel.verification.failure == ""
    assert kernel.verification.exact.figures["models"] == 2
    assert kernel.verification.numeric.figures["elements"] >= 9 * 33
    assert 0 < kernel.verification.numeric.figures["worst_error_over_bound"] <= 1
    assert kernel.timing.final and kernel.timing.final.provenance == "measured"
    assert kernel.timing.final.median_s > 0 and kernel.roofline_fraction


def test_the_manifest_notes_contraction_and_toolchain(verified: Path) -> None:
    manifest = read_manifest(verified)
    assert not manifest.contraction and "-ffp-contract=off" in manifest.toolchain
    assert {"perfdojo_sdk", "perfdojo_toy"} <= manifest.plugins.keys()
    assert manifest.target == "toy" and manifest.settings["threads"] == 2


def test_the_header_declares_what_the_sources_define(verified: Path) -> None:
    """Compiled together: conflicting declarations are errors."""
    sources = {p.name: p.read_text() for p in verified.glob("src/*")}
    header = (verified / "include/perfdojo_toy.h").read_text()
    [unit] = [name for name in sources if name.endswith(".c")]
    sources[unit] = '#include "perfdojo_toy.h"\n' + sources[unit]
    compiled = find_toolchain().compile(
        {**sources, "perfdojo_toy.h": header}, ("-Wall", "-Wextra", "-Werror")
    )
    assert isinstance(compiled, Compiled), compiled


def test_a_game_that_would_take_too_long_to_compare_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the next one ships, or the initial program, which has no moves to compare."""
    plugins = load_plugins()
    rules = plugins.rules(plugins.target("x86_avx2"))
    start = Trace(parse("kernel f(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{0}] = x[{0}]\n"))
    game = Trace(start.root, (rules.step(start.root, Move.of("split_scope", "s0", factor=8)),))
    monkeypatch.setattr(verification, "MOST_EXACT_WORK", 3)
    found = verification.exact(game, rules, 0)
    assert not found.passed and "allow no small shape" in found.detail
    assert verification.exact(start, rules, 0).passed
    monkeypatch.undo()
    assert verification.exact(game, rules, 0).passed
