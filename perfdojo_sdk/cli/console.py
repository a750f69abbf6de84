"""Output of commands: one result on stdout (text or JSON), everything else on stderr."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from perfdojo_sdk.core.errors import DojoError, printable_lines
from perfdojo_sdk.core.words import number_of

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def place_option(otherwise: str) -> Any:
    """The option ``--db``, the place of the records; ``otherwise`` describes the default."""
    what = f"Where the records are: a file, or postgresql://USER@HOST/DATABASE. Default: {otherwise}."
    return typer.Option("--db", envvar="PERFDOJO_DB", metavar="PLACE", help=what, show_default=False)


#: The option for the place of records, for commands that write into the folder of a library.
PlaceOption = Annotated[str, place_option("a file in that folder")]


def emit(text: str, data: Any, as_json: bool) -> None:
    """Print a result: ``data`` as JSON when asked for, else ``text``."""
    print(json.dumps(data, indent=2) if as_json else printable_lines(text.rstrip("\n")), flush=True)


def progress(line: str, end: str = "\n") -> None:
    print(printable_lines(line), end=end, file=sys.stderr, flush=True)


def without_controls(text: str) -> str:
    """JSON of the same value without characters that a terminal would obey."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


#: Control characters that JSON need not escape: delete, and the second set.
_CONTROLS = re.compile("[\x7f-\x9f]")


def show_tracebacks() -> None:
    """Print tracebacks of plugins' faults on stderr; call this once in a process."""
    logger = logging.getLogger("perfdojo_sdk.plugins")
    logger.setLevel(logging.DEBUG)
    logger.handlers[:] = [logging.StreamHandler(sys.stderr)]


def report(error: DojoError, as_json: bool) -> None:
    """Show an error to a person on stderr and, where JSON was asked for, to a program on stdout."""
    print(error.render(), file=sys.stderr)
    if as_json:
        report_as_json(error)


def report_as_json(error: DojoError) -> None:
    print(json.dumps({"error": error.as_json()}, indent=2))


#: A width that no row has.
_ENDLESS = 100_000
#: Columns of the line below headings, at most, where no terminal reads it.
_RULE = 100


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "", width: int = _ENDLESS
) -> str:
    """Rows under headings, as wide as the terminal allows; numbers align to the right. Where no terminal
    reads it, each row is one line, as wide as it is, so that tools for lines find rows whole; or several of
    at most ``width`` columns, for sentences."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head = Text(title) if title else None
    grid = Table(*columns, title=head, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for k, column in enumerate(grid.columns):
        column.overflow = "fold"
        if rows and all(isinstance(row[k], int | float) for row in rows):
            column.justify = "right"
    for row in rows:
        grid.add_row(*(Text(f"{cell:.4g}" if isinstance(cell, float) else str(cell)) for cell in row))
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else width, no_color=True)
    with console.capture() as capture:
        console.print(grid)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    if not terminal:
        lines = [line[:_RULE] if set(line) <= {" ", "─"} else line for line in lines]
    return "\n".join(lines).strip("\n")


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def memory(count: float) -> str:
    """A number of bytes in the unit that suits it."""
    if count < 2**10:
        return number_of(round(count), "bytes")
    for unit, size in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
        if count < 1023.95 * size or unit == "GiB":
            break
    return f"{count / size:.1f} {unit}"
