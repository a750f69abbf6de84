"""The kernels for which others published cycles: results of the passes, and what bounds them.

The table of the documentation's page is this experiment's text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult

#: A few small kernels of each kind, for the quick form.
QUICK = ("dfill[4,4]", "dsumpool[4,4]", "dmatmul[4,16,8]", "saxpy[64]")

HEAD = ("kernel", "initial", "greedy", "expert", "of peak", "bound by", "published", "gain")


def published(request: ExperimentRequest) -> ExperimentResult:
    """Cycles of the initial program and of the passes beside published ones, as a table in Markdown."""
    from perfdojo_riscv_snitch.experiments import BY_HAND, XDSL, Bench

    bench, rows = Bench(), []
    for name in QUICK if request.quick else (*XDSL, *BY_HAND):
        request.progress(name)
        row = _row(bench, name)
        row |= {"published": XDSL.get(name) or BY_HAND[name], "by": "xDSL" if name in XDSL else "hand"}
        rows.append(row)
    gain = geometric_mean(row["published"] / row["expert"] for row in rows)
    slower = [row["kernel"] for row in rows if row["expert"] > row["published"]]
    lines = [_line(HEAD), _line(["---"] * len(HEAD)), *(_line(_cells(row)) for row in rows)]
    text = "\n".join(lines)
    text += f"\n\nexpert over published: {gain:.3f} times in the geometric mean of {len(rows)} kernels"
    text += f"\nslower than published: {', '.join(slower) or 'none'}"
    text += "\n" + _tuned(rows)
    data = {"rows": rows, "gain": gain, "provenance": "simulated; published: others' measurements"}
    file = request.folder / "published.json"
    file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return ExperimentResult(text, data, (file,))


def _row(bench: Any, name: str) -> dict[str, Any]:
    from perfdojo_riscv_snitch.breakdown import breakdown
    from perfdojo_riscv_snitch.passes import greedy, heuristic
    from perfdojo_sdk.hookspecs.types import RunRequest
    from perfdojo_sdk.kernels.selection import select

    (kernel,) = select(name, bench.plugins.operators_for(bench.target), bench.target.dialect)
    arguments = (kernel.program, bench.rules, bench.target)

    def cycles(program: Any) -> int:
        return int(bench.cycles(bench.compile(program, kernel)))

    best = min((game.program for game in heuristic(*arguments)), key=cycles)
    parts = breakdown(bench.compile(best, kernel), RunRequest(repeats=1))
    assert parts is not None
    found = {part.name: part.amount for part in parts.parts}
    return {
        "kernel": name,
        "initial": cycles(kernel.program),
        "greedy": min(cycles(game.program) for game in greedy(*arguments)),
        "expert": cycles(best),
        "tuned": bench.tuned(kernel),
        "peak": bench.peak(kernel.program),
        "parts": found,
    }


def _tuned(rows: Sequence[Mapping[str, Any]]) -> str:
    """A summary of recorded searches: their programs, run again, against the published times and the
    expert's."""
    found = [row for row in rows if row["tuned"] is not None]
    if not found:
        return "no tuned program is on record; make some: perfdojo-sdk tune KERNEL --target riscv_snitch"
    gain = geometric_mean(row["published"] / row["tuned"] for row in found)
    slower = [row["kernel"] for row in found if row["tuned"] > row["published"]]
    better = [f"{r['kernel']} {r['expert']} -> {r['tuned']:.0f}" for r in found if r["tuned"] < r["expert"]]
    text = f"tuned over published: {gain:.3f} times in the geometric mean of {len(found)} kernels on record"
    text += f"\ntuned and slower than published: {', '.join(slower) or 'none'}"
    return f"{text}\ntuned and faster than the expert: {', '.join(better) or 'none'}"


def _cells(row: Mapping[str, Any]) -> list[str]:
    """The cells of a table row: the share of issue cycles, and the largest of the other parts."""
    parts, expert = dict(row["parts"]), row["expert"]
    issue = parts.pop("issue", 0)
    most = max(parts, key=parts.__getitem__)
    bound = f"issue {issue / expert:.0%}, {most} {parts[most] / expert:.0%}"
    gain = f"{row['published'] / expert:.2f}"
    counts = [str(row[name]) for name in ("initial", "greedy", "expert")]
    return [
        row["kernel"],
        *counts,
        f"{row['peak'] / expert:.1%}",
        bound,
        f"{row['published']} ({row['by']})",
        gain,
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
