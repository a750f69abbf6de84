"""Random games for hours: a wrong move would be found here first.

    python benchmarks/fuzz.py --moves 1000000 --state build/fuzz [--processes 2] [--length 200]
                              [--targets x,y] [--no-numeric] [--json]

Random programs over the whole language, random walks over all moves of the core and of every target that
this machine can run, in turn. Leg 1 after each move; legs 2 and 3 at the end of each walk and after every
hundredth move. Each finished walk is a line in STATE/walks.jsonl: stop it with Ctrl-C, run the same command
again, and it goes on. A failure is shrunk and written to STATE/failures/ as a saved game, ready to be moved
to tests/fuzz_cases/, where the tests replay it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.fuzzing import FuzzFailure, FuzzReport, Numeric, fuzz, shrunk
from perfdojo_sdk.verify.numeric import verify_numeric

CORE = "core"


@dataclass(frozen=True)
class Job:
    seed: int
    target: str
    length: int
    numeric: bool


@lru_cache
def game(target_name: str) -> tuple[Rules, Numeric | None]:
    """The rules of a target's game, and leg 2 for it; the core alone has no code generator."""
    if target_name == CORE:
        return Rules(CORE_DIALECT, GENERIC), None
    plugins = load_plugins()
    target = plugins.target(target_name)
    generator, runner = plugins.code_generator(target), plugins.runner(target)

    def numeric(trace: Trace) -> str:
        artifact = runner.compile(generator.generate(trace.program, "pd_fuzz"))
        if isinstance(artifact, Failure):
            return f"{artifact.reason}: {artifact.detail}"
        report = verify_numeric(
            trace.root,
            trace.program,
            artifact,
            runner,
            plugins.math_accuracy(target),
            target.dialect,
            nan_may_differ=trace.kind >= Kind.REASSOCIATES,
        )
        return report.problem

    return plugins.rules(target), numeric


def run(job: Job) -> tuple[Job, FuzzReport]:
    rules, numeric = game(job.target)
    report = fuzz(job.seed, rules, job.length, numeric if job.numeric else None)
    if report.failure is not None:
        report.failure = shrunk(report.failure, rules)
    return job, report


def as_line(job: Job, report: FuzzReport) -> dict[str, Any]:
    return {
        "seed": job.seed,
        "target": job.target,
        "statements": report.statements,
        "moves": dict(report.moves),
        "checks": dict(report.by_leg),
        "failure": None if report.failure is None else f"{report.failure.leg}: {report.failure.problem}",
    }


def save_failure(folder: Path, job: Job, failure: FuzzFailure) -> Path:
    """As a saved game of one move, with the leg that refuses it."""
    folder.mkdir(parents=True, exist_ok=True)
    case = {
        "target": job.target,
        "leg": failure.leg,
        "problem": failure.problem,
        "root": failure.before.text,
        "move": failure.move.as_json(),
        "after": failure.after.text,
    }
    path = folder / f"{failure.move.transformation.replace('/', '_')}_{job.seed}.json"
    path.write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
    return path


def usable_targets() -> list[str]:
    plugins = load_plugins()
    return [CORE, *(name for name in plugins.targets if plugins.unavailable(plugins.target(name)) is None)]


def jobs(done: set[int], targets: list[str], length: int, numeric: bool) -> Iterator[Job]:
    for seed in count():
        if seed not in done:
            yield Job(seed, targets[seed % len(targets)], length, numeric)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--moves", type=int, default=10_000, help="in all, those of earlier runs included")
    parser.add_argument("--length", type=int, default=200, help="moves of one walk")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--state", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--targets", help="comma-separated; default: core and every usable target")
    parser.add_argument("--no-numeric", action="store_true", help="leave leg 2 out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    targets = options.targets.split(",") if options.targets else usable_targets()
    options.state.mkdir(parents=True, exist_ok=True)
    record = options.state / "walks.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    total = Totals()
    for line in lines:
        total.add(line)
    start, before = time.monotonic(), total.moves_played
    with ProcessPoolExecutor(options.processes) as pool, record.open("a", encoding="utf-8") as log:
        waiting = jobs({line["seed"] for line in lines}, targets, options.length, not options.no_numeric)
        running: set[Future[tuple[Job, FuzzReport]]] = set()
        try:
            while total.moves_played < options.moves:
                while len(running) < 2 * options.processes:
                    running.add(pool.submit(run, next(waiting)))
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    job, report = future.result()
                    line = as_line(job, report)
                    log.write(json.dumps(line) + "\n")
                    log.flush()
                    total.add(line)
                    if report.failure is not None:
                        path = save_failure(options.state / "failures", job, report.failure)
                        print(f"\nseed {job.seed}: {line['failure']}\n  saved: {path}", file=sys.stderr)
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
        self.checks: Counter[str] = Counter()
        self.targets: Counter[str] = Counter()
        self.statements: list[int] = []
        self.failures = 0

    @property
    def moves_played(self) -> int:
        return sum(self.moves.values())

    def add(self, line: dict[str, Any]) -> None:
        self.moves.update(line["moves"])
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
            "checks_by_leg": dict(self.checks),
            "failures": self.failures,
        }

    def text(self) -> str:
        found = self.as_json()
        lines = [
            f"{found['walks']} walks ({', '.join(f'{n} on {t}' for t, n in self.targets.items())})",
            f"programs: {found['statements_median']} statements in the median",
            f"{found['moves']} moves, {found['failures']} failures",
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
