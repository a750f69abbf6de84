"""The paper's figures 8 and 9: results of passes on micro-kernels, on the simulator.

Figure 8 shows the fraction of peak that the passes naive, greedy and heuristic reach. Figure 9 compares the
heuristic's cycles with those of recorded tuned programs, of the naive program compiled by a C compiler, and
of the kernel compiled by xDSL, all simulated here, and with published cycles of xDSL and of hand-written code
(Lopoukhine et al., CGO 2025).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import exp, log
from typing import TYPE_CHECKING, Any, TypeVar

from perfdojo_sdk.hookspecs.services import Experiment, ExperimentRequest, ExperimentResult

if TYPE_CHECKING:
    from perfdojo_sdk.core.program import Program
    from perfdojo_sdk.core.transformation import Trace
    from perfdojo_sdk.hookspecs.types import Artifact, Failure
    from perfdojo_sdk.kernels.selection import Kernel

T = TypeVar("T")

#: Small kernels of each kind, for the quick form.
QUICK = (
    "dsum[4,4] drelu[4,4] dconv3x3[4,4] dmaxpool[4,4] dmatmul[4,16,8] ddot[128] ssum[40,40] saxpy[64]"
    " smatmul_transb[4,16,16]"
)

#: Kernel -> published cycles of the xDSL compiler's code; next, of hand-written code.
XDSL: Mapping[str, int] = {
    "dmatmul[4,16,8]": 668, "dmatmul[8,8,8]": 748, "dmatmul[1,200,5]": 1056, "dmatmul[4,32,32]": 4485,
    "dmatmul[4,64,64]": 17099, "dmatmul_transb[4,16,16]": 1244, "dconv3x3[4,4]": 248,
    "dconv3x3[20,20]": 5946, "dmaxpool[4,4]": 224, "dmaxpool[20,20]": 5426, "dsumpool[4,4]": 230,
    "dsumpool[20,20]": 5633, "drelu[4,4]": 50, "drelu[20,20]": 433, "dsum[4,4]": 45, "dsum[20,20]": 435,
    "dfill[4,4]": 39, "dfill[20,20]": 431,
}  # fmt: skip
BY_HAND: Mapping[str, int] = {
    "smatmul_transb[4,16,16]": 755, "ddot[128]": 177, "saxpy[64]": 100, "ddense[8,8,8]": 2673,
    "srelu[40,40]": 834, "ssum[40,40]": 834,
}  # fmt: skip

PASSES = ("naive", "greedy", "heuristic")

#: One kernel of a selection, with its sizes.
_WORD = re.compile(r"[^\s\[]+(?:\[[^]]*\])?")


def experiments() -> list[Experiment]:
    """All experiments, for the hook."""
    from perfdojo_riscv_snitch.published import published

    return [
        Experiment(
            "riscv_snitch/published", "Cycles of the passes beside published ones, as a table.", published
        ),
        Experiment("riscv_snitch/fig8", "Fraction of peak of the passes naive, greedy and heuristic.", fig8),
        Experiment(
            "riscv_snitch/fig9", "Cycles of the heuristic beside C, xDSL and hand-written code.", fig9
        ),
    ]


def fig8(request: ExperimentRequest) -> ExperimentResult:
    """Fraction of peak: the arithmetic that a program asks for, at one instruction a cycle, by its cycles."""
    bench, rows = Bench(), list[dict[str, Any]]()
    for kernel in bench.kernels(request):
        request.progress(f"{_title(kernel)}: {', '.join(PASSES)}")
        cycles = bench.passes(kernel, PASSES)
        peak = bench.peak(kernel.program)
        fractions = {name: peak / count for name, count in cycles.items()}
        rows.append({"kernel": _title(kernel), "peak": peak, "cycles": cycles, "fraction": fractions})
    means = {name: _mean(row["fraction"][name] for row in rows) for name in PASSES}
    speedups = {name: _mean(r["cycles"]["naive"] / r["cycles"][name] for r in rows) for name in PASSES[1:]}
    text = _table(("kernel", *PASSES), [(r["kernel"], *_shares(r["fraction"])) for r in rows])
    text += "\n" + _table(("geometric mean", *PASSES), [("fraction of peak", *_shares(means))])
    text += "".join(f"\n{name} over naive: {factor:.2f} times" for name, factor in speedups.items())
    text += "\ncycles: simulated; peak: estimated, one FPU instruction a cycle, two f32 at once"
    data = {"rows": rows, "fraction": means, "speedup_over_naive": speedups, "provenance": "simulated"}
    series = {name: [row["fraction"][name] for row in rows] for name in PASSES}
    return _written(request, "fig8", text, data, series, "fraction of peak (simulated)")


#: Column of figure 9 -> the origin of its cycles.
PROVENANCE: Mapping[str, str] = {
    "heuristic": "simulated",
    "tuned": "simulated",
    "C": "simulated",
    "xDSL": "simulated",
    "xDSL, there": "published",
    "by hand": "published",
}


def fig9(request: ExperimentRequest) -> ExperimentResult:
    """The heuristic's cycles beside those of other ways to the same kernel, and what bounds it."""
    bench, rows = Bench(), []
    for kernel in bench.kernels(request):
        title = _title(kernel)
        request.progress(f"{title}: heuristic, tuned, C, xDSL")
        ours, binds = bench.heuristic(kernel)
        cycles: dict[str, float | None] = {"heuristic": ours, "tuned": bench.tuned(kernel)}
        missing: dict[str, str] = {}
        for name, made in (("C", bench.by_c(kernel)), ("xDSL", bench.by_xdsl(kernel))):
            cycles[name] = None if isinstance(made, str) else bench.cycles(made)
            if isinstance(made, str):
                missing[name] = made
        cycles |= {"xDSL, there": XDSL.get(title), "by hand": BY_HAND.get(title)}
        rows.append({"kernel": title, "cycles": cycles, "missing": missing, "binds": binds})
    return _written(request, "fig9", *_comparison(rows), "cycles, the heuristic's being 1")


def _comparison(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[str, Mapping[str, Any], Mapping[str, Sequence[float]]]:
    """Text, data and the columns of the picture."""
    heads, others = tuple(PROVENANCE), tuple(PROVENANCE)[1:]
    means = {}
    for name in others:
        pairs = [r["cycles"][name] / r["cycles"]["heuristic"] for r in rows if r["cycles"][name]]
        means[name] = {"speedup": _mean(pairs), "kernels": len(pairs)}
    text = _table(
        ("kernel", *heads, "  what binds the heuristic"),
        [(r["kernel"], *(_number(r["cycles"][n]) for n in heads), f"  {r['binds']}") for r in rows],
    )
    for name, found in means.items():
        if found["kernels"]:
            text += f"\nheuristic over {name}: {found['speedup']:.2f} times in the geometric mean"
            text += f" ({found['kernels']} kernels)"
    for word in ("simulated", "published"):
        text += f"\n{word}: {'; '.join(name for name, where in PROVENANCE.items() if where == word)}"
    text += "\nxDSL, there, and by hand: on a core of the same kind (Lopoukhine et al., CGO 2025)"
    if not means["tuned"]["kernels"]:
        text += "\nno tuned program is on record; make some: perfdojo-sdk tune KERNEL --target riscv_snitch"
    reasons: dict[str, list[str]] = {}
    for row in rows:
        for name, why in row["missing"].items():
            reasons.setdefault(f"no {name}: {why}", []).append(row["kernel"])
    text += "".join(f"\n{why} ({', '.join(kernels)})" for why, kernels in reasons.items())
    data = {"rows": rows, "heuristic_over": means, "provenance": PROVENANCE}
    series = {n: [(r["cycles"][n] or 0.0) / r["cycles"]["heuristic"] for r in rows] for n in others}
    return text, data, series


# -- measuring ---------------------------------------------------------------------------------------


class Bench:
    """Plays passes and counts cycles."""

    def __init__(self) -> None:
        from perfdojo_sdk.plugins import load_plugins

        self.plugins = load_plugins(targets=["riscv_snitch"])
        self.target = self.plugins.target("riscv_snitch")
        self.rules = self.plugins.rules(self.target)
        self.generator = self.plugins.code_generator(self.target)
        self.runner = self.plugins.runner(self.target)

    def kernels(self, request: ExperimentRequest) -> Sequence[Kernel]:
        """The requested kernels; else a few (quick form), or the target's default list."""
        from perfdojo_sdk.kernels.selection import select

        default = QUICK if request.quick else " ".join(self.target.capabilities.selections["default"])
        operators = self.plugins.operators_for(self.target)
        # One by one: unlike those of a library, kernels of a figure may take the same inputs.
        words = _WORD.findall(request.kernels or default)
        return [kernel for word in words for kernel in select(word, operators, self.target.dialect)]

    def passes(self, kernel: Kernel, names: Sequence[str]) -> dict[str, float]:
        """Pass -> cycles of the best game that it plays."""
        from perfdojo_riscv_snitch.passes import greedy, heuristic
        from perfdojo_sdk.search.passes import naive

        play: Mapping[str, Callable[[], Sequence[Trace]]] = {
            "naive": lambda: (naive(kernel.program, self.rules),),
            "greedy": lambda: greedy(kernel.program, self.rules, self.target),
            "heuristic": lambda: heuristic(kernel.program, self.rules, self.target),
        }
        return {n: min(self.cycles(self.compile(t.program, kernel)) for t in play[n]()) for n in names}

    def compile(self, program: Program, kernel: Kernel) -> Artifact:
        made = self.runner.compile(self.generator.generate(program, kernel.symbol))
        return _sound(made, kernel.name)

    def heuristic(self, kernel: Kernel) -> tuple[float, str]:
        """Cycles of the expert's best game, and what binds it."""
        from perfdojo_riscv_snitch.breakdown import breakdown
        from perfdojo_riscv_snitch.passes import heuristic
        from perfdojo_sdk.hookspecs.types import RunRequest

        games = heuristic(kernel.program, self.rules, self.target)
        made = [self.compile(game.program, kernel) for game in games]
        cycles, best = min(((self.cycles(each), k) for k, each in enumerate(made)))
        found = breakdown(made[best], RunRequest(repeats=1))
        return cycles, found.limit if found else "unknown"

    def tuned(self, kernel: Kernel) -> float | None:
        """Cycles of the best program on record, run again; None when there is none."""
        from perfdojo_sdk.core.text import parse

        text = kernel.program.text.encode()
        programs = self.records.get((kernel.name, hashlib.sha256(text).hexdigest()), ())
        found = [self.cycles(self.compile(parse(p, self.target.dialect), kernel)) for p in programs]
        return min(found, default=None)

    @cached_property
    def records(self) -> Mapping[tuple[str, str], set[str]]:
        """Kernel and the hash of its initial program -> programs that searches and builds ended with."""
        from perfdojo_sdk.library.build import RECORDS, default_directory
        from perfdojo_sdk.store.database import Records

        found: dict[tuple[str, str], set[str]] = {}
        place = os.environ.get("PERFDOJO_DB") or str(default_directory("riscv_snitch") / RECORDS)
        if "://" not in place and not os.path.exists(place):
            return found
        with Records(place, create=False) as records:
            for key, record in records:
                if key.target == "riscv_snitch":
                    found.setdefault((key.kernel, key.program_sha256), set()).add(record.program)
        return found

    def by_c(self, kernel: Kernel) -> Artifact | str:
        """The naive program as C, or why there is none."""
        from perfdojo_riscv_snitch.compiled_c import compiled_c
        from perfdojo_sdk.search.passes import naive

        program = naive(kernel.program, self.rules).program
        return compiled_c(program, self.target.dialect, kernel.symbol)

    def by_xdsl(self, kernel: Kernel) -> Artifact | str:
        from perfdojo_riscv_snitch.xdsl import compiled_by_xdsl

        return compiled_by_xdsl(kernel.operator, self.generator.generate(kernel.program, kernel.symbol))

    def cycles(self, artifact: Artifact) -> float:
        from perfdojo_sdk.hookspecs.types import RunRequest

        measured = self.runner.run(artifact, RunRequest(repeats=1))
        return float(_sound(measured, artifact.symbol).details["snitch.cycles"])

    def peak(self, program: Program) -> float:
        """Cycles that no kernel can beat."""
        from perfdojo_riscv_snitch.peak import bound

        found = bound(program, self.target.capabilities)
        assert found is not None
        return found.seconds * float(self.target.capabilities.options["clock_hz"])


def _sound(result: T | Failure, name: str) -> T:
    """``result``, unless it is a failure; the command that runs experiments says which one failed."""
    from perfdojo_sdk.hookspecs.types import Failure

    if isinstance(result, Failure):
        raise RuntimeError(f"{name}: {result.reason}: {result.detail}")
    return result


# -- showing -----------------------------------------------------------------------------------------


def _title(kernel: Kernel) -> str:
    return f"{kernel.operator}[{','.join(str(size) for _, size in kernel.sizes)}]"


def _mean(numbers: Iterator[float] | Sequence[float]) -> float:
    """The geometric mean; 0 if there are no numbers."""
    logs = [log(number) for number in numbers]
    return exp(sum(logs) / len(logs)) if logs else 0.0


def _shares(fractions: Mapping[str, float]) -> list[str]:
    return [f"{fractions[name]:.1%}" for name in PASSES]


def _number(count: float | None) -> str:
    return "-" if count is None else f"{count:.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"{r[0]:26}" + "".join(f"{cell:>12}" for cell in r[1:]) for r in (head, *rows))


def _written(
    request: ExperimentRequest,
    name: str,
    text: str,
    data: Mapping[str, Any],
    series: Mapping[str, Sequence[float]],
    label: str,
) -> ExperimentResult:
    """The result with its data as JSON and, where matplotlib is installed, a picture."""
    files = [request.folder / f"{name}.json"]
    files[0].write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        text += "\nno picture without matplotlib: pip install 'perfdojo-riscv-snitch[figures]'"
        return ExperimentResult(text, data, tuple(files))
    kernels = [row["kernel"] for row in data["rows"]]
    figure = Figure(figsize=(2 + 0.45 * len(kernels), 5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(series)
    for k, (title, heights) in enumerate(series.items()):
        axes.bar([at + k * width for at in range(len(kernels))], heights, width, label=title)
    axes.set_xticks([at + 0.4 - width / 2 for at in range(len(kernels))], kernels, rotation=75, fontsize=8)
    axes.set_ylabel(label)
    axes.legend()
    files.append(request.folder / f"{name}.png")
    figure.savefig(files[1], dpi=120)
    return ExperimentResult(text, data, tuple(files))
