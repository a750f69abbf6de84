"""The paper's figures 8 and 9: what passes make of micro-kernels, on the simulator.

Figure 8 shows the fraction of peak that the passes naive, greedy and heuristic reach. Figure 9 puts the
heuristic's cycles beside what a C compiler makes of the naive program, simulated here as well, and beside
cycles that others published for the xDSL compiler and for hand-written code (Lopoukhine et al., CGO 2025),
which are not repeated here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, log
from typing import TYPE_CHECKING, Any

from perfdojo_sdk.hookspecs.services import Experiment, ExperimentRequest, ExperimentResult

if TYPE_CHECKING:
    from perfdojo_sdk.core.program import Program
    from perfdojo_sdk.core.transformation import Trace
    from perfdojo_sdk.hookspecs.types import Artifact
    from perfdojo_sdk.kernels.selection import Kernel

#: Small ones of each kind.
QUICK = (
    "dsum[4,4] drelu[4,4] dconv3x3[4,4] dmaxpool[4,4] dmatmul[4,16,8] ddot[128] ssum[40,40] saxpy[64]"
    " smatmul_transb[4,16,16]"
)

#: Kernel -> cycles that are published: of the xDSL compiler's code, and of hand-written code.
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


def experiments() -> list[Experiment]:
    """All, for the hook."""
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
    bench, rows = Bench(), []
    for kernel in bench.kernels(request.quick):
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


def fig9(request: ExperimentRequest) -> ExperimentResult:
    """The heuristic's cycles beside those of other ways to the same kernel."""
    bench, rows = Bench(), []
    others = ("C", "xDSL", "by hand")
    for kernel in bench.kernels(request.quick):
        title = _title(kernel)
        request.progress(f"{title}: heuristic, C")
        cycles: dict[str, float | None] = {**bench.passes(kernel, ("heuristic",))}
        cycles["C"], why = bench.by_c(kernel)
        cycles |= {"xDSL": XDSL.get(title), "by hand": BY_HAND.get(title)}
        rows.append({"kernel": title, "cycles": cycles, "why_no_c": why})
    means = {}
    for name in others:
        pairs = [r["cycles"][name] / r["cycles"]["heuristic"] for r in rows if r["cycles"][name]]
        means[name] = {"speedup": _mean(pairs), "kernels": len(pairs)}
    heads = ("heuristic", *others)
    text = _table(
        ("kernel", *heads), [(r["kernel"], *(_number(r["cycles"][name]) for name in heads)) for r in rows]
    )
    for name, found in means.items():
        if found["kernels"]:
            text += f"\nheuristic over {name}: {found['speedup']:.2f} times in the geometric mean"
            text += f" ({found['kernels']} kernels)"
    text += "\nheuristic, C: simulated; xDSL, by hand: published cycles of a core of the same kind"
    text += "".join(f"\nno C of {row['kernel']}: {row['why_no_c']}" for row in rows if row["why_no_c"])
    data = {"rows": rows, "heuristic_over": means}
    data["provenance"] = {
        "heuristic": "simulated",
        "C": "simulated",
        "xDSL": "published",
        "by hand": "published",
    }
    rate = [
        {name: (count / r["cycles"]["heuristic"] if count else 0.0) for name, count in r["cycles"].items()}
        for r in rows
    ]
    series = {name: [each[name] for each in rate] for name in others}
    return _written(request, "fig9", text, data, series, "cycles, the heuristic's being 1")


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

    def kernels(self, quick: bool) -> Sequence[Kernel]:
        from perfdojo_sdk.kernels.selection import select

        words = QUICK if quick else " ".join(self.target.capabilities.selections["default"])
        return select(words, self.plugins.operators_for(self.target), self.target.dialect)

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

    def by_c(self, kernel: Kernel) -> tuple[float | None, str]:
        """Cycles of the naive program as C, and why there are none."""
        from perfdojo_riscv_snitch.compiled_c import compiled_c
        from perfdojo_sdk.search.passes import naive

        made = compiled_c(naive(kernel.program, self.rules).program, self.target.dialect, kernel.symbol)
        return (None, made) if isinstance(made, str) else (self.cycles(made), "")

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


def _sound(result: Any, name: str) -> Any:
    """``result``, unless it is a failure; the command that runs experiments says which one failed."""
    from perfdojo_sdk.hookspecs.types import Failure

    if isinstance(result, Failure):
        raise RuntimeError(f"{name}: {result.reason}: {result.detail}")
    return result


# -- showing -----------------------------------------------------------------------------------------


def _title(kernel: Kernel) -> str:
    return f"{kernel.operator}[{','.join(str(size) for _, size in kernel.sizes)}]"


def _mean(numbers: Iterator[float] | Sequence[float]) -> float:
    """Geometric; 0 of nothing."""
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
