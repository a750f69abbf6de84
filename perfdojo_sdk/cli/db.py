"""``db``: what the records hold; out of one database, into another; and what may go."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, place_option, progress, seconds, table, without_controls
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.store.database import Records
    from perfdojo_sdk.store.exchange import Imported
    from perfdojo_sdk.store.records import RecordKey

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Show, export, import, merge and prune records. Each command takes --json.",
)

#: Most days that `prune --older-than` takes, some 270 years: a date that far back exists.
MOST_DAYS = 100_000

Db = Annotated[str, place_option("the file in build/library, if there is one only")]
Kernel = Annotated[str, typer.Option(help="Only this kernel, by its full name.", show_default=False)]
Target = Annotated[str, typer.Option(help="Only this target.", show_default=False)]


def existing(db: str) -> Records:
    """The records at a place, which must be there already."""
    from perfdojo_sdk.store.database import Records

    return Records(_place(db), create=False)


def _place(db: str) -> str:
    """The place given; else the only file of records that builds and searches left in build/library."""
    from perfdojo_sdk.store.schema import StoreError

    if db:
        return db
    found = sorted(map(str, Path("build", "library").glob("*/records.sqlite")))
    if len(found) == 1:
        return found[0]
    hint = "name the place with --db or PERFDOJO_DB"
    if found:
        raise StoreError("PD-R001", f"there are several files of records: {', '.join(found)}", hint=hint)
    raise StoreError("PD-R001", "there are no records in build/library", hint=hint)


# -- stats ---------------------------------------------------------------------------------------


@app.command()
def stats(db: Db = "", as_json: Json = False) -> None:
    """Say what the records hold: kernels, candidates, failures by reason, where the time went."""
    from perfdojo_sdk.store.maintenance import statistics

    with existing(db) as records:
        found = statistics(records)
    emit(_stats_text(found), found, as_json)


def _stats_text(found: dict[str, Any]) -> str:
    journal = f", journal {found['journal']}" if found["journal"] else ""
    lines = [
        f"{found['place']}: {found['kind']}, schema {found['schema']}{journal}, health {found['health']}",
        number_of(found["finished_kernels"], "finished kernels"),
        f"{number_of(found['candidates'], 'candidates')}: {found['timed']} timed"
        f" ({found['cut']} of them cut short), {found['failed']} failed",
    ]
    if not found["candidates"]:
        return "\n".join(lines)
    counts = {"failures": "failed for", "searches": "proposed by"}
    for key, words in counts.items():
        if found[key]:
            lines.append(f"{words}: " + ", ".join(f"{name} {count}" for name, count in found[key].items()))
    spent = ", ".join(f"{stage} {seconds(s) if s else '0 s'}" for stage, s in found["spent_s"].items())
    lines += [f"time spent: {spent}", ""]
    columns = ("kernel", "target", "threads", "device", "candidates", "failed", "best", "last")
    lines.append(table(columns, [_group_row(group) for group in found["groups"]]))
    return "\n".join(lines)


def _group_row(group: dict[str, Any]) -> tuple[object, ...]:
    best = f"{seconds(group['best_s'])} {group['provenance']}" if group["best_s"] else "none"
    threads = group["settings"].get("threads", "")
    counts = (group["candidates"], group["failed"])
    return (group["kernel"], group["target"], threads, group["device"], *counts, best, group["last"][:19])


# -- out -----------------------------------------------------------------------------------------


class Format(StrEnum):
    jsonl = "jsonl"
    t4 = "t4"


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to write; - for standard output.")],
    db: Db = "",
    form: Annotated[
        Format,
        typer.Option("--format", help="jsonl: all, to import again. t4: candidates, for other tools."),
    ] = Format.jsonl,
    kernel: Kernel = "",
    target: Target = "",
    as_json: Json = False,
) -> None:
    """Write the records to a file: lines of JSON, or the T4 format that Kernel Tuner shares."""
    from perfdojo_sdk.store import exchange, t4

    if as_json and str(file) == "-":
        raise typer.BadParameter("--json and a file of - would both print to standard output")

    def chosen(key: RecordKey) -> bool:
        return kernel in ("", key.kernel) and target in ("", key.target)

    with existing(db) as records:
        if form is Format.jsonl:
            lines = exchange.lines_of(records, chosen)
        else:
            lines = t4.document(c for c in records.candidates if chosen(c.key.conditions))
        if str(file) == "-":
            for line in lines:
                print(without_controls(line))
            return
        written = _write(file, lines) - (1 if form is Format.jsonl else 2)
    if not written:
        progress(_nothing_written(form, kernel, target))
    emit(f"{number_of(written, 'records')} in {file}", {"file": str(file), "records": written}, as_json)


def _nothing_written(form: Format, kernel: str, target: str) -> str:
    """The note on an export that is empty: what did not match, and what to try."""
    chosen = " and ".join(f"{what} {name}" for what, name in (("kernel", kernel), ("target", target)) if name)
    hints = ["t4 leaves out finished kernels, jsonl has them"] if form is Format.t4 else []
    hints += ["the full name of a kernel has its sizes and dtype: softmax_64x128_f32"] if kernel else []
    matching = f" for {chosen}" if chosen else ""
    return "; ".join([f"note: nothing to export{matching}", *hints])


def _write(file: Path, lines: Iterable[str]) -> int:
    """Write the lines; their number. ``file`` is whole, or as it was."""
    from perfdojo_sdk.game import write_atomically

    numbers = count()
    write_atomically(file, (f"{line}\n" for _, line in zip(numbers, lines)))
    return next(numbers) - 1


# -- in ------------------------------------------------------------------------------------------


@app.command("import")
def import_records(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `db export` wrote.")],
    db: Db = "",
    as_json: Json = False,
) -> None:
    """Bring in the records of a file. With one bad line nothing is changed.

    Of two candidates under one key the one that was evaluated later stays. After an interruption,
    import again: what is there already is not doubled.
    """
    from perfdojo_sdk.store.database import Records
    from perfdojo_sdk.store.exchange import bring, checked

    place = _place(db)
    with checked(file) as lines, Records(place) as records:
        imported = bring(records, lines)
    emit(_imported_text(imported), imported.as_json(), as_json)


@app.command()
def merge(
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The database to read: a file or a URL.")],
    db: Db = "",
    as_json: Json = False,
) -> None:
    """Bring in the records of another database, by the same rules as `db import`."""
    from perfdojo_sdk.store.database import Records
    from perfdojo_sdk.store.exchange import merge as merge_records

    with existing(other) as source, Records(_place(db)) as records:
        imported = merge_records(records, source)
    emit(_imported_text(imported), imported.as_json(), as_json)


def _imported_text(imported: Imported) -> str:
    lines = []
    for name, tally in (("finished kernels", imported.kernels), ("candidates", imported.candidates)):
        words = f"{tally.new} new, {tally.replaced} replaced by later ones, {tally.kept} there already"
        lines.append(f"{name}: {words}")
    return "\n".join(lines)


# -- prune ---------------------------------------------------------------------------------------


def _days(text: str) -> float:
    """The days of ``--older-than``. :class:`typer.BadParameter` unless they are from 0 to MOST_DAYS."""
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days <= MOST_DAYS:
        raise typer.BadParameter(f"{text!r} is no number of days from 0 to {MOST_DAYS}")
    return days


@app.command()
def prune(
    db: Db = "",
    older_than: Annotated[
        float | None,
        typer.Option(metavar="DAYS", parser=_days, help="Evaluated longer ago.", show_default=False),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=2**63 - 1,
            help="Not among the N fastest of equal conditions.",
            show_default=False,
        ),
    ] = None,
    failures: Annotated[bool, typer.Option("--failures", help="What failed.")] = False,
    kernel: Kernel = "",
    target: Target = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Delete the candidates on which all given options agree. Finished kernels stay.

    For example, `--keep 10 --older-than 30` deletes what is older than 30 days and not among the ten
    fastest of its kernel, target, device and settings.
    """
    from perfdojo_sdk.store.maintenance import PruningRule
    from perfdojo_sdk.store.maintenance import prune as prune_records

    before = None if older_than is None else datetime.now(UTC) - timedelta(days=older_than)
    rule = PruningRule(before, keep, failures, kernel, target)
    if not rule.says_something:
        raise typer.BadParameter("say what may go: --older-than, --keep or --failures")
    with existing(db) as records:
        pruned = prune_records(records, rule, dry_run)
    would = "would be deleted" if dry_run else "deleted"
    gone = number_of(pruned.timed + pruned.failed, "candidates")
    text = f"{gone} {would} ({pruned.failed} failed), {pruned.left} left"
    data = {"timed": pruned.timed, "failed": pruned.failed, "left": pruned.left, "dry_run": dry_run}
    if dry_run:
        progress("dry run: nothing was changed")
    emit(text, data, as_json)
