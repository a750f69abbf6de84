"""The node tests of the ONNX standard, on the interpreter or on the kernels of a target.

    python benchmarks/onnx_tests.py --device INTERPRETER [--state build/onnx_tests] [--only NAME] [--again]
        [--expanded] [--initialisers] [--legs] [--part 0.1 --seed 0] [--reasons] [--json]

Each test ends as *passed*, *refused* with the class of its reason, *wrong* (another result than the
standard's), *nearer* (each element that differs does so by at most four roundings of the largest, and is
nearer to what the graph gives in doubles than the standard's is: a rounding of the standard's reference), or
*crashed* (any other exception, or out of time). ``--initialisers`` hands inputs on which shapes depend in as
constants of the model; by default they come at run time. ``--part`` takes a seeded part. ``--legs``: the
kernels of a target are those of its expert's longest games, and pass the three legs of verification before
they run; one that does not pass counts as crashed.
Kernels of 50 tests share a compilation. Results are kept in the folder of ``--state``; after an interruption
the same command goes on, and ``--again`` starts over. The exit code is 4 if a result is wrong or crashed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from perfdojo_sdk.core.domains import FLOAT64
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.frontends.onnx.lowering import Lowered, Unsupported
from perfdojo_sdk.frontends.onnx.prepared import Prepared
from perfdojo_sdk.graph.graph import Array, Graph
from perfdojo_sdk.graph.refusals import Refused
from perfdojo_sdk.graph.running import Execute, interpreted, run_graph
from perfdojo_sdk.hookspecs.types import KernelSource
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.verification import SharedResults, VerificationCache, verify
from perfdojo_sdk.models.kernels import CompiledKernels, symbol_of
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.store.records import Verification

PASSED, REFUSED, NEARER, WRONG, CRASHED = "passed", "refused", "nearer", "wrong", "crashed"
OUTCOMES = (PASSED, REFUSED, NEARER, WRONG, CRASHED)
#: Binary digits of floats, the leading one not counted.
_DIGITS = {"float32": 23, "float16": 10, "bfloat16": 7}
#: Tests whose kernels are compiled together.
BATCH = 50
#: Seconds for one test; and where its kernels are verified.
LIMIT_S, LIMIT_WITH_LEGS_S = 60, 600


@dataclass(frozen=True)
class Result:
    """The outcome of one test."""

    name: str
    outcome: str
    reason: str = ""
    """The class of a refusal."""
    detail: str = ""
    operators: tuple[str, ...] = ()
    kernels: int = 0
    """Compiled or interpreted kernels that ran."""
    fates: dict[str, int] = field(default_factory=dict)
    """Nodes that were compiled, moved, folded and unused."""
    seconds: float = 0.0


def tests(expanded: bool = False) -> list[Any]:
    """The standard's tests of nodes; those of expanded functions instead, if asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, while the tests compute what they expect
        found = load_model_tests(kind="node")
    return [test for test in found if ("_expanded" in test.name) == expanded]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


class Case:
    """A test on its way to a result."""

    def __init__(self, test: Any, initialisers: bool) -> None:
        self.test, self._initialisers = test, initialisers
        self.operators = tuple(sorted({node.op_type for node in test.model.graph.node}))
        self.runs: list[tuple[Lowered, dict[str, Array], list[Any]]] = []

    def lower(self) -> None:
        """The graph of each set of inputs, with what is expected of it."""
        prepared = Prepared(self.test.model)
        for inputs, expected in self.test.data_sets:
            given = [plain(each) for each in inputs]
            arrays = prepared.arrays(given)
            lowered = prepared.lowered(arrays, prepared.lengths(given))
            if self._initialisers and prepared.shape_like:
                constant = _with_constants(self.test.model, {n: arrays[n] for n in prepared.shape_like})
                fixed = Prepared(constant)
                names = [value.name for value in self.test.model.graph.input]
                rest = [g for name, g in zip(names, given, strict=False) if name not in prepared.shape_like]
                arrays = fixed.arrays(rest)
                lowered = fixed.lowered(arrays, fixed.lengths(rest))
            self.runs.append((lowered, arrays, [plain(each) for each in expected]))

    def judge(self, execute: Execute) -> None:
        """Run all sets; AssertionError for another result than the standard's."""
        for lowered, arrays, expected in self.runs:
            found = lowered.outputs(run_graph(graph_of(lowered), arrays, execute))
            if form(found) != form(expected):
                raise AssertionError(f"the outputs are {form(found)}, not {form(expected)}")
            Runner.assert_similar_outputs(flat(expected), flat(found), self.test.rtol, self.test.atol)

    def nearer(self, execute: Execute) -> bool:
        """True if each element that differs from the standard's does so by a few roundings of the largest
        element, and is nearer to the result in doubles."""
        for lowered, arrays, expected in self.runs:
            graph = graph_of(lowered)
            found = run_graph(graph, arrays, execute)
            if any(not isinstance(form, str) for form in lowered.forms.values()):
                return False
            exact = run_graph(graph, arrays, lambda program, inputs: interpreted(program, inputs, FLOAT64))
            for one, other, truth in zip(found, expected, exact, strict=True):
                if one.shape != other.shape or one.dtype != other.dtype or one.dtype.kind in "biu":
                    return False
                ours, theirs, right = (each.astype(np.float64) for each in (one, other, truth))
                apart = ~np.isclose(ours, theirs, self.test.rtol, self.test.atol, equal_nan=True)
                finite = np.abs(theirs[np.isfinite(theirs)])
                noise = 4 * 2.0 ** -_DIGITS.get(one.dtype.name, 53) * np.max(finite, initial=0.0)
                if not (np.abs(ours - theirs) <= noise)[apart].all():
                    return False
                if not (np.abs(ours - right) < np.abs(theirs - right))[apart].all():
                    return False
        return True

    @property
    def kernels(self) -> int:
        return sum(len(graph_of(lowered).nodes) for lowered, _, _ in self.runs)

    @property
    def fates(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for lowered, _, _ in self.runs:
            found.update({fate.value: count for fate, count in lowered.fates.items()})
        return dict(found)

    @property
    def programs(self) -> list[Program]:
        return [program for lowered, _, _ in self.runs for program in graph_of(lowered).programs]


def form(outputs: Sequence[Any]) -> list[int | None]:
    """The lengths of sequences among the outputs, -1 for an array, None for an optional without a value."""
    return [None if o is None else len(o) if isinstance(o, list) else -1 for o in outputs]


def flat(outputs: Sequence[Any]) -> list[Array]:
    """All arrays of the outputs."""
    return [a for o in outputs if o is not None for a in (o if isinstance(o, list) else [o])]


def graph_of(lowered: Lowered) -> Graph:
    assert lowered.graph is not None, "a model with refusals is not prepared"
    return lowered.graph


def _with_constants(model: Any, values: dict[str, Array]) -> Any:
    """The model with some inputs as initialisers."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    kept = [value for value in changed.graph.input if value.name not in values]
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    changed.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in values.items())
    return changed


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """TimeoutError after so many seconds."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not finished after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def guarded(case: Case, work: Any, seconds: int = LIMIT_S) -> Result | None:
    """The result if ``work`` ends one; None if the test goes on."""
    try:
        with warnings.catch_warnings(), time_limit(seconds):
            warnings.simplefilter("ignore")
            work()
    except Unsupported as refused:
        first = refused.refusals[0]
        return Result(case.test.name, REFUSED, first.reason.name, first.text, case.operators)
    except Refused as refused:
        return Result(case.test.name, REFUSED, refused.reason.name, refused.what, case.operators)
    except AssertionError as differs:
        said = " ".join(str(differs).split())[:400]
        return Result(case.test.name, WRONG, "", said, case.operators)
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        return Result(case.test.name, CRASHED, "", said, case.operators)
    return None


def results(found: Sequence[Any], execute: Execute, initialisers: bool) -> Iterator[Result]:
    """The results of a batch of tests, whose kernels share a compilation."""
    cases = [Case(test, initialisers) for test in found]
    limit = LIMIT_WITH_LEGS_S if isinstance(execute, VerifiedKernels) else LIMIT_S
    going = []
    for case in cases:
        ended = guarded(case, case.lower)
        if ended:
            yield ended
        elif not isinstance(execute, CompiledKernels):
            going.append(case)
        else:
            programs = case.programs
            ended = guarded(case, lambda programs=programs: [execute.source(p) for p in programs], limit)
            if ended:
                yield ended
            else:
                going.append(case)
    if isinstance(execute, CompiledKernels) and going:
        together = [program for case in going for program in case.programs]
        execute.prepare(list({p.text: p for p in together}.values()))
    for case in going:
        begin = time.perf_counter()
        ended = guarded(case, lambda case=case: case.judge(execute), limit)
        if ended and ended.outcome == WRONG and case.nearer(execute):
            ended = replace(ended, outcome=NEARER)
        seconds = round(time.perf_counter() - begin, 3)
        passed = Result(case.test.name, PASSED, "", "", case.operators, case.kernels, seconds=seconds)
        yield replace(ended or passed, fates=case.fates)


def executor(device: str, legs: bool = False) -> Execute:
    if device == "INTERPRETER":
        return interpreted
    if legs:
        return verified_kernels(device)
    return CompiledKernels.of(load_plugins(), device, forks=True)


class VerifiedKernels(CompiledKernels):
    """The compiled ends of the expert's longest games, each of which passes the three legs before it runs."""

    def __init__(self, context: BuildContext) -> None:
        super().__init__(context.generator, context.runner)
        self._context, self._shared = context, SharedResults()
        self._games: dict[str, Trace] = {}
        self.verified: dict[str, Verification] = {}
        """By the text of a program."""

    def game(self, program: Program) -> Trace:
        if program.text not in self._games:
            task = self._context.task(Kernel(symbol_of(program).removeprefix("pd_"), program.name, program))
            games = task.expert(task.root, task.rules, task.target) if task.expert else ()
            self._games[program.text] = max(games, key=lambda game: len(game.steps), default=Trace(program))
        return self._games[program.text]

    def code(self, program: Program, symbol: str) -> KernelSource:
        return super().code(self.game(program).program, symbol)

    def __call__(self, program: Program, inputs: Sequence[Array]) -> list[Array]:
        if program.text not in self.verified:
            subject = self._context.subject(
                self.game(program), self.artifact(program), VerificationCache(shared=self._shared)
            )
            self.verified[program.text] = verify(subject)
        found = self.verified[program.text]
        if not found.passed:
            raise RuntimeError(f"kernel {program.name} does not pass: {found.failure}")
        return super().__call__(program, inputs)


def verified_kernels(device: str) -> VerifiedKernels:
    """For a target that runs here; its expert plans for one thread, whose figures are those of the target."""
    plugins = load_plugins(targets=[device])
    settings = Settings(threads=1, budget_s=0.1, repeats=20)
    return VerifiedKernels(BuildContext.of(plugins, plugins.target(device), settings))


class State:
    """Results on disk, one a line."""

    def __init__(self, folder: Path, name: str, again: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        if again:
            self.path.unlink(missing_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.results = {r.name: r for r in (Result(**json.loads(line)) for line in lines)}

    def add(self, result: Result) -> None:
        self.results[result.name] = result
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def report(found: Sequence[Result], reasons: bool) -> str:
    """Counts by outcome and reason; every wrong or crashed test by name."""
    counts = Counter(r.outcome for r in found)
    lines = [f"{len(found)} tests: " + ", ".join(f"{counts[o]} {o}" for o in OUTCOMES)]
    passing: dict[str, int] = defaultdict(int)
    others: dict[str, int] = defaultdict(int)
    for result in found:
        for operator in result.operators if len(result.operators) == 1 else ():
            (passing if result.outcome == PASSED else others)[operator] += 1
    whole = sorted(set(passing) - set(others))
    lines.append(f"{len(whole)} operators pass all of their tests, {len(set(passing) & set(others))} some")
    fates = sum((Counter(r.fates) for r in found), Counter[str]())
    lines.append(f"nodes: {', '.join(f'{count} {fate}' for fate, count in sorted(fates.items()))}")
    for reason, count in Counter(r.reason for r in found if r.outcome == REFUSED).most_common():
        lines.append(f"  refused, {reason}: {count}")
        if reasons:
            details = Counter(r.detail for r in found if r.reason == reason and r.outcome == REFUSED)
            lines += [f"    {number} {text}" for text, number in details.most_common(20)]
    lines += [f"  {r.outcome}: {r.name}: {r.detail}" for r in found if r.outcome in (NEARER, WRONG, CRASHED)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="INTERPRETER", help="INTERPRETER, or a target")
    parser.add_argument("--state", type=Path, default=Path("build/onnx_tests"))
    parser.add_argument("--only", default="", help="tests whose name holds this")
    parser.add_argument("--again", action="store_true", help="start over")
    parser.add_argument("--expanded", action="store_true", help="the tests of expanded functions")
    parser.add_argument("--initialisers", action="store_true", help="shape-like inputs as constants")
    parser.add_argument("--legs", action="store_true", help="verify each kernel before it runs")
    parser.add_argument("--part", type=float, default=1.0, help="a random part of the tests")
    parser.add_argument("--seed", type=int, default=0, help="chooses the part")
    parser.add_argument("--reasons", action="store_true", help="list what was refused")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    known = [test for test in tests(asked.expanded) if asked.only in test.name]
    if asked.part < 1.0:
        known = random.Random(asked.seed).sample(known, max(1, round(asked.part * len(known))))
    options = ("-expanded" if asked.expanded else "") + ("-initialisers" if asked.initialisers else "")
    options += "-legs" if asked.legs else ""
    state = State(asked.state, asked.device + options, asked.again)
    todo = [test for test in known if test.name not in state.results]
    execute = executor(asked.device, asked.legs)
    np.seterr(all="ignore")
    for first in range(0, len(todo), BATCH):
        for result in results(todo[first : first + BATCH], execute, asked.initialisers):
            state.add(result)
        print(f"{min(first + BATCH, len(todo))}/{len(todo)}", file=sys.stderr)
    found = [state.results[test.name] for test in known]
    print(json.dumps([asdict(r) for r in found]) if asked.json else report(found, asked.reasons))
    return 4 if any(r.outcome in (WRONG, CRASHED) for r in found) else 0


if __name__ == "__main__":
    sys.exit(main())
