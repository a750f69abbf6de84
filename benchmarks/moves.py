"""How fast the game is: legal candidates checked, applied and printed each second.

    python benchmarks/moves.py [--seconds 2] [--json]

Softmax, layer norm and matmul at the paper's sizes, each in its initial form and as the best usable
target's heuristic pass leaves it. Every candidate of every transformation is checked; each legal one
is applied and printed. "legal" is the rate over the legal moves alone, "all" over every candidate.
One core, processor time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Move, Rules, Step
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.plugins import load_plugins


def programs(target_name: str) -> Iterator[tuple[str, Rules, Program]]:
    plugins = load_plugins()
    target = plugins.target(target_name)
    rules, heuristic = plugins.rules(target), plugins.heuristic_pass(target)
    for kernel in select(["softmax", "layernorm", "matmul"], plugins.operators):
        root = kernel.program
        yield f"{kernel.operator} initial", rules, root
        if heuristic is not None:
            yield f"{kernel.operator} final", rules, heuristic(root, rules, target)[0].program


def rate(rules: Rules, program: Program, seconds: float) -> tuple[float, float]:
    """Legal moves a second of processor time; and all candidates, the refused ones included.

    Each round starts from a new program over the same nodes, which is how a search meets one after a
    move: nothing is known about the program, and what its unchanged nodes worked out is kept.
    """
    moves = list(rules.candidates(program))
    legal = [move for move in moves if isinstance(rules.attempt(program, move), Step)]
    return tuple(_rate(rules, program, chosen, seconds) for chosen in (legal, moves))  # type: ignore[return-value]


def _rate(rules: Rules, program: Program, moves: list[Move], seconds: float) -> float:
    done, spent = 0, 0.0
    while spent < seconds:
        begin = time.process_time()
        start = Program(program.name, program.inputs, program.outputs, program.buffers, program.body)
        for move in moves:
            result = rules.attempt(start, move)
            done += not isinstance(result, Step) or len(result.after.text) > 0
        spent += time.process_time() - begin
    return done / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="best")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {
        name: rate(rules, program, arguments.seconds) for name, rules, program in programs(arguments.target)
    }
    if arguments.json:
        print(json.dumps({name: {"legal": a, "all": b} for name, (a, b) in results.items()}, indent=1))
        return
    print(f"{'program':20} {'legal/s':>9} {'all/s':>9}")
    for name, (legal, checked) in results.items():
        print(f"{name:20} {legal:9.0f} {checked:9.0f}")


if __name__ == "__main__":
    main()
