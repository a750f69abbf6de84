"""``cache``: the user's cache of verified kernels."""

from __future__ import annotations

from datetime import datetime

import typer

from perfdojo_sdk.cli.console import Json, emit, table
from perfdojo_sdk.core.words import number_of

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Show or clear the cache of verified kernels. Each command takes --json.",
)


@app.command("show")
def show(as_json: Json = False) -> None:
    """List the kernels of the cache, the one used last in front, with their sizes.

    The cache is `kernels` in $PERFDOJO_CACHE, or in the user's folder for caches. It holds at most 10 GB;
    what has not been used for the longest time goes first.
    """
    from perfdojo_sdk.models.cache import KernelCache

    cache = KernelCache()
    rows = []
    for entry in cache.entries():
        used = datetime.fromtimestamp(entry.used).isoformat(" ", timespec="seconds")
        rows.append((entry.kernel, entry.target, entry.bytes, used, entry.name))
    total = sum(row[2] for row in rows)
    columns = ("kernel", "target", "bytes", "last used", "entry")
    size = f"{number_of(len(rows), 'kernels')}, {total / 1e6:.1f} MB of at most {cache.limit / 1e9:.0f} GB"
    text = f"{table(columns[:4], [row[:4] for row in rows])}\n" if rows else ""
    data = {
        "folder": str(cache.folder),
        "bytes": total,
        "limit": cache.limit,
        "kernels": [dict(zip(columns, row, strict=True)) for row in rows],
    }
    emit(f"{text}{size}\nin {cache.folder}", data, as_json)


@app.command("clear")
def clear(as_json: Json = False) -> None:
    """Remove all kernels from the cache; processes that use some keep them until they end."""
    from perfdojo_sdk.models.cache import KernelCache

    cache = KernelCache()
    gone = cache.clear()
    total = sum(entry.bytes for entry in gone)
    text = f"removed {number_of(len(gone), 'kernels')}, {total / 1e6:.1f} MB, from {cache.folder}"
    emit(text, {"folder": str(cache.folder), "kernels": len(gone), "bytes": total}, as_json)
