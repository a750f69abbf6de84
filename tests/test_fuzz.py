"""Random walks over random programs: bounded and seeded here, for hours in the benchmarks.

After every move: the program is still one of the language, its text parses to itself, and leg 1
agrees. Leg 3 looks at every third move and at the end of each walk.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from snippets import DIALECT, RULES

from benchmarks import fuzz
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.hookspecs.types import KernelSource
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.search.neighbours import random_step
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.testing.wild_programs import wild_program
from perfdojo_sdk.verify.dependence import verify_dependence, verify_races
from perfdojo_sdk.verify.exact import verify_exact
from perfdojo_sdk.verify.reference_c import SYMBOL
from perfdojo_sdk.verify.references import LARGE_FLAGS

WALKS = 48
LENGTH = 9


@pytest.mark.parametrize("seed", range(WALKS))
def test_random_walk_keeps_the_meaning(seed: int) -> None:
    rng = Random(seed)
    trace = random_walk(rng, random_program(rng, rng.randint(2, 5)), RULES, LENGTH)
    for number, step in enumerate(trace.steps):
        where = f"seed {seed}, move {number}: {step.move.text}\n{step.before}\n{step.after}"
        assert not list(violations(step.after, DIALECT)), where
        assert not list(violations(step.after, DIALECT, step.before)), where
        assert parse(step.after.text, DIALECT) == step.after, where
        exact = verify_exact(step.before, step.after, step.legal.laws, DIALECT, seed=seed, models=1)
        assert exact.ok, f"{exact.problem}\n{where}"
        if number % 3 == 0:
            report = verify_dependence(
                step.before, step.after, RULES.relation(step), DIALECT, step.legal.kind, step.legal.laws
            )
            assert report.ok, f"{report.problem}\n{where}"
    end = trace.program
    assert verify_races(end, DIALECT).ok, end
    assert verify_exact(trace.root, end, trace.laws, DIALECT, seed=seed + 1).ok, f"seed {seed}\n{end}"


def test_programs_that_compilers_disagree_about_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block with one walk compares the walk's end and one program of each kind made for compilers."""
    target = next((name for name in load_plugins().targets if fuzz.game(name)[1] is not None), None)
    if target is None:
        pytest.skip("no target's kernels run here")
    asked: list[tuple[str, ...]] = []

    class Looks:
        def __init__(self, flags: tuple[str, ...]) -> None:
            asked.append(flags)

        def __call__(self, sources: list[KernelSource], seed: int) -> list[str]:
            asked.append(tuple(source.symbol for source in sources))
            return ["they differ" if k == 1 else "" for k in range(len(sources))]

    monkeypatch.setattr(fuzz, "CompilerComparison", Looks)
    job = fuzz.Job((7,), target, 2, numeric=False, compilers=True, optimised=False, rarest=())
    monkeypatch.setattr(fuzz, "gc", SimpleNamespace(isenabled=lambda: False, collect=lambda: 0))
    walk, failed = fuzz.run(job)
    flags = load_plugins().target(target).capabilities.compiler_flags
    assert asked == [flags, ("pd_fuzz0", "pd_fuzz1", "pd_fuzz2"), LARGE_FLAGS, (SYMBOL,)]
    assert walk["failure"] is None and walk["checks"]["compilers"] == 3
    assert failed["failure"]["root"] == wild_program(7).text
    fuzz.save_failure(tmp_path, failed)
    assert json.loads((tmp_path / "compilers_7.json").read_text())["problem"] == "they differ"


@pytest.mark.parametrize("name", GENERIC)
def test_each_transformation_finds_places_in_random_programs(name: str) -> None:
    """Otherwise the walks above would prove nothing about it."""
    played = 0
    for seed in range(240):
        rng = Random(seed)
        program = random_walk(rng, random_program(rng, 4), RULES, rng.randrange(5)).program
        played += random_step(rng, program, RULES, only=name, most=max(Kind)) is not None
        if played == 3:
            return
    pytest.fail(f"played {played} times")
