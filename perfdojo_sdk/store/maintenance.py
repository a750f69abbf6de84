"""Maintenance of a database: statistics, and pruning of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Select, case, delete, func, select, true

from perfdojo_sdk.store.database import PROVENANCE_RANK, Records
from perfdojo_sdk.store.records import RecordKey
from perfdojo_sdk.store.schema import SCHEMA, StoreError, candidates, conditions, kernels

_STAGES = ("propose_s", "compile_s", "verify_s", "measure_s")


# -- figures ---------------------------------------------------------------------------------------


def statistics(records: Records) -> dict[str, Any]:
    """The database in figures, as JSON values. :class:`StoreError` for rows that no SDK has written."""
    database = records.database
    try:
        found = database.read(_statistics)
    except _Orphans as error:
        raise _damaged(database.name, str(error)) from None
    except (TypeError, ValueError) as error:  # SQLite keeps anything in any column
        raise _damaged(database.name, f"a value is not of its column's kind ({error})") from None
    return {
        "place": database.name,
        "kind": database.dialect,
        "schema": SCHEMA,
        "health": database.health(),
        "journal": database.journal(),
        **found,
    }


class _Orphans(Exception):
    """Candidates without conditions."""


def _damaged(place: str | None, why: str) -> StoreError:
    hint = "`perfdojo-sdk db export` writes what can be read; import that into a new file"
    return StoreError("PD-R002", f"the records in {place} are damaged", why=why, hint=hint)


def _statistics(connection: Connection) -> dict[str, Any]:
    c = candidates.c

    def counted(column: Any, *where: Any) -> dict[str, int]:
        query = (
            select(column, func.count()).where(*where).group_by(column).order_by(func.count().desc(), column)
        )
        return {str(value): count for value, count in connection.execute(query)}

    def number(table: Any, *where: Any) -> int:
        return int(connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one())

    spent = connection.execute(select(*(func.sum(c[stage]) for stage in _STAGES))).one()
    return {
        "finished_kernels": number(kernels),
        "candidates": number(candidates),
        "timed": number(candidates, c.seconds.is_not(None)),
        "cut": number(candidates, c.cut),
        "failed": number(candidates, c.reason.is_not(None)),
        "failures": counted(c.reason, c.reason.is_not(None)),
        "searches": counted(c.search),
        "spent_s": {stage.removesuffix("_s"): spent[k] or 0.0 for k, stage in enumerate(_STAGES)},
        "groups": _groups(connection),
    }


def _groups(connection: Connection) -> list[dict[str, Any]]:
    """Number of candidates and the best time with its provenance, for each set of equal conditions."""
    c = candidates.c
    finished = case((~c.cut, c.seconds))
    columns = (func.count(), func.count(c.reason), func.min(c.at), func.max(c.at))
    totals = select(c.conditions, *columns).group_by(c.conditions)
    best = select(c.conditions, c.provenance, func.min(finished)).group_by(c.conditions, c.provenance)
    bests: dict[str, tuple[int, float, str]] = {}
    for digest, provenance, seconds in connection.execute(best.where(finished.is_not(None))):
        found = (PROVENANCE_RANK.get(provenance, len(PROVENANCE_RANK)), float(seconds), str(provenance))
        bests[digest] = min(bests.get(digest, found), found)
    shared = {row.digest: row for row in connection.execute(select(conditions))}
    groups = []
    for digest, count, failed, first, last in connection.execute(totals):
        if digest not in shared:
            raise _Orphans(f"{count} candidates have lost the conditions that they were evaluated under")
        _, seconds, provenance = bests.get(digest, (0, None, None))
        groups.append(
            {
                **_described(shared[digest]),
                "candidates": count,
                "failed": failed,
                "best_s": seconds,
                "provenance": provenance,
                "first": str(first),
                "last": str(last),
            }
        )
    return sorted(groups, key=lambda g: (g["kernel"], g["target"], g["device"], g["last"]))


def _described(row: Row[Any]) -> dict[str, Any]:
    """The fields that the candidates of a group share; only the plain columns where the key cannot be
    parsed."""
    found = {"kernel": str(row.kernel), "target": str(row.target), "device": str(row.device)}
    try:
        key = RecordKey.model_validate_json(row.key)
    except ValidationError:
        return {**found, "toolchain": "", "plugins": {}, "settings": {}}
    return {**found, "toolchain": key.toolchain, "plugins": key.plugins, "settings": key.settings}


# -- pruning ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PruningRule:
    """A pruning rule: it selects the candidates that meet all conditions given."""

    before: datetime | None = None
    """Select candidates evaluated before this time."""
    keep: int | None = None
    """Select candidates not among this many fastest under equal conditions; failed and cut ones rank last."""
    failures: bool = False
    """Select failed candidates."""
    kernel: str = ""
    target: str = ""

    @property
    def says_something(self) -> bool:
        return self.before is not None or self.keep is not None or self.failures


@dataclass(frozen=True)
class Pruned:
    """Numbers of candidates that were, or would be, deleted."""

    timed: int
    failed: int
    left: int


def prune(records: Records, rule: PruningRule, dry_run: bool = False) -> Pruned:
    """Delete the candidates that the rule names; finished kernels stay. One transaction."""
    doomed = _doomed(rule)
    c = candidates.c

    def work(connection: Connection) -> Pruned:
        going = c.id.in_(doomed)
        query = select(func.count(), func.count(c.reason)).where(going)
        count, failed = connection.execute(query).one()
        total = connection.execute(select(func.count()).select_from(candidates)).scalar_one()
        if not dry_run:
            connection.execute(delete(candidates).where(going))
        return Pruned(count - failed, failed, total - count)

    database = records.database
    pruned = database.read(work) if dry_run else database.write(work)
    if not dry_run:
        database.compact()
    return pruned


def _doomed(rule: PruningRule) -> Select[Any]:
    """The ids of the candidates that may go."""
    c, shared = candidates.c, conditions.c
    group = case(
        (c.seconds.is_(None), 9), (c.cut, 8), *((c.provenance == p, k) for p, k in PROVENANCE_RANK.items())
    )
    place = func.row_number().over(partition_by=c.conditions, order_by=(group, c.seconds, c.id))
    query = select(c.id, c.at, c.reason, place.label("place"))
    query = query.join(conditions, shared.digest == c.conditions)
    ranked = query.where(
        shared.kernel == rule.kernel if rule.kernel else true(),
        shared.target == rule.target if rule.target else true(),
    ).subquery()
    chosen = select(ranked.c.id)
    if rule.before is not None:
        chosen = chosen.where(ranked.c.at < rule.before.astimezone(UTC).isoformat(timespec="microseconds"))
    if rule.keep is not None:
        chosen = chosen.where(ranked.c.place > rule.keep)
    if rule.failures:
        chosen = chosen.where(ranked.c.reason.is_not(None))
    return chosen
