"""Share of the expert's moves that a trained agent would play as well, in the states of the expert's games.

    python benchmarks/agent_choices.py build/agent.safetensors --target riscv_snitch --kernels 'daxpy[64]'

A choice is right if it is the expert's next move, or one of the ten after it that could equally come next.
Each kernel's game is judged as it is and in ``--orders`` other orders. Nothing is run or timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import mean

import numpy as np

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.search import SearchTask
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.perfllm import agent_files
from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.replay import STOP
from perfdojo_sdk.perfllm.variations import next_moves, reordered
from perfdojo_sdk.plugins import load_plugins

#: Shares are printed for a right move among the first so many.
RANKS = (1, 3, 5)


def ranks(agent: Agent, task: SearchTask, games: list[Trace]) -> Iterator[int]:
    """The place of the best right choice in the agent's order, in each different state, from 0."""
    seen: set[str] = set()
    for game in games:
        for k in range(len(game.steps) + 1):
            program = game.steps[k].before if k < len(game.steps) else game.program
            if program.text in seen:
                continue
            seen.add(program.text)
            right = {step.after.text for step in next_moves(game, k, task.rules)}
            listed = agent.listed(program, task.rules, task.most, task.target.name)
            order = (-agent.values(listed)).argsort(kind="stable")
            texts = [program.text, *(step.after.text for step in listed.steps)]
            last = k == len(game.steps)
            found = [n for n, a in enumerate(order) if (a == STOP if last else a and texts[a] in right)]
            yield found[0] if found else len(order)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("agent", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--kernels", required=True)
    parser.add_argument("--orders", type=int, default=1)
    options = parser.parse_args()
    plugins = load_plugins()
    target = plugins.require(options.target)
    context, agent = BuildContext.of(plugins, target, Settings(threads=1)), agent_files.load(options.agent)
    lists = target.capabilities.selections
    every = list[list[float]]()
    print(f"{'kernel':28}{'states':>8}" + "".join(f"{f'top {n}':>8}" for n in RANKS))
    for kernel in select(options.kernels, plugins.operators_for(target), target.dialect, lists):
        task, chance = context.task(kernel), Random(kernel.name)
        assert task.expert is not None, f"{target.name} has no expert"
        game = task.expert(task.root, task.rules, task.target)[0]
        games = [game, *(reordered(game, task.rules, chance) for _ in range(options.orders))]
        found = np.array(list(ranks(agent, task, games)))
        shares = [float((found < n).mean()) for n in RANKS]
        every.append(shares)
        print(f"{kernel.name:28}{len(found):8}" + "".join(f"{share:8.2f}" for share in shares), flush=True)
    print(f"{'mean of the kernels':36}" + "".join(f"{mean(column):8.2f}" for column in zip(*every)))


if __name__ == "__main__":
    main()
