"""Random programs of the shapes people write, each beside PyTorch: where are the cliffs?

    python benchmarks/cliffs.py [--seed 0] [--programs 60] [--threads 1] [--state FILE] [--compile] [--json]

Each program of ``benchmarks/cliff/programs.py`` is planned by the target's expert; its games are compiled and
timed like a library's, the result is compared with PyTorch's, and both take turns. A ratio is the median over
the rounds of peer / ours in the same round; the peer is the better of eager and, with ``--compile``,
``torch.compile``. All times are measured, warm, by the median of the calls in a round.

After an interruption the same command with the same ``--state`` goes on. The worst three are named with the
nests that their plan left as they were, or with their distance from the model's least time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cliff.programs import case
from benchmarks.cliff.race import Race
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.plugins import load_plugins

#: The seeds of run ``s`` are ``s * STRIDE`` and the following ones.
STRIDE = 100_000

#: A ratio above this counts as this in the geometric mean.
MOST = 4.0

#: The bars: nearly all programs, each program, and the share that has to meet the first.
NEARLY, NONE_BELOW, SHARE = 0.8, 0.5, 0.95


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a run: geometric mean, share of programs above the bar, and the worst three."""
    timed = sorted((row for row in rows if "ratio" in row), key=lambda row: row["ratio"])
    ratios = [row["ratio"] for row in timed]
    mean = math.exp(sum(math.log(min(r, MOST)) for r in ratios) / len(ratios)) if ratios else math.nan
    share = sum(r >= NEARLY for r in ratios) / len(ratios) if ratios else 0.0
    return {
        "programs": len(rows),
        "problems": [row["seed"] for row in rows if "problem" in row],
        "geometric_mean": mean,
        "share_nearly": share,
        "below": [row["seed"] for row in timed if row["ratio"] < NONE_BELOW],
        "worst": [
            {**{k: row[k] for k in ("seed", "family", "ratio", "program")}, "causes": causes(row)}
            for row in timed[:3]
        ],
    }


def causes(row: Mapping[str, Any]) -> list[str]:
    """The nests that a plan left as they were; where there are none, how far its time is from the model's."""
    if row["left"]:
        return list(row["left"])
    times = row["ours_ms"] / row["least_ms"]
    return [
        f"no nest was left; {times:.1f} times the least time by the model, {row['least_ms']:.4f} ms, in which"
        " each nest computes at the peak and moves its data once"
    ]


def text(rows: list[dict[str, Any]], found: Mapping[str, Any]) -> str:
    """The table and the summary as people read them."""
    lines = [f"{'seed':>8} {'family':18} {'ours ms':>9} {'eager ms':>9} {'ratio':>6}"]
    for row in sorted(rows, key=lambda row: row.get("ratio", -1)):
        if "problem" in row:
            lines.append(f"{row['seed']:8} {row['family']:18} {row['problem'][:90]}")
        else:
            figures = f"{row['ours_ms']:9.4f} {row['eager_ms']:9.4f} {row['ratio']:6.2f}"
            lines.append(f"{row['seed']:8} {row['family']:18} {figures}")
    mean, share = found["geometric_mean"], 100 * found["share_nearly"]
    lines.append(
        f"{found['programs']} programs: geometric mean {mean:.2f} (above {MOST:g} counts as {MOST:g}), "
        f"{share:.0f} % at least {NEARLY}, {len(found['below'])} below {NONE_BELOW}, "
        f"{len(found['problems'])} with a problem"
    )
    for row in found["worst"]:
        lines += [f"worst: seed {row['seed']}, {row['ratio']:.2f}", *row["causes"], row["program"]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", default="best")
    parser.add_argument("--state", type=Path, help="a file of rows; default: build/cliffs/SEED.jsonl")
    parser.add_argument("--only", default="", help="families whose name contains this")
    parser.add_argument("--compile", action="store_true", help="race torch.compile, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    state = options.state or Path(f"build/cliffs/{options.seed}-{options.threads}.jsonl")
    state.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    done = {row["seed"] for row in rows}
    plugins = load_plugins()
    race = Race(plugins, plugins.require(options.target), options.threads, options.rounds, options.compile)
    first = options.seed * STRIDE
    for seed in range(first, first + options.programs):
        if seed in done or options.only not in case(seed).family:
            continue
        row = {"seed": seed, **race.row(case(seed))}
        rows.append(row)
        with state.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            seed, row["family"], f"{row['ratio']:.2f}" if "ratio" in row else row["problem"], file=sys.stderr
        )
    found = summary(rows)
    print(json.dumps({"rows": rows, **found}, indent=1) if options.json else text(rows, found))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DojoError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
