"""Random games for hours: a wrong move would be found here first.

    python benchmarks/fuzz.py --moves 1000000 --state build/fuzz [--processes 2] [--length 100]
                              [--targets x,y] [--no-numeric] [--json]

Random programs over the whole language, random walks over all moves of the core and of every loaded target
in turn. A move is of a transformation drawn evenly from those that have a legal one; one move in four is of
those that all walks so far played least, where one of these can be played, else of that which this walk has
played least.

Leg 1 after each move; legs 2 and 3 at the end of each walk and after every hundredth move; leg 2 where the
target's kernels run on this machine. It compiles the ends of a block of walks together: one block in eight
as the target compiles its libraries, the others without optimising, which shows what was emitted and not
what a compiler makes of it.

Each finished walk is a line in STATE/walks.jsonl: stop it with Ctrl-C, run the same command again, and it
goes on. A failure is shrunk and written to STATE/failures/ as a saved game, ready to be moved to
tests/fuzz_cases/, where the tests replay it.
"""

from __future__ import annotations

import argparse
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
from typing import Any

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.fuzzing import FuzzFailure, FuzzReport, fuzz, look_numerically, shrunk
from perfdojo_sdk.testing.looks import NumericLooks

CORE = "core"


#: Walks on one target whose ends are compiled together.
BLOCK = 4
#: One block in so many has its ends compiled as for a library.
OPTIMISED = 8
#: Every so many blocks, a target that asks more than the language's questions about a move, which is dear.
DEAR = 10
#: How many of the transformations played least are preferred.
RAREST = 4


@dataclass(frozen=True)
class Job:
    """A block of walks."""

    seeds: tuple[int, ...]
    target: str
    length: int
    numeric: bool
    optimised: bool
    rarest: tuple[str, ...]
    """Transformations to prefer now and then."""


@lru_cache
def game(target_name: str) -> tuple[Rules, NumericLooks | None]:
    """The rules of a target's game, and leg 2 for it: where kernels run on this machine itself. The core
    alone has no code generator, and a simulated chip would take most of the time."""
    if target_name == CORE:
        return Rules(CORE_DIALECT, GENERIC), None
    plugins = load_plugins()
    target = plugins.target(target_name)
    native = plugins.unavailable(target) is None and isinstance(plugins.runner(target), NativeRunner)
    return plugins.rules(target), NumericLooks(plugins, target) if native else None


def run(job: Job) -> tuple[Job, list[FuzzReport]]:
    rules, numeric = game(job.target)
    reports = [fuzz(seed, rules, job.length, job.rarest) for seed in job.seeds]
    if job.numeric and numeric is not None:
        look_numerically(reports, lambda traces: numeric(traces, job.optimised))
    for report in reports:
        report.looks.clear()
        if report.failure is not None:
            report.failure = shrunk(report.failure, rules)
    return job, reports


def as_line(job: Job, report: FuzzReport) -> dict[str, Any]:
    return {
        "seed": report.seed,
        "target": job.target,
        "rarest": job.rarest,
        "statements": report.statements,
        "moves": dict(report.moves),
        "kinds": dict(report.kinds),
        "checks": dict(report.by_leg),
        "failure": None if report.failure is None else f"{report.failure.leg}: {report.failure.problem}",
    }


def save_failure(folder: Path, target: str, seed: int, failure: FuzzFailure) -> Path:
    """As a saved game of one move, with the leg that refuses it."""
    folder.mkdir(parents=True, exist_ok=True)
    case = {
        "target": target,
        "leg": failure.leg,
        "problem": failure.problem,
        "root": failure.before.text,
        "move": failure.move.as_json(),
        "after": failure.after.text,
    }
    path = folder / f"{failure.move.transformation.replace('/', '_')}_{seed}.json"
    path.write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
    return path


def turns() -> Iterator[str]:
    """Targets in turn; the core alone, whose language is widest, as often as all targets together."""
    plugins = load_plugins()
    dear = [name for name in plugins.targets if game(name)[0].vetoes]
    others = cycle([name for name in plugins.targets if name not in dear] or [CORE])
    dears = cycle(dear or [CORE])
    for block in count(1):
        yield next(dears) if block % DEAR == 0 else CORE if block % 2 else next(others)


def jobs(
    done: set[int], targets: Iterator[str], length: int, numeric: bool, rarest: Callable[[], Sequence[str]]
) -> Iterator[Job]:
    for block, target in enumerate(targets):
        seeds = tuple(seed for seed in range(block * BLOCK, (block + 1) * BLOCK) if seed not in done)
        if seeds:
            optimised = Random(block).randrange(OPTIMISED) == 0
            yield Job(seeds, target, length, numeric, optimised, tuple(rarest()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--moves", type=int, default=10_000, help="in all, those of earlier runs included")
    parser.add_argument("--length", type=int, default=100, help="moves of one walk")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--state", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--targets", help="comma-separated; default: core and every loaded target")
    parser.add_argument("--no-numeric", action="store_true", help="leave leg 2 out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    targets = cycle(options.targets.split(",")) if options.targets else turns()
    options.state.mkdir(parents=True, exist_ok=True)
    record = options.state / "walks.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    total = Totals()
    for line in lines:
        total.add(line)
    start, before = time.monotonic(), total.moves_played
    with ProcessPoolExecutor(options.processes) as pool, record.open("a", encoding="utf-8") as log:
        done = {line["seed"] for line in lines}
        waiting = jobs(done, targets, options.length, not options.no_numeric, total.rarest)
        running: set[Future[tuple[Job, list[FuzzReport]]]] = set()
        try:
            while total.moves_played < options.moves:
                while len(running) < 2 * options.processes:
                    running.add(pool.submit(run, next(waiting)))
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    job, reports = future.result()
                    for report in reports:
                        line = as_line(job, report)
                        log.write(json.dumps(line) + "\n")
                        total.add(line)
                        if report.failure is not None:
                            folder = options.state / "failures"
                            path = save_failure(folder, job.target, report.seed, report.failure)
                            told = f"\nseed {report.seed}: {line['failure']}\n  saved: {path}"
                            print(told, file=sys.stderr)
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

    @property
    def moves_played(self) -> int:
        return sum(self.moves.values())

    def rarest(self) -> list[str]:
        """The transformations played least so far."""
        return sorted(GENERIC, key=lambda name: self.moves[name])[:RAREST]

    def add(self, line: dict[str, Any]) -> None:
        self.moves.update(line["moves"])
        self.kinds.update(line["kinds"])
        self.checks.update(line["checks"])
        self.targets[line["target"]] += 1
        self.statements.append(line["statements"])
        self.failures += line["failure"] is not None

    def as_json(self) -> dict[str, Any]:
        return {
            "walks": len(self.statements),
            "walks_by_target": dict(self.targets),
            "statements_median": statistics.median(self.statements) if self.statements else 0,
            "moves": self.moves_played,
            "moves_by_transformation": dict(self.moves.most_common()),
            "moves_by_kind": dict(self.kinds.most_common()),
            "checks_by_leg": dict(self.checks),
            "failures": self.failures,
        }

    def text(self) -> str:
        found = self.as_json()
        lines = [
            f"{found['walks']} programs, {found['statements_median']} statements in the median",
            "walks: " + ", ".join(f"{n} on {target}" for target, n in self.targets.items()),
            f"{found['moves']} moves, {found['failures']} failures",
            "kinds: " + ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common()),
            "checks: " + ", ".join(f"{n} {leg}" for leg, n in self.checks.most_common()),
        ]
        width = max((len(name) for name in self.moves), default=0)
        return "\n".join([*lines, *(f"  {name:{width}} {n:9}" for name, n in self.moves.most_common())])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DojoError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
