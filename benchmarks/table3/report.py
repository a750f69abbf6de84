"""The report of the times: ratios, the fraction of the roofline, and a mean only if it is fair to give
one.

A ratio is the best peer's time over ours, compared round by round: above one, ours is faster. A mean needs
all six peers and says over how many operators it is. Systems beyond the six have columns and no part in
ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from typing import Any

from perfdojo_sdk.measure.timing import Ratio, ratio_by_rounds
from perfdojo_sdk.peers.operators import OPERATORS
from perfdojo_sdk.peers.race import Entry
from perfdojo_sdk.peers.systems import ALL, PEERS, Peer

OURS = "ours"
HUGE_PAGE_BYTES = 2 << 20


@dataclass
class Row:
    """One operator on one number of threads."""

    operator: str
    threads: int
    cold: bool
    sets: int
    bound_s: float
    """The roofline: no kernel can be faster, as far as the probe of the machine can tell."""
    limit: str
    entries: dict[str, Entry]

    @property
    def best_peer(self) -> tuple[str, float] | None:
        """The fastest peer that is right, beside ours if there is one, and its median in seconds."""
        times = {n: e.median for n, e in self.entries.items() if n in PEERS and e.median is not None}
        beside = {name: ratio.value for name, ratio in self._ratios.items()} or times
        name = min(beside, key=beside.__getitem__, default=None)
        return None if name is None else (name, times[name])

    @property
    def ratio(self) -> Ratio | None:
        """The best peer's time over ours, with its interval."""
        return min(self._ratios.values(), key=lambda ratio: ratio.value, default=None)

    @cached_property
    def _ratios(self) -> dict[str, Ratio]:
        """The time of each peer that is right over ours."""
        ours, right = self.entries.get(OURS), {n: e for n, e in self.entries.items() if e.median is not None}
        if ours is None or ours.median is None:
            return {}
        return {n: ratio_by_rounds(e.turns, ours.turns) for n, e in right.items() if n in PEERS}

    def roofline_fraction(self, name: str) -> float | None:
        median = self.entries[name].median if name in self.entries else None
        return None if median is None else self.bound_s / median


@dataclass
class Run:
    """All that one run measured, and under which settings."""

    machine: str
    settings: dict[str, str]
    versions: dict[str, str]
    absent: dict[str, str]
    """Peers that could not take part, and why."""
    rows: list[Row]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Run:
        rows = [
            Row(**{**row, "entries": {name: Entry(**entry) for name, entry in row["entries"].items()}})
            for row in data["rows"]
        ]
        return Run(**{**data, "rows": rows})


def merged(runs: Sequence[Run]) -> Run:
    """Several runs on one machine as one; of a row measured twice, the later stays.

    ValueError for runs that do not belong together.
    """
    first = runs[0]
    rows: dict[tuple[str, int], Row] = {}
    for run in runs:
        if (run.machine, run.settings, run.versions) != (first.machine, first.settings, first.versions):
            raise ValueError("the runs differ in machine, settings or versions: one table cannot show them")
        rows.update({(row.operator, row.threads): row for row in run.rows})
    absent = {name: why for run in runs for name, why in run.absent.items()}
    order = list(OPERATORS)
    ordered = sorted(rows.values(), key=lambda row: (row.threads, order.index(row.operator)))
    return Run(first.machine, first.settings, first.versions, absent, ordered)


# -- summary ---------------------------------------------------------------------------------------------


def geometric_mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(list(values))


def summary(run: Run, threads: int) -> list[str]:
    """The means on ``threads`` threads, each with the number of operators that it is over; or why not."""
    absent = sorted(PEERS.keys() & run.absent.keys())
    if absent:
        why = "; ".join(run.absent[name] for name in absent)
        return [f"no summary figure: it needs all {len(PEERS)} peers. {why}"]
    rows = [row for row in run.rows if row.threads == threads]
    lines = []
    ratios = {row.operator: row.ratio.value for row in rows if row.ratio is not None}
    if ratios:
        worst = min(ratios, key=ratios.__getitem__)
        lines.append(
            f"best peer / PerfDojo: geometric mean {geometric_mean(ratios.values()):.2f} {_over(ratios)}, "
            f"least {ratios[worst]:.2f} ({worst})"
        )
    else:
        lines.append("best peer / PerfDojo: no operator with both")
    fractions = {row.operator: row.roofline_fraction(OURS) for row in rows}
    ours = {name: value for name, value in fractions.items() if value is not None}
    if ours:
        mean = 100 * geometric_mean(ours.values())
        lines.append(f"PerfDojo's fraction of the roofline: geometric mean {mean:.0f} % {_over(ours)}")
    peers = {row.operator: row.bound_s / row.best_peer[1] for row in rows if row.best_peer}
    if peers:
        mean = 100 * geometric_mean(peers.values())
        lines.append(f"the best peer's fraction of the roofline: geometric mean {mean:.0f} % {_over(peers)}")
    return lines


def _over(values: Mapping[str, float]) -> str:
    count, all_ = len(values), len(OPERATORS)
    return f"over all {all_} operators" if count == all_ else f"over {count} of {all_} operators"


def fresh_memory(run: Run, threads: int) -> list[str]:
    """A line for each contender that allocated much of its output's memory again at every call.

    Then its time is not that of the operator only: the allocator's settings had no effect.
    """
    lines = []
    for row in run.rows:
        pages = 4 * prod(OPERATORS[row.operator].output) / HUGE_PAGE_BYTES
        for name, entry in row.entries.items():
            faults = statistics.median(entry.faults or [0])
            if row.threads == threads and faults > max(1, pages / 4):
                lines.append(f"{row.operator}: {_title(name)} had {faults:.0f} page faults a call")
    return lines


def left_out(run: Run, threads: int) -> list[str]:
    """A line for each contender that failed on an operator, or was wrong."""
    return [
        f"{row.operator}: {_title(name)} is left out: {entry.failure}"
        for row in run.rows
        for name, entry in row.entries.items()
        if row.threads == threads and entry.failure and entry.failure != "missing"
    ]


# -- tables ----------------------------------------------------------------------------------------------


def table(run: Run, threads: int, markdown: bool = False) -> str:
    """One line for each operator; times are medians in milliseconds."""
    peers = [name for name in ALL if any(name in row.entries for row in run.rows)]
    titles = ["operator", "data", "PerfDojo", *(ALL[n].title for n in peers)]
    titles += ["best peer / PerfDojo", "roofline", "reached"]
    rows = [_cells(row, peers, markdown) for row in run.rows if row.threads == threads]
    if markdown:
        lines = [titles, ["---"] * len(titles), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    widths = [max(map(len, column)) for column in zip(titles, *rows)]
    padded = (map(str.ljust, line, widths) for line in [titles, *rows])
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _cells(row: Row, peers: Sequence[str], markdown: bool) -> list[str]:
    best = row.best_peer
    cells = [row.operator, "cold" if row.cold else "warm", _time(row.entries.get(OURS))]
    for name in peers:
        text = _time(row.entries.get(name))
        is_best = best is not None and best[0] == name
        cells.append((f"**{text}**" if markdown else f"{text}*") if is_best else text)
    ratio, reached = row.ratio, row.roofline_fraction(OURS)
    cells.append("" if ratio is None else f"{ratio.value:.2f}{'' if ratio.decided else '~'}")
    cells += [f"{1e3 * row.bound_s:.3g}", "" if reached is None else f"{100 * reached:.0f} %"]
    return cells


def _time(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry.median is not None:
        return f"{1e3 * entry.median:.3g}"
    if entry.failure == "missing":
        return "missing"
    return "wrong" if entry.failure.startswith("wrong") else "failed"


def _title(name: str) -> str:
    return "PerfDojo" if name == OURS else ALL[name].title


def text(run: Run, markdown: bool = False) -> str:
    """Everything for a reader: settings, and for each number of threads table, exceptions and means."""
    blocks = ["\n".join(_heading(run))]
    for threads in sorted({row.threads for row in run.rows}):
        number = f"{threads} thread{'' if threads == 1 else 's'}"
        notes = [*left_out(run, threads), *fresh_memory(run, threads), *summary(run, threads)]
        between = "\n\n" if markdown else "\n"
        shown = "\n".join(f"- {note}" for note in notes) if markdown else "\n".join(notes)
        blocks.append(f"{number}, median ms:\n\n{table(run, threads, markdown)}{between}{shown}")
    return "\n\n".join(blocks)


def _heading(run: Run) -> list[str]:
    versions = ", ".join(f"{_title(name)} {version}" for name, version in run.versions.items())
    return [
        f"machine: {run.machine}",
        f"versions: {versions}",
        *(f"{name}: {value}" for name, value in run.settings.items()),
        "cold: the data exceed the last-level cache, calls take turns on fresh sets; warm: one set, in cache",
        "best peer: *, by its time over ours, the median over rounds; ~: its 95 % interval includes 1",
        "roofline: estimated from a probe",
    ]


def install_hint(absent: Mapping[str, str], peers: Mapping[str, Peer] = ALL) -> str:
    """One command for all that is missing."""
    packages = sorted({word for name in absent for word in peers[name].packages.split()})
    return f"pip install -c constraints.txt {' '.join(packages)}   (all six: pip install -e '.[bench]')"
