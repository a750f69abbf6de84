"""Speed of the game: legal candidates checked, applied and printed per second.

    python benchmarks/moves.py [--seconds 2] [--json]
    python benchmarks/moves.py --target riscv_snitch --kernels dsum dmatmul dmaxpool

The default programs are softmax, layer norm and matmul at the paper's sizes, each in its initial form and in
the final form of the best usable target's heuristic pass. Every candidate of every transformation is
enumerated and checked; each legal one is applied, and the whole text of the resulting program is printed.
"legal" is the rate over the legal moves only, "all" over every candidate, the refused ones included; both
include the time to enumerate all. One core, processor time, the median of the rounds.

As in a search, a round plays all moves of one program, so facts about the program that one move computes are
cached for the next (the places of its nodes and accesses, the names in a copy of a
scope). Each round starts from a new program over the same nodes, like a search after a
move: facts about the program are not cached yet, those about its unchanged nodes are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from statistics import median

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Move, Rules, Step
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.plugins import load_plugins


def programs(target_name: str, kernels: list[str]) -> Iterator[tuple[str, Rules, Program]]:
    plugins = load_plugins()
    target = plugins.target(target_name)
    rules, heuristic = plugins.rules(target), plugins.heuristic_pass(target)
    for kernel in select(kernels, plugins.operators):
        root, name = kernel.program, kernel.alias or kernel.name
        yield f"{name} initial", rules, root
        if heuristic is not None:
            yield f"{name} final", rules, heuristic(root, rules, target)[0].program


def rate(rules: Rules, program: Program, seconds: float) -> tuple[float, float]:
    """Legal moves a second of processor time; and all candidates, the refused ones included."""
    moves = list(rules.candidates(program))
    legal = [move for move in moves if isinstance(rules.attempt(program, move), Step)]
    return _rate(rules, program, legal, seconds), _rate(rules, program, moves, seconds)


def _rate(rules: Rules, program: Program, moves: list[Move], seconds: float) -> float:
    """``moves`` over the time of the median round."""
    rounds: list[float] = []
    while sum(rounds) < seconds:
        begin = time.process_time()
        start = Program(program.name, program.inputs, program.outputs, program.buffers, program.body)
        offered = sum(1 for _ in rules.candidates(start))
        for move in moves:
            result = rules.attempt(start, move)
            if isinstance(result, Step):
                assert result.after.text
        rounds.append(time.process_time() - begin)
        assert offered >= len(moves)
    return len(moves) / median(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="best")
    parser.add_argument("--kernels", nargs="+", default=["softmax", "layernorm", "matmul"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {
        name: rate(rules, program, arguments.seconds)
        for name, rules, program in programs(arguments.target, arguments.kernels)
    }
    if arguments.json:
        print(json.dumps({name: {"legal": a, "all": b} for name, (a, b) in results.items()}, indent=1))
        return
    print(f"{'program':20} {'legal/s':>9} {'all/s':>9}")
    for name, (legal, checked) in results.items():
        print(f"{name:20} {legal:9.0f} {checked:9.0f}")


if __name__ == "__main__":
    main()
