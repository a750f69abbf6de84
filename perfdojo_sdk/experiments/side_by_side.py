"""The paper's figures 11, 12 and 14: our kernels beside other systems.

Each system runs in a process of its own, and they take turns. Systems that are not installed are listed, with
the command that installs them. If the target is not this machine (for example, a simulator), other systems
are left out, since figures of two provenances are never compared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import yaml

from perfdojo_sdk.core.errors import NothingFoundError
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.experiments.figures import bars, written
from perfdojo_sdk.experiments.learning import require_fitting, trained_options
from perfdojo_sdk.experiments.rows import Rows
from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult
from perfdojo_sdk.kernels.operators import OPERATORS
from perfdojo_sdk.kernels.selection import DEFAULT, Kernel, select
from perfdojo_sdk.library.build import KernelResult, Observer, build_library
from perfdojo_sdk.library.manifest import Manifest
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.measure.machine import machine
from perfdojo_sdk.peers.operators import FAMILIES, Operator
from perfdojo_sdk.peers.processes import Process, contenders
from perfdojo_sdk.peers.race import Entry, race
from perfdojo_sdk.peers.systems import ALL, OURS
from perfdojo_sdk.perfllm.strategies import shipped_options
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.search.strategies import AUTO, HEURISTIC

#: Seconds for one answer of another system, its compilation included.
ANSWER_S = 900.0
INITIAL, EXPERT, SEARCH = "initial program", "PerfDojo, expert", "PerfDojo, search"
LEARNED = "PerfLLM"


@dataclass(frozen=True)
class Plan:
    """The content of one figure."""

    name: str
    shown: Mapping[str, str]
    """Selection of a kernel -> its label in the figure; empty: the kernel's name."""
    searches: Mapping[str, str]
    """Label of one of our columns -> the search behind it."""
    evaluations: int
    rounds: int
    threads: int = 1
    options: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Label of one of our columns -> the options of its search."""
    others: tuple[str, ...] = ()
    """The other systems, by their names in ``peers.systems``; empty: all."""


def frameworks(request: ExperimentRequest) -> ExperimentResult:
    """Figure 11: expert and search beside other systems, on the operators of Table 3."""
    evaluations, rounds = (12, 4) if request.quick else (1000, 12)
    shown = {request.kernels or _table_3(request): ""}
    plan = Plan("fig11", shown, {EXPERT: HEURISTIC, SEARCH: AUTO}, evaluations, rounds)
    return _figure(request, plan)


def _table_3(request: ExperimentRequest) -> str:
    quick = "mul reducemean rmsnorm[1024,4096] softmax[4096,512] matmul[256,256,256]"
    return quick if request.quick else " ".join(each.name for each in OPERATORS)


def learned(request: ExperimentRequest) -> ExperimentResult:
    """Figure 14: the agent's results without any pass, beside the expert, PyTorch and TVM.

    On the operators of Table 3, or on the target's own list where it has one. It begins with the agent
    that the request names, or as a search of ``tune`` does.
    """
    told = trained_options(request)
    plugins = load_plugins()
    target = plugins.require(request.target)
    told = told or shipped_options(target.name)
    require_fitting(request.agent, plugins, target)
    own = target.capabilities.selections.get(DEFAULT, ())
    words = request.kernels or " ".join(own[:4] if request.quick else own) or _table_3(request)
    evaluations, rounds = (64, 4) if request.quick else (1000, 12)
    plan = Plan(
        "fig14",
        {words: ""},
        {EXPERT: HEURISTIC, LEARNED: "perfllm"},
        evaluations,
        rounds,
        options={LEARNED: told},
        others=("torch", "torch_compile", "tvm"),
    )
    return _figure(request, plan)


def shapes(request: ExperimentRequest) -> ExperimentResult:
    """Figure 12: after a search, at the shapes of models."""
    file = resources.files(__package__).joinpath("model_shapes.yaml")
    known = yaml.safe_load(file.read_text(encoding="utf-8"))["shapes"]
    chosen = [each for each in known if each.get("quick") or not request.quick]
    shown = {each["kernel"]: f"{each['model']} {each['layer']}" for each in chosen}
    evaluations, rounds = (12, 4) if request.quick else (1000, 12)
    shown = {request.kernels: ""} if request.kernels else shown
    return _figure(request, Plan("fig12", shown, {SEARCH: AUTO}, evaluations, rounds))


def _figure(request: ExperimentRequest, plan: Plan) -> ExperimentResult:
    plugins = load_plugins()
    target = plugins.require(request.target)
    operators, lists = plugins.operators_for(target), target.capabilities.selections
    kernels: dict[str, Kernel] = {}
    titles: dict[str, str] = {}
    for words, title in plan.shown.items():
        for kernel in select(words, operators, target.dialect, lists):
            kernels[kernel.name] = kernel
            titles[kernel.name] = title or kernel.alias or kernel.name
    until = None if request.seconds is None else time.monotonic() + request.seconds
    manifests, failed = {}, {}
    for column, search in plan.searches.items():
        evaluations = request.evaluations or plan.evaluations
        options = plan.options.get(column, ())
        settings = Settings(threads=plan.threads, search=search, evaluations=evaluations, options=options)
        folder = request.folder / f"library-{search}"
        request.progress(f"{column}: {number_of(len(kernels), 'kernels')} in {folder}")
        records = request.folder / "records.sqlite"
        lines = _Lines(request, until)
        wanted = list(kernels.values())
        try:
            built = build_library(plugins, target, wanted, folder, settings, lines, place=records)
        except _OutOfTime:  # finished kernels are recorded, and are not searched again
            ready = [kernel for kernel in wanted if kernel.name in lines.done]
            late = [kernel for kernel in wanted if kernel.name not in lines.done]
            failed.update({f"{column}, {titles[kernel.name]}": "the time was up" for kernel in late})
            if not ready:
                continue
            lines = _Lines(request, None)
            built = build_library(plugins, target, ready, folder, settings, lines, place=records)
        failed.update({f"{column}, {titles[r.kernel.name]}": r.failure for r in built.failed})
        if built.manifest is not None:
            manifests[column] = (folder, built.manifest)
    if not manifests:
        why = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise NothingFoundError(
            "PD-C004", f"none could be built of {number_of(len(kernels), 'kernels')}", why=why
        )
    found = _Found(plan, titles, _provenance(manifests), failed)
    if found.provenance == "measured":
        _race(request, plan, kernels, manifests, found)
    else:
        why = f"other systems run on this machine, and these times are {found.provenance}"
        found.absent["other systems"] = why
        _alone(kernels, manifests, found)
    data = found.data(target.name)
    inches = (3 + 0.7 * len(kernels), 5)
    return written(request, plan.name, found.text(data), data, found.table(), found.draw, inches)


class _OutOfTime(Exception):
    """Raised before a kernel for which there is no time; caught in this module."""


class _Lines(Observer):
    """Prints a line for each kernel that is built; no kernel begins after the time ``until``."""

    def __init__(self, request: ExperimentRequest, until: float | None) -> None:
        self.request, self.until = request, until
        self.done: set[str] = set()

    def started(self, kernel: Kernel, number: int, count: int) -> None:
        if self.until is not None and time.monotonic() > self.until:
            raise _OutOfTime

    def finished(self, result: KernelResult) -> None:
        self.done.add(result.kernel.name)
        if result.found is None:
            self.request.progress(f"  {result.kernel.name} is left out: {result.failure}")
            return
        final, reused = result.found.record.final, result.found.reused
        took = f"{final.median_s * 1e3:.4g} ms" if final else "no time"
        self.request.progress(f"  {result.kernel.name}: {took}{', from the records' if reused else ''}")


Libraries = Mapping[str, tuple[Path, Manifest]]


def _provenance(manifests: Libraries) -> str:
    finals = [e.timing.final for _, manifest in manifests.values() for e in manifest.kernels]
    return ", ".join(sorted({final.provenance for final in finals if final}))


# -- beside others, or alone -----------------------------------------------------------------------------


def operator_of(kernel: Kernel) -> Operator | None:
    """The description of ``kernel`` for other systems; None when they have no implementation."""
    plain = all(array.dtype == "f32" for array in (*kernel.inputs, *kernel.outputs))
    if kernel.operator not in FAMILIES or not plain or len(kernel.outputs) != 1:
        return None
    inputs = tuple(array.shape for array in kernel.inputs)
    return Operator(kernel.name, kernel.operator, inputs, kernel.outputs[0].shape)


def _race(
    request: ExperimentRequest,
    plan: Plan,
    kernels: Mapping[str, Kernel],
    manifests: Libraries,
    found: _Found,
) -> None:
    """Time all systems that can start, in turns, on one kernel after the other."""
    rows, cache = Rows(request.folder / f"{plan.name}.rows"), machine().last_cache_bytes
    racing = {name: peer for name, peer in ALL.items() if name in plan.others or not plan.others}
    missing = {name: peer.missing() for name, peer in racing.items()}
    found.absent.update({racing[name].title: why for name, why in missing.items() if why})
    for why in found.absent.values():
        request.progress(why)
    starting = {column: (OURS, str(folder)) for column, (folder, _) in manifests.items()}
    starting |= {peer.title: (peer, "") for name, peer in racing.items() if not missing[name]}
    with contenders(starting, plan.threads, ANSWER_S) as (processes, problems):
        found.absent.update(problems)
        found.versions.update({process.name: process.version for process in processes})
        for name, kernel in kernels.items():
            operator = operator_of(kernel)
            if operator is None:
                found.failed[found.titles[name]] = "other systems are not told how to compute it"
                continue
            request.progress(f"racing on {found.titles[name]}")
            entries = _entries(rows, plan, processes, operator, manifests, cache)
            for column, entry in entries.items():
                found.enter(name, column, entry.median, entry.failure)


def _entries(
    rows: Rows,
    plan: Plan,
    processes: Sequence[Process],
    operator: Operator,
    manifests: Libraries,
    cache: int,
) -> dict[str, Entry]:
    """The times of each contender for ``operator``, from an earlier run if nothing has changed."""
    codes = {
        column: manifest.code_of(entry).sha256
        for column, (_, manifest) in manifests.items()
        for entry in manifest.kernels
        if entry.name == operator.name
    }
    key = {
        "operator": asdict(operator),
        "plan": [plan.threads, plan.rounds],
        "times": "by turns",
        "device": machine().text,
        "contenders": {process.name: process.version for process in processes},
        "codes": codes,
    }
    known = rows.get(key)
    if known is None:
        entries = race(processes, operator, plan.rounds, cache)
        known = {name: asdict(entry) for name, entry in entries.items()}
        rows.put(key, known)
    return {name: Entry(**entry) for name, entry in known.items()}


def _alone(kernels: Mapping[str, Kernel], manifests: Libraries, found: _Found) -> None:
    """Take the times of our own kernels, and of their initial programs, from the manifests."""
    for column, (_, manifest) in manifests.items():
        for entry in manifest.kernels:
            initial, final = entry.timing.initial, entry.timing.final
            if initial and initial.provenance == found.provenance:
                found.enter(entry.name, INITIAL, initial.median_s, "")
            found.enter(entry.name, column, final.median_s if final else None, "")


# -- what is shown -----------------------------------------------------------------------------------------


class _Found:
    """Times by kernel and column."""

    def __init__(
        self, plan: Plan, titles: Mapping[str, str], provenance: str, failed: dict[str, str]
    ) -> None:
        self.plan, self.titles, self.provenance, self.failed = plan, titles, provenance, failed
        self.absent: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.seconds: dict[str, dict[str, float]] = {}
        self.columns: list[str] = []

    def enter(self, kernel: str, column: str, seconds: float | None, failure: str) -> None:
        if column not in self.columns:
            self.columns.append(column)
        if seconds:
            self.seconds.setdefault(kernel, {})[column] = seconds
        elif failure:
            self.failed.setdefault(f"{column}, {self.titles[kernel]}", failure)

    def data(self, target: str) -> dict[str, Any]:
        return {
            "target": target,
            "device": machine().text if self.provenance == "measured" else "",
            "provenance": self.provenance,
            "threads": self.plan.threads,
            "versions": self.versions,
            "missing": self.absent,
            "failed": self.failed,
            "seconds": {self.titles[kernel]: times for kernel, times in self.seconds.items()},
            "speedup_of_ours": self._means(),
        }

    def _means(self) -> dict[str, dict[str, Any]]:
        """Ours over each other column: geometric mean over the kernels that both have."""
        ours, means = list(self.plan.searches)[-1], {}
        for column in self.columns:
            pairs = [t[column] / t[ours] for t in self.seconds.values() if column in t and ours in t]
            if column != ours and pairs:
                means[column] = {"mean": geometric_mean(pairs), "kernels": len(pairs)}
        return means

    def table(self) -> list[dict[str, Any]]:
        return [
            {"kernel": self.titles[kernel], **{c: times.get(c, "") for c in self.columns}}
            for kernel, times in self.seconds.items()
        ]

    def text(self, data: Mapping[str, Any]) -> str:
        width = max([16, *(len(column) + 2 for column in self.columns)])
        lines = [f"{'median ms':34}" + "".join(f"{column:>{width}}" for column in self.columns)]
        for kernel, times in self.seconds.items():
            cells = (f"{times[c] * 1e3:.4g}" if c in times else "-" for c in self.columns)
            lines.append(f"{self.titles[kernel]:34}" + "".join(f"{cell:>{width}}" for cell in cells))
        ours = list(self.plan.searches)[-1]
        for column, mean in data["speedup_of_ours"].items():
            lines.append(
                f"{ours} over {column}: {mean['mean']:.2f}x "
                f"({number_of(mean['kernels'], 'kernels')}, geometric mean)"
            )
        lines += [f"missing: {why}" for why in self.absent.values()]
        lines += [f"left out: {what}: {why.partition(chr(10))[0]}" for what, why in self.failed.items()]
        threads = f"{self.plan.threads} thread{'s' * (self.plan.threads != 1)}"
        lines.append(f"{data['target']}, {threads}, {self.provenance} {data['device']}".rstrip())
        return "\n".join(lines)

    def draw(self, figure: Any) -> None:
        axes, kernels = figure.subplots(), list(self.seconds)
        least = {kernel: min(self.seconds[kernel].values()) for kernel in kernels}
        series = {
            column: [
                least[k] / self.seconds[k][column] if column in self.seconds[k] else 0.0 for k in kernels
            ]
            for column in self.columns
        }
        bars(axes, [self.titles[kernel] for kernel in kernels], series)
        axes.set_ylabel(f"speed, the fastest being 1 ({self.provenance})")
