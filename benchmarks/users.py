"""Programs as users write them: each must get a kernel, and verification must accept right kernels.

    python benchmarks/users.py --target x86_avx512 [--programs 100] [--first 0] [--minutes 15] [--json]

Each seed gives a program of ``perfdojo_sdk/testing/user_programs.py``. Its initial form and the games of the
target's expert are compiled with the target's flags and given to the three legs. Since no program is wrong on
purpose, a refusal is a fault of a move, of a generator or of the leg. Then the program is printed, and the
status at the end is 4.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.library.verification import VerificationCache, dependence, exact
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.testing.numeric_leg import NumericLeg
from perfdojo_sdk.testing.user_programs import user_program

#: Programs whose kernels are compiled together.
BLOCK = 4


def games(program: Program, rules: Rules, plugins: Plugins, target: Target) -> list[Trace]:
    """The initial program, and the first and the last game of the expert."""
    expert = plugins.heuristic_pass(target)
    played = list(expert(program, rules, target)) if expert else []
    found = {game.program.text: game for game in (Trace(program), *played[:1], *played[-1:])}
    return list(found.values())


def problems(seeds: Sequence[int], rules: Rules, numeric: NumericLeg) -> Iterator[tuple[int, str, str, str]]:
    """Seed, leg, its message and the refused program, for every game of a block of programs."""
    todo: list[tuple[int, Trace]] = []
    for seed in seeds:
        program = user_program(seed)
        try:
            todo += [(seed, game) for game in games(program, rules, numeric.plugins, numeric.target)]
        except Exception:
            yield seed, "expert", traceback.format_exc(limit=-3), program.text
    for (seed, game), problem in zip(todo, numeric([game for _, game in todo], optimised=True), strict=True):
        found = {"numeric": problem}
        if not problem and game.steps:
            cache = VerificationCache()
            legs = {"exact": exact(game, rules, seed), "dependence": dependence(game, rules, cache)}
            found |= {name: "" if leg.passed else leg.detail for name, leg in legs.items()}
        for name, said in found.items():
            if said:
                yield seed, name, said, f"{game.root.text}\nas\n{game.program.text}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="x86_avx512")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=15.0, help="then no new block begins")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    plugins = load_plugins()
    target = plugins.target(options.target)
    rules, numeric = plugins.rules(target), NumericLeg(plugins, target)
    formulas: Counter[str] = Counter()
    refused: list[dict[str, object]] = []
    end = time.monotonic() + 60 * options.minutes
    last = options.first + options.programs
    for first in range(options.first, last, BLOCK):
        if time.monotonic() > end:
            break
        seeds = range(first, min(first + BLOCK, last))
        formulas.update(user_program(seed).name for seed in seeds)
        for seed, leg, said, text in problems(seeds, rules, numeric):
            refused.append({"seed": seed, "leg": leg, "problem": said, "program": text})
            print(f"seed {seed}, {leg}: {said}\n{text}", file=sys.stderr, flush=True)
    count = formulas.total()
    found = {"target": target.name, "programs": count, "formulas": dict(formulas), "refused": refused}
    print(json.dumps(found, indent=1) if options.json else f"{count} programs, {len(refused)} refused")
    return 4 if refused else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DojoError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
