"""The option ``--threads``: a number of threads, from one to the most that a kernel may have."""

from __future__ import annotations

from typing import Any

import typer

from perfdojo_sdk.core.interface import MAX_THREADS


def threads_of(word: str | int) -> int:
    """The number of threads that a word says; typer.BadParameter with what to write instead."""
    try:
        count = int(word)
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_THREADS:
        what = f"{str(word)[:60]} is no number of threads; a kernel runs on 1 to {MAX_THREADS}"
        raise typer.BadParameter(f"{what}: --threads 1 is the thread that calls it alone")
    return count


def threads_option(help: str = "") -> Any:
    """The option ``--threads``, checked by :func:`threads_of`."""
    return typer.Option("--threads", metavar="N", help=help, parser=threads_of)
