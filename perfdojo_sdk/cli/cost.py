"""``cost``: what searches have cost by the records, and what a whole library would cost by that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, seconds, table
from perfdojo_sdk.cli.db import Db, Target, existing
from perfdojo_sdk.core.errors import NothingFoundError
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.store.cost import Cost

#: The paper's extrapolation for a library, from eight hours for each of so many operators (section 4.3).
PAPER_NODE_HOURS, PAPER_OPERATORS = 1280, 160


def command(
    operators: Annotated[int, typer.Option(min=1, max=10**6, help="Kernels of the library.")] = 160,
    budget: Annotated[int, typer.Option(min=1, max=10**6, help="Evaluations for each of them.")] = 1000,
    target: Target = "",
    db: Db = "",
    as_json: Json = False,
) -> None:
    """Say what an evaluation of each search took, and extrapolate it to a library.

    The times of the stages are measured and stand in the records. The node-hours are an estimate: they
    suppose that other kernels take as long, and that one node does one thing after the other.
    """
    from perfdojo_sdk.store.cost import costs

    with existing(db) as records:
        place, found = records.database.name, costs(records, target)
    if not found:
        raise NothingFoundError(
            "PD-L202",
            f"{place} holds no evaluation with its times{f' on {target}' if target else ''}",
            hint="search first (`tune`, `build-library --search auto`), or name other records with --db",
        )
    emit(_text(found, operators, budget), _data(found, operators, budget), as_json)


def _text(found: list[Cost], operators: int, budget: int) -> str:
    stages = list(found[0].stages)
    heads = [stage.removesuffix("_s") for stage in stages]
    columns = ("search", "target", "kernels", "evaluations", *heads, "finish", "node-hours")
    rows = [
        (
            cost.search,
            cost.target,
            cost.kernels,
            cost.evaluations,
            *(_shown(cost.stages[stage]) for stage in stages),
            _shown(cost.finish_s),
            cost.node_hours(operators, budget),
        )
        for cost in found
    ]
    total = sum(cost.evaluations for cost in found)
    lines = [
        table(columns, rows),
        f"Node-hours are extrapolated (estimated) from the measured wall times of "
        f"{number_of(total, 'recorded evaluations')} to {number_of(operators, 'operators')} with "
        f"{number_of(budget, 'evaluations')} each.",
        "propose to verify: mean of an evaluation; finish: to time and verify a finished kernel;"
        " -: not recorded.",
        f"The paper extrapolates {PAPER_NODE_HOURS} node-hours for {PAPER_OPERATORS} operators,"
        " eight hours for each.",
    ]
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "-" if value is None else seconds(value) if value else "0 s"


def _data(found: list[Cost], operators: int, budget: int) -> dict[str, Any]:
    return {
        "operators": operators,
        "budget": budget,
        "provenance": "estimated",
        "recorded_evaluations": sum(cost.evaluations for cost in found),
        "paper": {"node_hours": PAPER_NODE_HOURS, "operators": PAPER_OPERATORS},
        "searches": [
            {
                "search": cost.search,
                "target": cost.target,
                "kernels": cost.kernels,
                "evaluations": cost.evaluations,
                "mean_seconds": dict(cost.stages),
                "finished_kernels": cost.finished,
                "finish_s": cost.finish_s,
                "node_hours": cost.node_hours(operators, budget),
            }
            for cost in found
        ],
    }
