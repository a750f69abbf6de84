"""Players compared: the best time after so many evaluations, over kernels and seeds.

    python benchmarks/search.py [--players auto annealing ...] [--evaluations 100 300] [--seeds 2]
                                [--target best] [--kernels 'softmax[64,48]' ...] [--without-expert]
                                [--measured] [--share] [--json]

Each figure is the geometric mean, over kernels and seeds, of a player's best time divided by the best time
that any player of this run found for the kernel: 1 is the best. By default the times are estimates of the
paper machine of ``perfdojo_sdk.testing.estimate``, the same on every computer; ``--measured`` compiles and
times on this one, or simulates if the target is simulated (without records, so that nothing is
shared between players). ``--share`` evaluates a program once for all players: for figures without noise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.search import Evaluation, SearchStrategy, SearchTask
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import conditions
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.search.strategies import play_out
from perfdojo_sdk.testing.estimate import AnalyticMachine

Evaluate = Callable[[Sequence[Trace]], Sequence[Evaluation]]

PLAYERS = (
    "sampling-edges", "annealing-edges", "sampling", "annealing", "beam", "evolution", "auto"
)  # fmt: skip
KERNELS = ("softmax[256,256]", "layernorm[512,1024]", "matmul[256,256,256]", "add[512,1024]")


def estimated(target: Target) -> Evaluate:
    machine = AnalyticMachine(target.dialect)

    def evaluate(games: Sequence[Trace]) -> list[Evaluation]:
        return [Evaluation(game, machine.seconds(game.program)) for game in games]

    return evaluate


def measured(plugins: Plugins, target: Target, kernel: Kernel) -> Evaluate:
    return Evaluator(conditions(BuildContext.of(plugins, target, Settings()), kernel)).evaluate


def shared(evaluate: Evaluate, known: dict[str, Evaluation]) -> Evaluate:
    """An evaluation that looks up ``known`` programs; equal new programs within a round are evaluated
    twice."""

    def look_up(games: Sequence[Trace]) -> list[Evaluation]:
        fresh = [game for game in games if game.program.text not in known]
        known.update((each.trace.program.text, each) for each in evaluate(fresh))
        return [replace(known[game.program.text], trace=game) for game in games]

    return look_up


def best_so_far(strategy: SearchStrategy, task: SearchTask, evaluate: Evaluate) -> list[float]:
    """The best time after each evaluation; infinity as long as nothing ran."""
    best: list[float] = []

    def watched(games: Sequence[Trace]) -> Sequence[Evaluation]:
        results = evaluate(games)
        for each in results:
            before = best[-1] if best else float("inf")
            best.append(before if each.seconds is None else min(before, each.seconds))
        return results

    play_out(strategy, task, watched, task.evaluations)
    return best


def after(best: list[float], count: int) -> float:
    return best[min(count, len(best)) - 1] if best else float("inf")


def compare(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    plugins = load_plugins()
    target = plugins.target(arguments.target)
    rules, most = plugins.rules(target), max(arguments.evaluations)
    expert = None if arguments.without_expert else plugins.heuristic_pass(target)
    found: dict[str, dict[tuple[str, int], list[float]]] = {player: {} for player in arguments.players}
    spent = dict.fromkeys(arguments.players, 0.0)
    for kernel in select(arguments.kernels, plugins.operators_for(target), target.dialect):
        known: dict[str, Evaluation] = {}
        for seed in range(arguments.seeds):
            for player in arguments.players:
                evaluate = measured(plugins, target, kernel) if arguments.measured else estimated(target)
                evaluate = shared(evaluate, known) if arguments.share else evaluate
                task = SearchTask(kernel.program, rules, target, seed, expert=expert, evaluations=most)
                begin = time.process_time()
                best = found[player][kernel.name, seed] = best_so_far(
                    plugins.search_strategy(player), task, evaluate
                )
                spent[player] += time.process_time() - begin
                print(f"{kernel.name} seed {seed} {player}: {after(best, most):.4g} s", file=sys.stderr)
    return table(found, arguments.evaluations, spent)


def table(
    found: dict[str, dict[tuple[str, int], list[float]]], counts: Sequence[int], spent: dict[str, float]
) -> dict[str, dict[str, float]]:
    """Player -> evaluations -> geometric mean of best time over the best that is known."""
    kernels = {kernel for runs in found.values() for kernel, _ in runs}
    least = {
        kernel: min(best[-1] for runs in found.values() for (k, _), best in runs.items() if k == kernel)
        for kernel in kernels
    }
    rows = {}
    for player, runs in found.items():
        rows[player] = {
            str(count): exp(
                sum(log(after(best, count) / least[kernel]) for (kernel, _), best in runs.items()) / len(runs)
            )
            for count in counts
        }
        rows[player]["cpu_s"] = spent[player]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--players", nargs="+", default=list(PLAYERS))
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS))
    parser.add_argument("--evaluations", nargs="+", type=int, default=[50, 100, 300])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--target", default="best")
    parser.add_argument("--without-expert", action="store_true")
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = compare(arguments)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print("best time over the best known, " + ("measured" if arguments.measured else "estimated"))
    print(f"{'player':18}" + "".join(f"{count:>9}" for count in arguments.evaluations) + f"{'cpu s':>9}")
    for player, row in sorted(rows.items(), key=lambda item: item[1][str(max(arguments.evaluations))]):
        print(f"{player:18}" + "".join(f"{value:9.3f}" for value in row.values()))


if __name__ == "__main__":
    main()
