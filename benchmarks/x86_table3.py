"""The sixteen operators of Table 3: our library beside six other systems, in one run.

    python benchmarks/x86_table3.py [--kernels add,matmul] [--threads 1,2] [--library DIR] [--json FILE]

Each system runs in a process of its own, pinned, on the same inputs; they take turns, so that a busy
machine slows all of them. Every result is compared with float64, before the race and after each turn;
a wrong system is reported and left out. Each system uses the fastest of its variants (layout, algorithm,
memory for the result). Weights must not be prepared beforehand: they are inputs. Layouts
are free: a peer may have its images channels-last before and after.

Needs the extra `bench` (and a C++ compiler with Python's headers, for torch.compile). Without all six
peers there are times and no summary figure. `--peers` also takes TVM (a search by PERFDOJO_TVM_TRIALS), which
has a column and no part in the ratios. Times are measured; the roofline is estimated from the
bandwidths and the arithmetic peak that a probe measured on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from table3 import report
from table3.library import build, selection

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.hookspecs.types import MachineFigures
from perfdojo_sdk.measure.machine import machine
from perfdojo_sdk.measure.roofline import bound
from perfdojo_sdk.peers.operators import OPERATORS, Operator, input_sets, is_cold
from perfdojo_sdk.peers.processes import ALLOCATOR, contenders, missing
from perfdojo_sdk.peers.race import Entry, race
from perfdojo_sdk.peers.systems import ALL, OURS, PEERS
from perfdojo_sdk.plugins import load_plugins


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(
    arguments: argparse.Namespace, operators: Sequence[Operator], peers: Sequence[str], run: report.Run
) -> None:
    """Fill ``run`` row by row; save after each."""
    plugins = load_plugins()
    target = plugins.require("best")
    cache = machine().last_cache_bytes
    probes = [plugins.machine_figures(target)]
    for threads in arguments.threads:
        probes.append(plugins.machine_figures(target, refresh=True))
        library = arguments.library or ""
        if not library and not arguments.peers_only:
            folder = Path(f"build/table3/{target.name}-{threads}")
            say(f"building the library for {threads} threads in {folder}")
            library = build(folder, selection(plugins.operators, operators), threads)
        starting = {report.OURS: (OURS, library)} if library else {}
        starting |= {name: (ALL[name], "") for name in peers}
        with contenders(starting, threads, arguments.timeout) as (processes, problems):
            if report.OURS in problems:
                raise SystemExit(f"our library does not load: {problems[report.OURS]}")
            run.absent.update(problems)
            run.versions.update({process.name: process.version for process in processes})
            for operator in operators:
                say(f"{operator.name}, {threads} threads")
                entries = race(processes, operator, arguments.rounds, cache)
                run.rows.append(row(operator, threads, entries, probes, cache))
                if arguments.json:
                    Path(arguments.json).write_text(json.dumps(run.to_json(), indent=1))


def row(
    operator: Operator,
    threads: int,
    entries: dict[str, Entry],
    probes: Sequence[MachineFigures],
    cache_bytes: int,
) -> report.Row:
    """A row of the table. The roofline is that of the fastest probe: other load only slows a probe down."""
    cost = operator.read_bytes, operator.written_bytes, operator.operations
    bounds = [found for figures in probes if (found := bound(*cost, threads, figures)) is not None]
    if not bounds:
        raise SystemExit("the target says nothing about this machine's memory: no roofline")
    best = min(bounds, key=lambda found: found.seconds)
    sets, cold = input_sets(operator, cache_bytes), is_cold(operator, cache_bytes)
    return report.Row(operator.name, threads, cold, sets, best.seconds, best.limit, entries)


def settings() -> dict[str, str]:
    return {
        "allocator, every system": f"GLIBC_TUNABLES={ALLOCATOR}",
        "outputs": "preallocated where the system can write into given memory and is faster so",
        "threads": "each system is told how many and may use as many processors",
        "weights": "inputs like the others: nobody prepares them before the call; images lie as a peer likes",
    }


def listed(known: Sequence[str], what: str) -> argparse._ActionType:
    def read(text: str) -> list[str]:
        chosen = [word for word in text.replace(",", " ").split() if word]
        unknown = [word for word in chosen if word not in known]
        if unknown or not chosen:
            said = f"unknown {what}: {', '.join(unknown)}" if unknown else f"no {what}"
            raise argparse.ArgumentTypeError(f"{said}; known: {', '.join(known)}")
        return chosen

    return read


def thread_counts(text: str) -> list[int]:
    available = len(os.sched_getaffinity(0))
    try:
        counts = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from None
    if not 1 <= counts[0] <= counts[-1] <= available:
        raise argparse.ArgumentTypeError(f"this process may use {available} processors")
    return counts


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def parse() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    option = parser.add_argument
    kernels, peers = list(OPERATORS), list(PEERS)
    further = ", ".join(name for name in ALL if name not in PEERS)
    which = (
        f"default: the six that a summary needs; beside them, with a column and no part in ratios: {further}"
    )
    option("--kernels", type=listed(kernels, "kernel"), default=kernels, help="default: all 16")
    option("--threads", type=thread_counts, default=sorted({1, cores}), help="default: one, and all cores")
    option("--rounds", type=positive, default=12, help="turns of each system for each operator")
    option("--library", metavar="DIR", help="a built library; by default one is built for each thread count")
    option("--peers-only", action="store_true", help="leave our library out")
    option("--peers", type=listed(list(ALL), "peer"), default=peers, help=which)
    option("--timeout", type=float, default=900.0, help="seconds for one answer, compilation included")
    option("--json", metavar="FILE", help="write everything measured, after each operator")
    option("--markdown", action="store_true", help="print the tables for a page")
    option("--show", metavar="FILE", nargs="+", help="measure nothing: print what --json wrote, merged")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.show:
        runs = [report.Run.from_json(json.loads(Path(file).read_text())) for file in arguments.show]
        print(report.text(report.merged(runs), arguments.markdown))
        return
    absent = missing({n: p for n, p in ALL.items() if n in PEERS or n in arguments.peers}, arguments.peers)
    for reason in absent.values():
        say(reason)
    unasked = set(PEERS) - set(arguments.peers)
    if set(absent) - unasked:
        say(report.install_hint({name: why for name, why in absent.items() if name not in unasked}))
    run = report.Run(machine().text, settings(), {}, absent, [])
    peers = [name for name in arguments.peers if name not in absent]
    if arguments.peers_only and not peers:
        raise SystemExit("nothing to time: no peer, and our library is left out")
    measure(arguments, [OPERATORS[name] for name in arguments.kernels], peers, run)
    print(report.text(run, arguments.markdown))


if __name__ == "__main__":
    try:
        main()
    except DojoError as error:
        raise SystemExit(str(error)) from None
