"""A listing of every move of many programs with the rules' answer: two commits that agree print the same
bytes.

    python tools/list_moves.py [--targets core riscv_snitch ...] [--walks 40] [--moves 12] > listing.txt

The programs are all operators at small sizes, random programs, and the results of random games on both, in
the dialect of each target. A line for each candidate: its kind, laws, and a digest of the new program, its
ids, what the move made and the instance relation; or the refusal with its code, place and sentences. To
compare with another commit, run the same file with ``PYTHONPATH`` at that commit's tree and its plugins.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from hashlib import blake2b
from random import Random

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Move, Rules, Step
from perfdojo_sdk.kernels.selection import instantiate
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.testing.context import shapes
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", default=[])
    parser.add_argument("--walks", type=int, default=40, help="random games of each target")
    parser.add_argument("--moves", type=int, default=12, help="most moves of a game")
    arguments = parser.parse_args()
    plugins = load_plugins()
    names = arguments.targets or sorted(plugins.targets)
    for name in names:
        rules = plugins.rules(plugins.target(name))
        for title, program in programs(plugins, rules, arguments.walks, arguments.moves):
            print(f"# {name} {title}")
            for move in rules.candidates(program):
                print(answer(rules, program, move))
    print(f"perfdojo_sdk of {sys.modules['perfdojo_sdk'].__file__}", file=sys.stderr)


def programs(plugins: Plugins, rules: Rules, walks: int, moves: int) -> Iterator[tuple[str, Program]]:
    roots: list[tuple[str, Program]] = []
    for name, operator in plugins.operators.items():
        several = tuple([(4, 6, 8, 12)[k % 4] for k in range(len(operator.parameters))])
        for sizes in (several, *list(shapes(len(operator.parameters), 4))[1:]):
            try:
                roots.append((name, instantiate(operator, sizes, rules.dialect).program))
            except DojoError:
                continue  # a filter larger than the image
            break
    yield from roots
    for seed in range(walks):
        rng = Random(seed)
        title, root = roots[seed % len(roots)] if seed % 2 else ("random", random_program(rng))
        trace = random_walk(rng, root, rules, moves)
        yield f"{title} seed {seed}", trace.program
        for k, step in enumerate(trace.steps[: len(trace.steps) // 2]):
            if k % 4 == 0:
                yield f"{title} seed {seed} after {k}", step.after


def answer(rules: Rules, program: Program, move: Move) -> str:
    result = rules.attempt(program, move)
    if isinstance(result, Step):
        ids = [(path, node.id) for path, node in result.after.walk()]
        relation = sorted((name, repr(origin)) for name, origin in rules.relation(result).items())
        made = repr(result.made)
        digest = blake2b(repr((result.after.text, ids, made, relation)).encode(), digest_size=8).hexdigest()
        return f"{move.text} {result.legal.kind.label} {sorted(result.legal.laws)} {digest}"
    place = (result.refusal.at, result.refusal.mark)
    return f"{move.text} {result.code} {place} {result.why} | {result.hint}"


if __name__ == "__main__":
    main()
