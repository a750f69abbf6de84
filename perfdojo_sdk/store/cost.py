"""The cost of tuning: times of the stages of recorded evaluations, extrapolated to a library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sqlalchemy import Connection, distinct, func, or_, select

from perfdojo_sdk.store.database import Records
from perfdojo_sdk.store.schema import candidates, conditions

#: Stages of an evaluation, in their order, as the columns of the records are called.
STAGES = ("propose_s", "compile_s", "measure_s", "verify_s")


@dataclass(frozen=True)
class Cost:
    """The cost of one search on one target. All figures are means of measured wall times in seconds."""

    target: str
    search: str
    kernels: int
    evaluations: int
    """Number of evaluations with recorded times, without programs that were known before."""
    stages: Mapping[str, float | None]
    """Stage -> mean seconds over all evaluations, including those that did not reach it; None: never
    recorded."""
    finished: int
    """Kernels that were finished after such a search."""
    finish_s: float | None
    """Mean seconds to time, verify and record a finished kernel; None without one."""

    @property
    def evaluation_s(self) -> float:
        """Seconds of one evaluation, with its stages one after the other."""
        return sum(seconds or 0.0 for seconds in self.stages.values())

    def node_hours(self, operators: int, budget: int) -> float:
        """Estimated hours of one node for ``operators`` operators with ``budget`` evaluations each."""
        return operators * (budget * self.evaluation_s + (self.finish_s or 0.0)) / 3600


def costs(records: Records, target: str = "") -> list[Cost]:
    """The cost of each search on each target, or on ``target`` alone; the most evaluations first."""
    finishing = _finishing(records)
    return [
        Cost(
            str(row.target),
            str(row.search),
            row.kernels,
            row.evaluations,
            {stage: _mean(total, row.evaluations) for stage, total in zip(STAGES, row[4:], strict=True)},
            len(took),
            fmean(took) if took else None,
        )
        for row in records.database.read(_totals)
        if target in ("", row.target)
        for took in (finishing[row.target, row.search],)
    ]


def _mean(total: float | None, count: int) -> float | None:
    return None if total is None else total / count


def _totals(connection: Connection) -> list[Any]:
    """Rows of target, search, number of kernels, number of evaluations, and total seconds of each stage."""
    c, shared = candidates.c, conditions.c
    count = func.count()
    query = (
        select(
            shared.target,
            c.search,
            func.count(distinct(shared.kernel)).label("kernels"),
            count.label("evaluations"),
            *(func.sum(c[stage]) for stage in STAGES),
        )
        .join(conditions, shared.digest == c.conditions)
        .where(or_(*(c[stage].is_not(None) for stage in STAGES)))
        .group_by(shared.target, c.search)
        .order_by(count.desc(), shared.target, c.search)
    )
    return list(connection.execute(query))


def _finishing(records: Records) -> Mapping[tuple[str, str], list[float]]:
    """(target, search) -> the seconds to finish each kernel after such a search."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for key, record in records:
        if record.build_seconds:
            found[key.target, str(key.settings.get("search", ""))].append(sum(record.build_seconds.values()))
    return found
