"""Random games for hours: a wrong move would be found here first.

    python benchmarks/fuzz.py --moves 1000000 --state build/fuzz [--processes 2] [--length 100]
                              [--targets x,y] [--no-numeric] [--compilers] [--json]

Random programs over the whole language, random walks over all moves of the core and of every loaded target in
turn. The transformation of a move is drawn evenly from those with a legal move. One move in four is instead
of a transformation that all walks so far have played least; if none of these is legal, of the one that this
walk has played least.

The exact leg checks each move; the other legs check the end of each walk and every hundredth move, the
numeric leg only if the target's kernels run on this machine. It compiles the ends of a block of walks
together: one block in eight as the target compiles its libraries, the others without optimisation, so that
faults of the generator are not mixed with those of a compiler.

With --compilers, gcc and clang compile the ends of walks with the target's flags, and for each end two more
programs that may reveal faults of compilers; their results and those of gcc without optimisation must agree
bit for bit. If there is one compiler only, it is compared with itself.

Each finished walk is a line in STATE/walks.jsonl: after Ctrl-C the same command resumes. A failure is shrunk
and written to STATE/failures/ as a saved game, ready to be moved to tests/fuzz_cases/, where the tests replay
it. A failed walk does not count; the next run repeats it with the code of that time.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, cycle
from pathlib import Path
from random import Random
from typing import Any, TextIO

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Kind, Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.compilers import CompilerComparison
from perfdojo_sdk.testing.fuzzing import FuzzFailure, FuzzReport, fuzz, shrunk, verify_numerically
from perfdojo_sdk.testing.numeric_leg import NumericLeg
from perfdojo_sdk.testing.wild_programs import tame_program, wild_program
from perfdojo_sdk.verify.reference_c import BOUNDED, reference
from perfdojo_sdk.verify.references import LARGE_FLAGS

CORE = "core"


#: Walks on one target whose ends are compiled together.
BLOCK = 4
#: The ends of one block in so many are compiled as for a library.
OPTIMISED = 8
#: One block in so many is for a target whose moves are expensive to judge.
DEAR = 5
#: Number of the transformations played least that are preferred.
RAREST = 4


@dataclass(frozen=True)
class Job:
    """A block of walks."""

    seeds: tuple[int, ...]
    target: str
    length: int
    numeric: bool
    compilers: bool
    optimised: bool
    rarest: tuple[str, ...]
    """Transformations that one move in four prefers."""


@lru_cache
def game(target_name: str) -> tuple[Rules, NumericLeg | None]:
    """The rules of a target's game, and the numeric leg if its kernels run natively on this machine. The core
    alone has no code generator, and a simulated chip would take most of the time."""
    if target_name == CORE:
        return Rules(CORE_DIALECT, GENERIC), None
    plugins = load_plugins()
    target = plugins.target(target_name)
    native = plugins.unavailable(target) is None and isinstance(plugins.runner(target), NativeRunner)
    return plugins.rules(target), NumericLeg(plugins, target) if native else None


def run(job: Job) -> list[dict[str, Any]]:
    """The walks of a block, each as a line of the record."""
    if gc.isenabled():
        # Garbage is collected only at the end of a block; objects that exist now are exempt, being in no
        # cycle.
        gc.disable()
        gc.freeze()
    rules, numeric = game(job.target)
    reports = [fuzz(seed, rules, job.length, job.rarest) for seed in job.seeds]
    if job.numeric and numeric is not None:
        verify_numerically(reports, lambda traces: numeric(traces, job.optimised))
    disagreed = compare_compilers(job, reports, numeric) if job.compilers and numeric is not None else []
    for report in reports:
        report.looks.clear()
        if report.failure is not None:
            report.failure = shrunk(report.failure, rules)
    gc.collect()
    return [as_line(job, report) for report in reports] + disagreed


def compare_compilers(job: Job, reports: Sequence[FuzzReport], looks: NumericLeg) -> list[dict[str, Any]]:
    """A line for each program of the block that compilers disagree about; counts those that were compared."""
    ends = [(report.seed, report.looks[-1].program) for report in reports if report.looks]
    made = [(seed, make(seed)) for seed in job.seeds for make in (wild_program, tame_program)]
    programs = [program for _, program in (*ends, *made)]
    sources = [looks.generator.generate(program, f"pd_fuzz{k}") for k, program in enumerate(programs)]
    found = CompilerComparison(looks.target.capabilities.compiler_flags)(sources, job.seeds[0])
    # Also the numeric leg's reference of the last program: references do not share a file.
    judged = reference(programs[-1], BOUNDED, {}, looks.target.dialect)
    found[-1] = found[-1] or CompilerComparison(LARGE_FLAGS)([judged], job.seeds[0])[0]
    reports[0].by_leg["compilers"] += len(programs)
    lines = []
    for (seed, program), problem in zip((*ends, *made), found, strict=True):
        if problem:
            case = {"target": job.target, "leg": "compilers", "problem": problem, "root": program.text}
            lines.append({"seed": seed, "target": job.target, "failure": case})
    return lines


def as_line(job: Job, report: FuzzReport) -> dict[str, Any]:
    failure = report.failure
    return {
        "seed": report.seed,
        "target": job.target,
        "rarest": job.rarest,
        "statements": report.statements,
        "moves": dict(report.moves),
        "kinds": dict(report.kinds),
        "checks": dict(report.by_leg),
        "failure": None if failure is None else as_case(job.target, failure),
    }


def as_case(target: str, failure: FuzzFailure) -> dict[str, Any]:
    """A saved game of one move, with the leg that refuses it; of a wrong kernel, also its game."""
    walk = failure.walk
    return {
        "target": target,
        "leg": failure.leg,
        "problem": failure.problem,
        "root": failure.before.text,
        "move": None if failure.move is None else failure.move.as_json(),
        "after": failure.after.text,
        "walk": walk and {"root": walk.root.text, "moves": [step.move.as_json() for step in walk.steps]},
    }


def save_failure(folder: Path, line: dict[str, Any]) -> None:
    """Save a failure as a case for the tests, and print it."""
    folder.mkdir(parents=True, exist_ok=True)
    case, seed = line["failure"], line["seed"]
    move = case.get("move")
    what = move["transformation"].replace("/", "_") if move else case["leg"]
    path = folder / f"{what}_{seed}.json"
    path.write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
    print(f"\nseed {seed}: {case['leg']}: {case['problem']}\n  saved: {path}", file=sys.stderr)


def turns() -> Iterator[str]:
    """Targets in turn; the core alone, whose language is widest, as often as all targets together."""
    plugins = load_plugins()
    # A veto generates code for every move that it judges; the numeric leg runs a compiler.
    dear = [name for name in plugins.targets if game(name)[0].vetoes or game(name)[1]]
    others = cycle([name for name in plugins.targets if name not in dear] or [CORE])
    dears = cycle(dear or [CORE])
    for block in count(1):
        yield next(dears) if block % DEAR == 0 else CORE if block % 2 else next(others)


def jobs(
    done: set[int],
    targets: Iterator[str],
    length: int,
    numeric: bool,
    compilers: bool,
    rarest: Callable[[], Sequence[str]],
) -> Iterator[Job]:
    for block, target in enumerate(targets):
        seeds = tuple(seed for seed in range(block * BLOCK, (block + 1) * BLOCK) if seed not in done)
        if seeds:
            optimised = Random(block).randrange(OPTIMISED) == 0
            yield Job(seeds, target, length, numeric, compilers, optimised, tuple(rarest()))


def earlier_walks(log: TextIO) -> list[dict[str, Any]]:
    """Lock the record for this process and read the walks in it."""
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"another run is writing to {log.name}: wait for it, or name another folder with --state")
    log.seek(0)
    text, end, torn = log.read().rpartition("\n")
    if torn:  # the writer was killed while writing; its walk is repeated
        log.truncate(len((text + end).encode()))
    return [json.loads(line) for line in text.splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--moves", type=int, default=10_000, help="in all, those of earlier runs included")
    parser.add_argument("--length", type=int, default=100, help="moves of one walk")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--state", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--targets", help="comma-separated; default: core and every loaded target")
    parser.add_argument("--no-numeric", action="store_true", help="leave leg 2 out")
    parser.add_argument("--compilers", action="store_true", help="compare what several compilers make of it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    targets = cycle(options.targets.split(",")) if options.targets else turns()
    options.state.mkdir(parents=True, exist_ok=True)
    with (
        (options.state / "walks.jsonl").open("a+", encoding="utf-8") as log,
        ProcessPoolExecutor(options.processes) as pool,
    ):
        total, done = Totals(), set()
        for line in earlier_walks(log):
            total.add(line, earlier=True)
            done |= {line["seed"]} if line["failure"] is None else set()
        start, before = time.monotonic(), total.moves_played
        numeric, compilers = not options.no_numeric, options.compilers
        waiting = jobs(done, targets, options.length, numeric, compilers, total.rarest)
        running: set[Future[list[dict[str, Any]]]] = set()
        try:
            while total.moves_played < options.moves:
                while len(running) < 2 * options.processes:
                    running.add(pool.submit(run, next(waiting)))
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    for line in future.result():
                        log.write(json.dumps(line) + "\n")
                        total.add(line)
                        if line["failure"] is not None:
                            save_failure(options.state / "failures", line)
                    log.flush()
                rate = (total.moves_played - before) / (time.monotonic() - start)
                progress = f"\r{total.moves_played} moves, {rate:.0f}/s, {total.failures} failures"
                print(progress, end="", file=sys.stderr)
        except KeyboardInterrupt:
            print("\ninterrupted; the same command goes on", file=sys.stderr)
            pool.shutdown(wait=False, cancel_futures=True)
            return 130
        for future in running:
            future.cancel()
    print(file=sys.stderr)
    print(json.dumps(total.as_json(), indent=1) if options.json else total.text())
    return 4 if total.failures else 0


class Totals:
    """The sums over all walks."""

    def __init__(self) -> None:
        self.moves: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.checks: Counter[str] = Counter()
        self.targets: Counter[str] = Counter()
        self.statements: list[int] = []
        self.failures = 0
        self.mended: set[int] = set()
        """Seeds of walks that failed in an earlier run."""

    @property
    def moves_played(self) -> int:
        return sum(self.moves.values())

    @property
    def by_transformation(self) -> dict[str, int]:
        """Moves played by transformation, most first; transformations that were never played count 0."""
        found = {name: self.moves[name] for name in {*GENERIC, *self.moves}}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def rarest(self) -> list[str]:
        """The transformations played least so far."""
        return sorted(GENERIC, key=lambda name: self.moves[name])[:RAREST]

    def add(self, line: dict[str, Any], earlier: bool = False) -> None:
        if line["failure"] is not None:
            self.failures += not earlier
            self.mended |= {line["seed"]} if earlier else set()
            return
        self.moves.update(line["moves"])
        self.kinds.update(line["kinds"])
        self.checks.update(line["checks"])
        self.targets[line["target"]] += 1
        self.statements.append(line["statements"])

    def as_json(self) -> dict[str, Any]:
        return {
            "walks": len(self.statements),
            "walks_by_target": dict(self.targets),
            "statements_median": statistics.median(self.statements) if self.statements else 0,
            "moves": self.moves_played,
            "moves_by_transformation": self.by_transformation,
            "moves_by_kind": {kind.label: self.kinds[kind.label] for kind in Kind},
            "checks_by_leg": dict(self.checks),
            "failures": self.failures,
            "failures_of_earlier_runs": len(self.mended),
        }

    def text(self) -> str:
        found = self.as_json()
        lines = [
            f"{found['walks']} programs, {found['statements_median']} statements in the median",
            "walks: " + ", ".join(f"{n} on {target}" for target, n in self.targets.items()),
            f"{found['moves']} moves, {found['failures']} failures ({len(self.mended)} in earlier runs)",
            "kinds: " + ", ".join(f"{n} {kind}" for kind, n in found["moves_by_kind"].items()),
            "checks: " + ", ".join(f"{n} {leg}" for leg, n in self.checks.most_common()),
        ]
        width = max((len(name) for name in self.moves), default=0)
        table = [f"  {name:{width}} {n:9}" for name, n in self.by_transformation.items()]
        return "\n".join([*lines, *table])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DojoError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
