"""The race of a target's expert with PyTorch, on one program after another, and a command for named rows."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any

import numpy as np

from benchmarks.cliff.programs import Case
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.experts.cpu.analysis import facts_of
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement, RunRequest, Target
from perfdojo_sdk.plugins import Plugins, load_plugins


class Race:
    """One target and PyTorch, on one program after another."""

    def __init__(self, plugins: Plugins, target: Target, threads: int, rounds: int, compiles: bool) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch, self.threads, self.rounds, self.compiles = torch, threads, rounds, compiles
        self.target, self.rules = target.on(plugins.machine_figures(target)), plugins.rules(target)
        self.generator, self.runner = plugins.code_generator(target), plugins.runner(target)

    def row(self, made: Case) -> dict[str, Any]:
        """The row of one case: times in milliseconds, the ratio, or the problem."""
        row: dict[str, Any] = {"family": made.family, "program": made.text}
        program = made.program
        begin = time.perf_counter()
        planned = plan(program, self.rules, self.target)
        row["plan_s"] = time.perf_counter() - begin
        row["left"] = [f"{d.place}: {d.choice}: {d.reason}" for d in planned.decisions if "left" in d.choice]
        row["least_ms"] = 1e3 * sum(nest.seconds for nest in facts_of(program, self.target))
        artifacts = [self.compiled(game) for game in planned.games or (Trace(program),)]
        works = [artifact for artifact in artifacts if isinstance(artifact, Artifact)]
        if not works:
            return {**row, "problem": f"nothing compiles: {artifacts[0]}"}
        first = [(self.seconds(artifact), artifact) for artifact in works]
        _, fastest = min(first, key=lambda found: found[0])
        inputs = self._inputs(made)
        problem = self._difference(made, fastest, inputs)
        if problem:
            return {**row, "problem": problem}
        peers = self._peers(made, inputs)
        rounds = [
            (self.seconds(fastest), {n: self.peer_seconds(call) for n, call in peers.items()})
            for _ in range(self.rounds)
        ]
        row["ours_ms"] = median(ours for ours, _ in rounds) * 1e3
        for name in peers:
            row[f"{name}_ms"] = median(times[name] for _, times in rounds) * 1e3
        row["ratio"] = median(min(times.values()) / ours for ours, times in rounds)
        return row

    def compiled(self, game: Trace) -> Artifact | Failure:
        return self.runner.compile(self.generator.generate(game.program, "pd_cliff"))

    def seconds(self, artifact: Artifact, inputs: Mapping[str, np.ndarray[Any, Any]] | None = None) -> float:
        """The time of a call, warm; infinite if it does not run."""
        request = RunRequest(
            inputs=inputs, threads=self.threads, repeats=50, want_outputs=False, budget_s=0.2, cold=False
        )
        found = self.runner.run(artifact, request)
        return median(found.seconds) if isinstance(found, Measurement) else math.inf

    def _inputs(self, made: Case) -> dict[str, np.ndarray[Any, Any]]:
        rng = np.random.default_rng(1)
        found = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in made.inputs.items()}
        return {name: np.abs(array) if name in made.positive else array for name, array in found.items()}

    def _difference(self, made: Case, artifact: Artifact, inputs: Mapping[str, np.ndarray[Any, Any]]) -> str:
        """The problem with our result beside PyTorch's; "" where they agree to float32's accuracy."""
        found = self.runner.run(artifact, RunRequest(inputs=inputs, threads=self.threads))
        if isinstance(found, Failure) or found.outputs is None:
            return f"it does not run: {found}"
        wanted = self._call(made, inputs)().double().numpy()
        (got,) = found.outputs.values()
        scale = max(1.0, float(np.abs(wanted).max()))
        error = float(np.abs(got.astype(np.float64) - wanted).max()) / scale
        return "" if error < 1e-3 else f"it differs from PyTorch by {error:.2g} of the largest value"

    def _call(self, made: Case, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Callable[[], Any]:
        tensors = {name: self.torch.from_numpy(value) for name, value in inputs.items()}
        functional = self.torch.nn.functional
        # PyTorch may keep an operand's strides in its result; both sides give an array of rows.
        return lambda: made.function(functional, **tensors).contiguous()

    def _peers(self, made: Case, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Callable[[], Any]]:
        peers = {"eager": self._call(made, inputs)}
        if self.compiles:
            compiled = self.torch.compile(peers["eager"], dynamic=False)
            try:
                compiled()
                peers["compiled"] = compiled
            except Exception as error:
                print(f"torch.compile fails: {error}"[:200], file=sys.stderr)
        return peers

    def peer_seconds(self, call: Callable[[], Any]) -> float:
        times, end = list[float](), time.perf_counter() + 0.1
        with self.torch.no_grad():
            call()
            while not times or time.perf_counter() < end:
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
        return median(times)


def contest(
    description: str | None,
    names: Iterable[str],
    row_of: Callable[[Race, str], dict[str, Any]],
    text: Callable[[dict[str, Any]], str],
) -> int:
    """A command that races the rows of these names; its exit status.

    ``row_of`` makes a row, with a ``problem`` or a ``ratio`` among its entries; ``text`` prints it.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", default="best")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--compile", action="store_true", help="race torch.compile, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    try:
        plugins = load_plugins()
        target = plugins.require(options.target)
        race = Race(plugins, target, options.threads, options.rounds, options.compile)
        for name in names:
            if options.only in name:
                row = {"name": name, **row_of(race, name)}
                rows.append(row)
                words = row["problem"] if "problem" in row else text(row)
                print(f"{name:24} {words}", file=sys.stderr if options.json else sys.stdout, flush=True)
    except DojoError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if options.json:
        print(json.dumps(rows, indent=1))
    elif ratios:
        print(f"geometric mean {math.prod(ratios) ** (1 / len(ratios)):.2f} of {len(ratios)} rows")
    return 0


def beside_eager(row: dict[str, Any]) -> str:
    """The times of a row of :meth:`Race.row`, and its ratio."""
    return "{ours_ms:9.3f} ms {eager_ms:9.3f} ms {ratio:6.2f}".format(**row)
