"""``simulate``: a program of a target's own machine code on its simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit
from perfdojo_sdk.core.errors import UnavailableError

if TYPE_CHECKING:
    from perfdojo_sdk.hookspecs.services import SimulatedRun


def command(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A file of assembly or machine code.")],
    target: Annotated[str, typer.Option(help="The target whose simulator runs it.")],
    trace: Annotated[bool, typer.Option("--trace", help="Print each instruction with its cycle.")] = False,
    max_cycles: Annotated[int | None, typer.Option(min=1, help="Give up after so many.")] = None,
    as_json: Json = False,
) -> None:
    """Run a program on a target's simulator: cycles, what the units waited for, and registers at the end.

    What the program does wrong is an error with the line, or with the address where there is none.
    """
    from perfdojo_sdk.hookspecs.abilities import ability
    from perfdojo_sdk.hookspecs.services import Simulator
    from perfdojo_sdk.plugins import load_plugins

    plugins = load_plugins(targets=[target])
    found = plugins.require(target)
    simulator = ability(plugins.runner(found), Simulator)
    if simulator is None:
        what = f"target {found.name} runs no programs of its own machine code"
        why = "its runner is no simulator"
        raise UnavailableError("PD-G014", what, why=why, hint="`bench` runs kernels on any target")
    run = simulator.simulate(program, trace=trace, max_cycles=max_cycles)
    data = {
        "cycles": run.cycles,
        "figures": dict(run.figures),
        "stalls": dict(run.stalls),
        "registers": dict(run.registers),
    }
    emit(_text(run), {**data, "trace": list(run.trace)} if trace else data, as_json)


def _text(run: SimulatedRun) -> str:
    figures = [("cycles", f"{run.cycles}"), *((name, f"{value:g}") for name, value in run.figures.items())]
    width = max(len(name) for name, _ in figures)
    lines = [*run.trace, *(f"{name:{width}}  {value}" for name, value in figures)]
    if run.stalls:
        lines += ["waited, in cycles:"]
        lines += [f"  {name.replace('_', ' '):{width}}  {count}" for name, count in run.stalls.items()]
    return "\n".join(lines)
