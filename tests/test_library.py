"""Building never loses work and never ends empty-handed; loading refuses whatever could go wrong."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toy_target import perfdojo_toy

from perfdojo_sdk import load_library
from perfdojo_sdk.core.errors import DojoError, NothingFoundError, VerificationError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.game import Game
from perfdojo_sdk.hookspecs import API_VERSION, hookimpl
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    Capabilities,
    Failure,
    KernelSource,
    MachineFigures,
    Measurement,
    RunRequest,
    Target,
)
from perfdojo_sdk.kernels.selection import Kernel, array_specs, select
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError
from perfdojo_sdk.library.build import BuildResult, KernelResult, Observer, build_library, exclusive
from perfdojo_sdk.library.forge import Settings
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.library.manifest import LibraryError, Manifest, read_manifest
from perfdojo_sdk.measure.toolchain import Compiled, find_toolchain
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.store.records import LegResult, Verification

QUICK = Settings(threads=2, repeats=5, budget_s=0.02)


# -- a target of paper, for the order of events ----------------------------------------------------


def parallel_pass(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """Give the first scope to the threads."""
    play = Play(root, rules)
    play.must("annotate_scope", "s0", suffix="p")
    return (play.trace,)


@dataclass
class Paper:
    """A target whose compiler copies and whose clock reads what the test says."""

    expert: Callable[..., tuple[Trace, ...]] | None = parallel_pass
    slow: float = 2e-3
    """Time of an initial program; what the pass made takes 1e-3 s."""
    bound: Bound | None = None
    recalibrated: Bound | None = None
    """The bound after the machine was measured again."""
    refuses: Callable[[str], bool] = lambda code: False
    """Sources that do not compile."""
    verifies: Callable[[Trace], bool] = lambda trace: True
    packaged_value: float = 1.0
    mark: str = ""
    compiled: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    def plugins(self) -> Plugins:
        capabilities = Capabilities(name="paper", description="", suffixes=("u", "p"))
        target = Target("paper", capabilities, capabilities.dialect(), "")
        hooks: Mapping[str, Callable[..., Any]] = {
            "perfdojo_targets": lambda: [target],
            "perfdojo_code_generator": lambda target: self,
            "perfdojo_runner": lambda target: self,
            "perfdojo_heuristic_pass": lambda target: self.expert,
            "perfdojo_machine_figures": lambda target, refresh: self.figures(refresh),
            "perfdojo_roofline_bound": lambda target: self.bound,
        }
        marked = {name: hookimpl(hook) for name, hook in hooks.items()}
        plugin = SimpleNamespace(__name__="paper", PERFDOJO_API=API_VERSION, **marked)
        return load_plugins(strict=True, extra=[plugin])

    def figures(self, refresh: bool) -> MachineFigures:
        if refresh and self.recalibrated:
            self.bound = self.recalibrated
        return MachineFigures()

    def generate(self, program: Program, symbol: str) -> KernelSource:
        code = f"{self.mark}{program.text}"
        inputs, outputs = (array_specs(program, names) for names in (program.inputs, program.outputs))
        return KernelSource(symbol, inputs, outputs, code, language="paper")

    def compile(self, source: KernelSource) -> Artifact | Failure:
        self.compiled.append(source.symbol)
        if self.refuses(source.code):
            return Failure("compile", "paper jam\nand more")
        content = source.code.encode() or b"\0"
        return Artifact(source.symbol, source.inputs, source.outputs, "paper", content, "scissors 1.0")

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        self.runs.append(artifact.symbol)
        packaged = b"Links the kernels" in artifact.content
        value = self.packaged_value if packaged else 1.0
        outputs = {o.name: np.full(o.shape, value, np.float32) for o in artifact.outputs}
        seconds = (1e-3 if b":p" in artifact.content else self.slow,)
        return Measurement(outputs, seconds if request.repeats else (), "simulated", "desk", request.threads)

    def device(self) -> str:
        return "desk"


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    """A paper target whose verification says what :attr:`Paper.verifies` says."""
    made = Paper()

    def verify(trace: Trace, *_: object) -> Verification:
        leg = LegResult(passed=made.verifies(trace), detail="as the test says")
        return Verification(exact=leg, numeric=leg, dependence=leg)

    monkeypatch.setattr(verification, "verify", verify)
    monkeypatch.setattr("perfdojo_sdk.plugins.discovery.installed", lambda: ())
    return made


def build(paper: Paper, folder: Path, kernels: str = "relu[4,8]", **options: Any) -> BuildResult:
    plugins = paper.plugins()
    target = plugins.target("paper")
    return build_library(
        plugins, target, select(kernels, plugins.operators, target.dialect), folder, QUICK, **options
    )


def entry(result: BuildResult) -> Any:
    assert result.manifest
    [found] = result.manifest.kernels
    return found


def test_what_the_pass_found_enters_the_library(paper: Paper, tmp_path: Path) -> None:
    paper.bound = Bound(5e-4, "paper speed", "estimated", calibrated=False)
    result = build(paper, tmp_path)
    kernel = entry(result)
    assert [m.transformation for m in kernel.moves] == ["annotate_scope"]
    assert kernel.speed_up == pytest.approx(2) and kernel.roofline_fraction == pytest.approx(0.5)
    assert kernel.timing.final.provenance == "simulated" and kernel.notes == ()
    assert result.failed == () and read_manifest(tmp_path) == result.manifest


def test_a_kernel_of_a_named_size_says_so(paper: Paper, tmp_path: Path) -> None:
    kernels = [entry(build(paper, tmp_path, kernels=k)) for k in ("layernorm1", "layernorm1[4,8]")]
    assert [(k.operator, k.alias) for k in kernels] == [("layernorm", "layernorm1"), ("layernorm", None)]


def test_the_files_are_those_that_the_manifest_lists(paper: Paper, tmp_path: Path) -> None:
    result = build(paper, tmp_path, "relu[4,8] add[2,3]")
    assert result.manifest
    listed = {a.path for a in result.manifest.artefacts}
    assert listed >= {"src/relu_4x8_f32.paper", "traces/add_2x3_f32.json", "programs/add_2x3_f32.dojo"}
    assert "include/perfdojo_paper.h" in listed and "lib/libperfdojo_paper.paper" in listed
    there = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert there == listed | {"manifest.json", "records.sqlite", ".lock"}
    result = build(paper, tmp_path, "add[2,3]")
    assert not (tmp_path / "src/relu_4x8_f32.paper").exists(), "what left the selection leaves the library"


def test_a_trace_of_the_library_is_a_saved_game(paper: Paper, tmp_path: Path) -> None:
    kernel = entry(build(paper, tmp_path))
    game = Game.load(paper.plugins(), tmp_path / kernel.trace)
    assert game.program.text == (tmp_path / kernel.program).read_text()


# -- never empty-handed ----------------------------------------------------------------------------


def raises(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    raise IndexError("the pass tripped")


def plays_elsewhere(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    return (Trace(replace(root, name="other")),)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"expert": None}, "no pass"),
        ({"expert": raises}, "IndexError: the pass tripped"),
        ({"expert": plays_elsewhere}, "another program"),
        ({"slow": 1e-4}, "slower"),
        ({"verifies": lambda trace: not trace.steps}, "verification failed (exact: as the test says"),
        ({"refuses": lambda code: ":p" in code.partition("\n\n")[2]}, "compile: paper jam"),
    ],
    ids=["no pass", "raises", "elsewhere", "slower", "wrong", "does not compile"],
)
def test_the_initial_program_takes_the_place(
    paper: Paper, tmp_path: Path, change: dict[str, Any], note: str
) -> None:
    for name, value in change.items():
        setattr(paper, name, value)
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves == () and kernel.speed_up == 1
    assert note in " ".join(kernel.notes)


def test_a_kind_that_is_not_allowed_is_not_used(paper: Paper, tmp_path: Path) -> None:
    def reassociates(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
        (trace,) = parallel_pass(root, rules, target)
        legal = replace(trace.steps[0].legal, kind=Kind.CHANGES_PRECISION)
        return (replace(trace, steps=(replace(trace.steps[0], legal=legal),)),)

    paper.expert = reassociates
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves == () and "changes precision" in kernel.notes[0]


def test_a_kernel_that_fails_verification_never_enters(paper: Paper, tmp_path: Path) -> None:
    paper.verifies = lambda trace: trace.root.name != "relu"
    result = build(paper, tmp_path, "relu[4,8] add[2,3]")
    assert entry(result).operator == "add"
    [failed] = result.failed
    assert failed.kernel.operator == "relu" and "verification failed" in failed.failure
    paper.verifies = lambda trace: False
    empty = build(paper, tmp_path / "empty", "mul[2,3]")
    assert empty.manifest is None and len(empty.failed) == 1
    assert not (tmp_path / "empty" / "manifest.json").exists()


def test_a_time_below_a_calibrated_roofline_is_not_believed(paper: Paper, tmp_path: Path) -> None:
    paper.bound = Bound(1.5e-3, "paper speed", "measured", calibrated=True)
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves == () and "suspect" in kernel.notes[0]
    paper.bound = replace(paper.bound, calibrated=False)
    kernel = entry(build(paper, tmp_path / "other"))
    assert kernel.moves and "not measured on this device" in kernel.notes[0]


def test_a_roofline_that_was_wrong_is_measured_anew(paper: Paper, tmp_path: Path) -> None:
    """Figures taken while the machine was busy must not cost anybody a fast kernel."""
    paper.bound = Bound(1.5e-3, "paper speed", "measured", calibrated=True)
    paper.recalibrated = Bound(0.8e-3, "paper speed", "measured", calibrated=True)
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves and kernel.notes == ()
    assert kernel.roofline_fraction == pytest.approx(0.8)


def test_packaged_code_that_differs_is_refused_and_the_old_library_stays(
    paper: Paper, tmp_path: Path
) -> None:
    before = build(paper, tmp_path).manifest
    paper.packaged_value = 2.0
    with pytest.raises(VerificationError, match="not the kernel that was verified"):
        build(paper, tmp_path, "relu[4,8] add[2,3]")
    assert read_manifest(tmp_path) == before


def test_a_broken_toolchain_is_one_clear_error(paper: Paper, tmp_path: Path) -> None:
    paper.refuses = lambda code: True
    with pytest.raises(LibraryError, match="compiler of target paper does not work"):
        build(paper, tmp_path)


def test_no_kernels_is_an_error(paper: Paper, tmp_path: Path) -> None:
    plugins = paper.plugins()
    with pytest.raises(NothingFoundError):
        build_library(plugins, plugins.target("paper"), [], tmp_path)


# -- interruption, resumption, exclusion -----------------------------------------------------------


class Interrupt(Observer):
    """Ctrl-C while the second kernel is being verified."""

    def __init__(self) -> None:
        self.number = 0

    def started(self, kernel: Kernel, number: int, count: int) -> None:
        self.number = number

    def stage(self, kernel: Kernel, stage: str) -> None:
        if self.number == 2 and stage == "verifying":
            raise KeyboardInterrupt


class Log(Observer):
    def __init__(self) -> None:
        self.reused: dict[str, bool] = {}
        self.stages: list[str] = []

    def stage(self, kernel: Kernel, stage: str) -> None:
        self.stages.append(f"{kernel.operator} {stage}")

    def finished(self, result: KernelResult) -> None:
        assert result.found
        self.reused[result.kernel.operator] = result.found.reused


def test_an_interrupted_build_goes_on_where_it_stopped(paper: Paper, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(paper, tmp_path, "relu[4,8] add[2,3] mul[2,3]", observer=Interrupt())
    assert not (tmp_path / "manifest.json").exists()
    log = Log()
    result = build(paper, tmp_path, "relu[4,8] add[2,3] mul[2,3]", observer=log)
    assert log.reused == {"relu": True, "add": False, "mul": False}
    assert not any(stage.startswith("relu") for stage in log.stages)
    assert result.manifest and len(result.manifest.kernels) == 3


def test_nothing_is_repeated_under_an_equal_key_and_everything_under_another(
    paper: Paper, tmp_path: Path
) -> None:
    first = entry(build(paper, tmp_path))
    log = Log()
    assert entry(build(paper, tmp_path, observer=log)) == first and log.reused == {"relu": True}
    plugins = paper.plugins()
    target = plugins.target("paper")
    log = Log()
    other = replace(QUICK, seed=1)
    build_library(plugins, target, select("relu[4,8]", plugins.operators), tmp_path, other, log)
    assert log.reused == {"relu": False}


def test_a_record_that_leads_to_other_code_is_not_used(paper: Paper, tmp_path: Path) -> None:
    build(paper, tmp_path)
    paper.mark = "/* a generator that changed */"
    log = Log()
    build(paper, tmp_path, observer=log)
    assert log.reused == {"relu": False}


def test_two_builds_do_not_share_a_folder(paper: Paper, tmp_path: Path) -> None:
    with exclusive(tmp_path), pytest.raises(LibraryError, match="another build is writing"):
        build(paper, tmp_path)
    assert build(paper, tmp_path).manifest


# -- the real thing --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of one kernel that went through everything for real."""
    folder = tmp_path_factory.mktemp("verified")
    plugins = load_plugins(extra=[perfdojo_toy])
    target = plugins.require("toy")
    result = build_library(plugins, target, select("softmax[9,33]", plugins.operators), folder, QUICK)
    assert result.manifest, result.failed
    return folder


def test_a_library_carries_all_three_legs(verified: Path) -> None:
    [kernel] = read_manifest(verified).kernels
    assert kernel.verification.passed and kernel.verification.failure == ""
    assert kernel.verification.exact.figures["models"] == 2
    assert kernel.verification.numeric.figures["elements"] >= 9 * 33
    assert 0 < kernel.verification.numeric.figures["worst_error_over_bound"] <= 1
    assert kernel.timing.final and kernel.timing.final.provenance == "measured"
    assert kernel.timing.final.median_s > 0 and kernel.roofline_fraction


def test_the_manifest_notes_contraction_and_toolchain(verified: Path) -> None:
    manifest = read_manifest(verified)
    assert not manifest.contraction and "-ffp-contract=off" in manifest.toolchain
    assert {"perfdojo_sdk", "perfdojo_toy"} <= manifest.plugins.keys()
    assert manifest.target == "toy" and manifest.settings["threads"] == 2


def test_the_header_declares_what_the_sources_define(verified: Path) -> None:
    """Compiled together: conflicting declarations are errors."""
    sources = {p.name: p.read_text() for p in verified.glob("src/*")}
    header = (verified / "include/perfdojo_toy.h").read_text()
    [unit] = [name for name in sources if name.endswith(".c")]
    sources[unit] = '#include "perfdojo_toy.h"\n' + sources[unit]
    compiled = find_toolchain().compile(
        {**sources, "perfdojo_toy.h": header}, ("-Wall", "-Wextra", "-Werror")
    )
    assert isinstance(compiled, Compiled), compiled


# -- loading ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels; their verification is the other tests' matter."""
    leg = LegResult(passed=True, detail="not here")
    patch = pytest.MonkeyPatch()
    patch.setattr(verification, "verify", lambda *_: Verification(exact=leg, numeric=leg, dependence=leg))
    where = tmp_path_factory.mktemp("library")
    twin = tmp_path_factory.mktemp("programs") / "twin.dojo"
    twin.write_text(
        "kernel twin(x) -> y, z\nx f32 [6] heap\ny f32 [6] heap\nz f32 [6] heap\n\n"
        "6 y[{0}] = x[{0}] + 1\n6 z[{0}] = x[{0}] * 2\n"
    )
    plugins = load_plugins(extra=[perfdojo_toy])
    kernels = select(f"softmax[8,12] softmax[3,5] matmul[4,5,6] {twin}", plugins.operators)
    result = build_library(plugins, plugins.target("toy"), kernels, where, QUICK)
    patch.undo()
    assert result.manifest and not result.failed
    return where


@pytest.fixture(scope="module")
def library(folder: Path) -> Library:
    return load_library(folder)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def random(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_a_call_computes_and_dispatches_on_shape(library: Library) -> None:
    for shape in ((8, 12), (3, 5)):
        x = random(*shape)
        np.testing.assert_allclose(library.softmax(x), softmax(x), rtol=1e-5)
    a, b = random(4, 6), random(6, 5)
    np.testing.assert_allclose(library.matmul(a, b), a @ b, rtol=1e-4, atol=1e-6)


def test_out_is_written_and_returned(library: Library) -> None:
    x, y = random(8, 12), np.full((8, 12), np.nan, np.float32)
    assert library.softmax(x, out=y) is y
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5)


def test_a_bound_call_reads_and_writes_the_arrays_that_it_was_given(library: Library) -> None:
    x, y = random(8, 12), np.full((8, 12), np.nan, np.float32)
    run = library.softmax.bind(x, out=y, threads=1)
    assert np.isnan(y).all() and run() is y
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5)
    x *= 2
    run()
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5)
    with pytest.raises(ArgumentValueError, match="overlap"):
        library.softmax.bind(x, out=x)


def test_a_bound_call_keeps_its_arrays(library: Library) -> None:
    x = random(6)
    run = library.twin.bind(x.copy())
    y, z = run()
    np.testing.assert_array_equal(y, x + 1)
    assert run()[1] is z


def test_several_outputs(library: Library) -> None:
    x = random(6)
    y, z = library.twin(x)
    np.testing.assert_array_equal(y, x + 1)
    mine = (np.empty(6, np.float32), np.empty(6, np.float32))
    assert library.twin(x, out=mine) is mine
    np.testing.assert_array_equal(mine[1], x * 2)
    with pytest.raises(ArgumentTypeError, match=r"2 outputs \(y, z\), out has 1"):
        library.twin(x, out=np.empty(6, np.float32))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_do_not_change_the_result(library: Library, threads: int) -> None:
    x = random(8, 12)
    np.testing.assert_array_equal(library.softmax(x, threads=threads), library.softmax(x, threads=1))


def test_a_workspace_may_be_passed(library: Library) -> None:
    x = random(8, 12)
    needed = library.softmax.workspace_bytes(x, threads=2)
    assert needed > 0
    expected = library.softmax(x, threads=2)
    given = np.empty(needed, np.uint8)
    np.testing.assert_array_equal(library.softmax(x, threads=2, workspace=given), expected)
    with pytest.raises(ArgumentValueError, match=f"needs {needed} on 2 threads"):
        library.softmax(x, threads=2, workspace=given[:-1])


class Foreign:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Old(Foreign):
    """As a library from before DLPack could say "writable"."""

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


def test_dlpack_arrays_in_and_out(library: Library) -> None:
    x, y = random(8, 12), np.zeros((8, 12), np.float32)
    np.testing.assert_allclose(library.softmax(Foreign(x)), softmax(x), rtol=1e-5)
    for kind in (Foreign, Old):
        y[:] = 0
        out = kind(y)
        assert library.softmax(x, out=out) is out
        np.testing.assert_allclose(y, softmax(x), rtol=1e-5)


def test_torch_tensors(library: Library) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(random(8, 12)), torch.empty(8, 12)
    assert library.softmax(x, out=y) is y
    assert torch.allclose(y, torch.softmax(x, 1))
    with pytest.raises(ArgumentTypeError, match="cannot be read"):
        library.softmax(x.clone().requires_grad_())


READ_ONLY = random(8, 12)
READ_ONLY.flags.writeable = False
BASE = random(16, 12)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "words"),
    [
        ((), {}, TypeError, "takes 1 inputs (x), 0 are given"),
        ((random(8, 12), random(8, 12)), {}, TypeError, "2 are given"),
        (([1.0],), {}, TypeError, "x is list"),
        ((None,), {}, TypeError, "x is NoneType"),
        ((random(8, 13),), {}, ValueError, "no kernel for f32 [8,13]"),
        ((random(12),), {}, ValueError, "f32 [8,12]; f32 [3,5]"),
        ((random(8, 12).astype(np.float64),), {}, TypeError, "no kernel for f64 [8,12]"),
        ((random(8, 12).astype(">f4"),), {}, ValueError, "byte order"),
        ((random(12, 8).T,), {}, ValueError, "without gaps"),
        ((random(16, 12)[::2],), {}, ValueError, "strides"),
        ((random(8, 12),), {"out": random(3, 5)}, ValueError, "out (y) has shape (3, 5)"),
        ((random(8, 12),), {"out": np.empty((8, 12))}, TypeError, "out (y) is float64"),
        ((random(8, 12),), {"out": READ_ONLY}, ValueError, "read-only"),
        ((random(8, 12),), {"out": random(12, 8).T}, ValueError, "without gaps"),
        ((random(8, 12),), {"out": 3}, TypeError, "out (y) is int"),
        ((BASE[:8],), {"out": BASE[4:12]}, ValueError, "y and x overlap"),
        ((BASE[:8],), {"out": BASE[:8]}, ValueError, "overlap"),
        ((BASE[:8],), {"out": BASE[8:], "workspace": BASE}, ValueError, "overlap"),
        ((random(8, 12),), {"workspace": 5}, TypeError, "workspace is int"),
        ((random(8, 12),), {"threads": 0}, ValueError, "threads is 0"),
        ((random(8, 12),), {"threads": 5000}, ValueError, "threads is 5000"),
        ((random(8, 12),), {"threads": 1.5}, TypeError, "threads is float"),
        ((random(8, 12),), {"threads": True}, TypeError, "threads is bool"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_argument_is_refused(
    library: Library, arguments: Any, options: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as caught:
        library.softmax(*arguments, **options)
    assert isinstance(caught.value, DojoError) and words in str(caught.value)


def test_an_unaligned_array_is_refused(library: Library) -> None:
    raw = np.zeros(8 * 12 * 4 + 1, np.uint8)
    with pytest.raises(ArgumentValueError, match="aligned"):
        library.softmax(raw[1:].view(np.float32).reshape(8, 12))


@pytest.mark.parametrize(("text", "good"), [("1", True), ("2", True), ("", True)] + [
    (bad, False) for bad in ("0", "-1", "two", "1.5", "99999999999999999999", "\u0662")
])  # fmt: skip
def test_the_environment_sets_the_threads(
    library: Library, monkeypatch: pytest.MonkeyPatch, text: str, good: bool
) -> None:
    monkeypatch.setenv("PERFDOJO_NUM_THREADS", text)
    x = random(8, 12)
    if good:
        np.testing.assert_allclose(library.softmax(x), softmax(x), rtol=1e-5)
        return
    with pytest.raises(ArgumentValueError, match="PERFDOJO_NUM_THREADS"):
        library.softmax(x)
    library.softmax(x, threads=1)


def test_calls_from_several_python_threads(library: Library) -> None:
    inputs = [random(8, 12) * (k + 1) for k in range(4)]
    wrong: list[int] = []

    def work(k: int) -> None:
        expected = softmax(inputs[k])
        for _ in range(200):
            if not np.allclose(library.softmax(inputs[k], threads=2), expected, rtol=1e-4):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_unknown_operator_is_suggested(library: Library) -> None:
    with pytest.raises(AttributeError, match="did you mean softmax"):
        _ = library.sofmax
    assert not hasattr(library, "conv")
    assert {"softmax", "matmul", "twin"} <= set(dir(library))
    assert library["matmul"].kernels[0].symbol == "pd_matmul_4x5x6_f32"


# -- a folder that is not what it should be --------------------------------------------------------


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((folder / "manifest.json").read_text())
    change(data)
    (folder / "manifest.json").write_text(json.dumps(data))


def test_a_copied_library_works(copy: Path) -> None:
    x = random(3, 5)
    np.testing.assert_allclose(load_library(str(copy)).softmax(x), softmax(x), rtol=1e-5)


def test_the_name_of_a_size_leads_to_its_kernel(copy: Path) -> None:
    edit(copy, lambda m: m["kernels"][0].update(alias="softmax1"))
    library = load_library(copy)
    x, other = random(8, 12), random(3, 5)
    np.testing.assert_array_equal(library.softmax1(x), library.softmax(x))
    assert "softmax1" in dir(library) and len(library.softmax.kernels) == 2
    with pytest.raises(ArgumentValueError, match="softmax1 has no kernel for"):
        library.softmax1(other)


def test_a_folder_without_a_library(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="holds no library"):
        load_library(tmp_path)


def test_a_shared_object_that_was_changed_is_not_loaded(copy: Path) -> None:
    with (copy / "lib/libperfdojo_toy.so").open("ab") as file:
        file.write(b"x")
    with pytest.raises(LibraryError, match="not the file that the manifest describes"):
        load_library(copy)
    (copy / "lib/libperfdojo_toy.so").unlink()
    with pytest.raises(LibraryError, match="cannot read"):
        load_library(copy)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(schema_version=1), "schema version 1"),
        (lambda m: m.update(schema_version="2"), "no manifest"),
        (lambda m: m.update(more=1), "more"),
        (lambda m: m.update(kernels=[]), "kernels"),
        (lambda m: m["artefacts"][0].update(path="../../etc/passwd"), "path"),
        (lambda m: m["artefacts"][0].update(path="/etc/passwd"), "path"),
        (lambda m: m["kernels"][0].update(symbol="system; rm"), "symbol"),
        (lambda m: m["kernels"][0]["inputs"][0].update(shape=[0, 5]), "shape"),
        (lambda m: m["kernels"][0]["inputs"][0].update(dtype="f33"), "dtype"),
        (lambda m: m["kernels"][0].update(symbol="pd_absent"), "lacks pd_absent"),
        (
            lambda m: m.update(cpu_flags=["a_flag_that_no_processor_has"]),
            "has no a_flag_that_no_processor_has",
        ),
        (lambda m: m.update(machine="z80"), "cannot run"),
        (lambda m: m["artefacts"].clear(), "no shared_object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_manifest_that_lies_is_refused(
    copy: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit(copy, change)
    with pytest.raises(LibraryError) as caught:
        load_library(copy)
    assert words in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 100_000, "\x00"])
def test_a_file_that_is_no_manifest(copy: Path, content: str) -> None:
    (copy / "manifest.json").write_text(content)
    with pytest.raises(LibraryError, match="no manifest"):
        load_library(copy)


def test_a_manifest_reads_as_it_was_written(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
