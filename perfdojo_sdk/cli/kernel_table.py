"""The kernels of a model that was built: times of a call, gains, and which stayed as they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from perfdojo_sdk.cli.console import seconds, table
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.library.manifest import KernelEntry
    from perfdojo_sdk.models.manifest import PartEntry

#: The begin of a note that tells why a kernel has no moves.
_KEPT = "the initial program is kept: "


def kernel_lines(
    entries: Iterable[KernelEntry], calls: Mapping[str, int], parts: Iterable[PartEntry]
) -> list[str]:
    """A table of kernels and of parts that peers run, the notes on kernels, and how many gained."""
    entries = list(entries)
    rows = [_row(entry, calls[entry.name]) for entry in entries]
    for part in parts:
        time = seconds(part.median_s)
        rows.append((f"{part.peer}: {', '.join(part.nodes)}", 1, time, "", time, ""))
    columns = ["kernel", "calls", "time", "speed-up", "together", "remarks"]
    if not any(row[-1] for row in rows):
        rows, columns = [row[:-1] for row in rows], columns[:-1]
    lines = [table(columns, rows)] if rows else []
    lines += [f"note: {e.name}: {note}" for e in entries for note in _notes(e)]
    lines += [f"fault: {e.name}: {fault}" for e in entries for fault in e.faults]
    return [*lines, _gains(entries)] if entries else lines


def kernel_data(entries: Iterable[KernelEntry], calls: Mapping[str, int]) -> list[dict[str, Any]]:
    """The same kernels, without notes of ours, for programs."""
    return [
        {
            "name": entry.name,
            "calls": calls[entry.name],
            "seconds": entry.timing.call.median_s if entry.timing.call else None,
            "speed_up": entry.timing.call_speed_up,
            "moves": len(entry.moves),
            "notes": _notes(entry),
            "faults": list(entry.faults),
            "suspect": entry.timing.suspect or None,
        }
        for entry in entries
    ]


def _row(entry: KernelEntry, calls: int) -> tuple[object, ...]:
    time, gain = entry.timing.call, entry.timing.call_speed_up
    each = time.median_s if time else 0.0
    return (
        entry.name,
        calls,
        seconds(each) if time else "",
        f"{gain:.1f}x" if gain else "",
        seconds(each * calls) if time else "",
        ", ".join(_remarks(entry)),
    )


def _remarks(entry: KernelEntry) -> list[str]:
    """Short remarks on a row."""
    timing = entry.timing
    found = {
        "initial program": not entry.moves,
        "time holds its pack": entry.packing is not None and timing.packed is None,
        "suspect time": bool(timing.suspect),
        "a plugin failed": bool(entry.faults),
    }
    return [remark for remark, holds in found.items() if holds]


def _notes(entry: KernelEntry) -> list[str]:
    """The notes on a kernel; one says why it has no moves, where that is so."""
    told = entry.moves or any(note.startswith(_KEPT) or " is left out: " in note for note in entry.notes)
    return list(entry.notes) if told else [f"{_KEPT}nothing else was proposed for it", *entry.notes]


def _gains(entries: Iterable[KernelEntry]) -> str:
    """The numbers of kernels that gained, and that stayed as they were."""
    entries = list(entries)
    gained = [e for e in entries if e.moves and (e.timing.call_speed_up or 0) > 1]
    stayed = [e for e in entries if not e.moves]
    text = f"{len(gained)} of {number_of(len(entries), 'kernels')} gained over the initial program"
    text += f", {len(stayed)} stayed on it" if stayed else ""
    untold = len(entries) - len(gained) - len(stayed)
    return text + (f", of {untold} the gain is not known" if untold else "")
