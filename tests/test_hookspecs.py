"""The contract with plugins is small, typed, described, shown by example, tested and really called."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_plugins import Entry, Metadata, plugin, target
from toy_target import perfdojo_toy
from toy_target.perfdojo_toy.walk import WALK

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rejection
from perfdojo_sdk.hookspecs import API_VERSION, search, services, specs, types
from perfdojo_sdk.hookspecs.services import (
    Experiment,
    ExperimentResult,
    Package,
    PackagedFile,
    Packager,
    Probe,
    TimeBreakdown,
    TimePart,
)
from perfdojo_sdk.hookspecs.types import (
    ArraySpec,
    Artifact,
    Bound,
    Failure,
    KernelSource,
    MachineFigures,
    Measurement,
    RunRequest,
)
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.plugins import HOOKS, Plugins, discovery, load_plugins
from perfdojo_sdk.plugins.plugin import cause_of

SPECS = [pytest.param(getattr(specs, name), id=name) for name in HOOKS]
LOOP = parse("kernel f(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{0}] = x[{0}]\n")


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata())
    monkeypatch.delenv("PERFDOJO_PLUGINS", raising=False)


# -- the text of the contract ----------------------------------------------------------------------


@pytest.mark.parametrize("hook", SPECS)
def test_a_hook_is_one_typed_sentence(hook: Callable[..., object]) -> None:
    sentence = inspect.getdoc(hook)
    assert sentence and sentence.endswith(".") and "\n" not in sentence
    annotations = inspect.get_annotations(hook)
    assert annotations.keys() == {*inspect.signature(hook).parameters, "return"}
    known = {**vars(types), **vars(search), **vars(services), **vars(typing), **_core_names()}
    typing.get_type_hints(hook, {**vars(specs), **known})


def _core_names() -> dict[str, object]:
    from perfdojo_sdk.core import program, transformation

    return {**vars(program), **vars(transformation)}


@pytest.mark.parametrize("hook", SPECS)
def test_the_toy_target_implements_it_with_the_same_arguments(hook: Callable[..., object]) -> None:
    implementation = getattr(perfdojo_toy, hook.__name__)
    assert implementation.perfdojo_impl["specname"] is None
    assert [*inspect.signature(implementation).parameters] == [*inspect.signature(hook).parameters]


@pytest.mark.parametrize("hook", SPECS)
def test_the_documentation_has_its_signature_and_an_example(hook: Callable[..., object]) -> None:
    pytest.importorskip("mkdocs")
    from tools import docs_pages

    reference = docs_pages.hook_reference()
    signature = str(inspect.signature(hook)).replace("'", "")
    assert f"def {hook.__name__}{signature}: ..." in reference
    assert inspect.getsource(getattr(perfdojo_toy, hook.__name__)).strip() in reference


def test_the_contract_fits_on_two_screens() -> None:
    assert len(inspect.getsource(specs).splitlines()) <= 144


def test_the_toy_target_shows_all_that_it_contributes_at_a_glance() -> None:
    lines = inspect.getsource(perfdojo_toy).splitlines()
    assert len(lines) <= 130


def test_versions_are_pairs() -> None:
    assert API_VERSION == (0, 3) == perfdojo_toy.PERFDOJO_API
    assert f"PERFDOJO_API = {API_VERSION}" in (specs.__doc__ or "")


def test_a_target_file_is_strict() -> None:
    with pytest.raises(ValueError, match="lane"):
        types.Capabilities.model_validate({"name": "a", "description": "", "lane": {"f32": 4}})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "best"}, "stands for whichever target"),
        ({"name": "My chip"}, "should match pattern"),
        ({"suffixes": ["z"]}, "there is no scope suffix 'z'; known: a, b, g, p, t, u, v, w, or describe it"),
        ({"locations": ["heep"]}, "there is no location 'heep'; did you mean heap?"),
        ({"extra_suffixes": {"u": {"doc": "", "order": "parallel"}}}, "'u' means the same for every target"),
        ({"extra_suffixes": {"r p": {"doc": "", "order": "parallel"}}}, "should match pattern"),
        ({"extra_suffixes": {"r": {"doc": "", "order": "parallel", "unit": True}}}, "has to be lockstep"),
        ({"extra_suffixes": {"r": {"doc": "", "order": "parallel", "gathers": True}}}, "has to be lockstep"),
        ({"extra_locations": {"heap": {"doc": ""}}}, "'heap' means the same for every target"),
        ({"extra_locations": {"near": {"doc": "", "max_bytes": 0}}}, "greater than or equal to 1"),
        ({"lanes": {"f23": 4}}, "there is no dtype 'f23'; did you mean f32?"),
        ({"lanes": {"f32": 0}}, "greater than or equal to 1"),
        ({"peak_gflops": {"f32": float("nan")}}, "finite number"),
        ({"max_unroll": 10**9}, "less than or equal to 65536"),
    ],
)
def test_a_target_file_that_means_nothing_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError) as refused:
        types.Capabilities.model_validate({"name": "a", "description": "", **wrong})
    assert why in cause_of(refused.value)


def test_figures_of_a_target_file_are_not_calibrated() -> None:
    figures = perfdojo_toy.CAPABILITIES.figures
    assert figures.memory and figures.memory.copy_gbs == 20 and not figures.calibrated


# -- every hook is called by a command -------------------------------------------------------------


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The hooks of the toy target that were called; it is the only plugin installed."""
    heard: set[str] = set()

    def recording(name: str) -> Callable[..., object]:
        hook = getattr(perfdojo_toy, name)

        @functools.wraps(hook)
        def call(*arguments: object) -> object:
            heard.add(name)
            return hook(*arguments)

        return call

    module = SimpleNamespace(PERFDOJO_API=API_VERSION, **{name: recording(name) for name in HOOKS})
    entry = Entry("toy", lambda: module, targets=["toy"])
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata([entry]))
    return heard


def test_every_hook_is_called_by_a_command(
    called: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from perfdojo_sdk.cli import main

    monkeypatch.chdir(tmp_path)
    kernel = ["toy_scale[64]", "--target", "toy"]
    for words in (
        ["build-library", "--kernels", *kernel, "--threads", "1"],
        ["explain-time", *kernel],
    ):
        with pytest.raises(SystemExit) as leaving:
            main(words)
        assert leaving.value.code == 0, capsys.readouterr().err
    assert set(HOOKS) - called == set()


# -- every hook has an effect ----------------------------------------------------------------------


def loaded(**hooks: Callable[..., Any]) -> Plugins:
    """A plugin with these hooks and the target ``a``, and nothing else."""
    plugins = load_plugins(strict=True, extra=[plugin("made", targets=lambda: [target("a")], **hooks)])
    assert plugins.target("a").plugin == "made"
    return plugins


class Desk:
    """A generator, a runner and a packager of paper."""

    def generate(self, program: object, symbol: str) -> KernelSource:
        return KernelSource(symbol, (), (ArraySpec("y", (2, 2), "f32"),), "code", language="paper")

    def compile(self, source: KernelSource) -> Artifact:
        return Artifact(source.symbol, (), (), "paper", b"compiled")

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement:
        return Measurement(None, (1.0,), "simulated", "desk", 1, details={"cycles": 7.0})

    def device(self) -> str:
        return "desk"


class Power:
    """An observer that saw the run pass."""

    name = "power"

    def before(self, artifact: Artifact, request: RunRequest) -> float:
        return 2.0

    def after(self, before: object, measurement: Measurement) -> Mapping[str, float]:
        assert isinstance(before, float)
        return {"joules": before + measurement.median}


def targets() -> None:
    assert loaded().targets.keys() == {"a"}


def transformations() -> None:
    from toy_target.perfdojo_toy.moves import UnrollShort

    plugins = loaded(transformations=lambda target: [UnrollShort()])
    assert "toy/unroll_short" in plugins.rules(plugins.target("a")).transformations


def legality_checks() -> None:
    plugins = loaded(legality_checks=lambda: [lambda before, move, after, dialect: "not today"])
    rules = plugins.rules(plugins.target("a"))
    result = rules.attempt(LOOP, Move.of("split_scope", "s0", factor=2))
    assert isinstance(result, Rejection) and result.why == "not today"


def operators() -> None:
    plugins = loaded(operators=lambda: [perfdojo_toy.SCALE])
    assert select("toy_scale[8]", plugins.operators_for(plugins.target("a")))


def search_strategies() -> None:
    assert loaded(search_strategies=lambda: [WALK]).search_strategy("toy/walk") is WALK


def observers() -> None:
    plugins = loaded(observers=lambda target: [Power()], runner=lambda target: Desk())
    runner = plugins.observed_runner(plugins.target("a"))
    artifact = Artifact("f", (), (), "paper", b"")
    timed, untimed = (runner.run(artifact, RunRequest(repeats=n)) for n in (1, 0))
    assert isinstance(timed, Measurement) and timed.details == {"cycles": 7.0, "power.joules": 3.0}
    assert isinstance(untimed, Measurement) and untimed.details == {"cycles": 7.0}


def doctor_probes() -> None:
    missing = [Probe("fan", "", required=False), Probe("device", "", "no device", "buy one")]
    plugins = loaded(doctor_probes=lambda target: missing)
    reason = plugins.unavailable(plugins.target("a"))
    assert reason and (reason.why, reason.remedy) == ("no device", "buy one")
    assert [probe for _, probe in plugins.probes(plugins.target("a"))] == missing


def experiments() -> None:
    shown = Experiment("made/one", "Nothing.", lambda request: ExperimentResult("", {}))
    assert loaded(experiments=lambda: [shown]).experiments["made/one"] is shown


def code_generator() -> None:
    plugins = loaded(code_generator=lambda target: Desk())
    assert plugins.code_generator(plugins.target("a")).generate(LOOP, "f").code == "code"


def runner() -> None:
    plugins = loaded(runner=lambda target: Desk())
    assert plugins.runner(plugins.target("a")).device() == "desk"


def heuristic_pass() -> None:
    plugins = loaded(heuristic_pass=lambda target: perfdojo_toy.expert)
    assert plugins.heuristic_pass(plugins.target("a")) is perfdojo_toy.expert


def math_accuracy() -> None:
    plugins = loaded(math_accuracy=lambda target: {"exp": 1.5})
    assert plugins.math_accuracy(plugins.target("a")) == {"exp": 1.5}


def machine_figures() -> None:
    plugins = loaded(machine_figures=lambda target, refresh: MachineFigures(calibrated=refresh))
    found = plugins.target("a")
    assert [plugins.machine_figures(found, refresh=r).calibrated for r in (True, False)] == [True, False]


def roofline_bound() -> None:
    bound = Bound(1.0, "the desk", "estimated", False)
    plugins = loaded(roofline_bound=lambda program, target: bound)
    assert plugins.roofline_bound(LOOP, plugins.target("a"), 1) == bound


def packager() -> None:
    made = perfdojo_toy.SizesPackager()
    plugins = loaded(packager=lambda target: made)
    assert plugins.packager(plugins.target("a")) is made


def time_breakdown() -> None:
    found = TimeBreakdown("cycles", (TimePart("issue", 3), TimePart("stall", 4)), "simulated")
    plugins = loaded(time_breakdown=lambda target: found)
    artifact = Artifact("f", (), (), "paper", b"")
    answer = plugins.time_breakdown(LOOP, plugins.target("a"), artifact, RunRequest())
    assert answer == found and answer.total == 7


def measurement_recorded() -> None:
    heard = []
    plugins = loaded(measurement_recorded=lambda kernel, measurement: heard.append((kernel, measurement)))
    measured = Measurement(None, (1.0,), "simulated", "desk", 1)
    plugins.measurement_recorded(plugins.target("a"), "f", measured)
    assert heard == [("f", measured)]


def library_built() -> None:
    heard = []
    plugins = loaded(library_built=lambda target, directory: heard.append((target.name, directory)))
    plugins.library_built(plugins.target("a"), Path("there"))
    assert heard == [("a", Path("there"))]


EXERCISES: Mapping[str, Callable[[], None]] = {
    f"perfdojo_{each.__name__}": each
    for each in (
        targets,
        transformations,
        legality_checks,
        operators,
        search_strategies,
        observers,
        doctor_probes,
        experiments,
        code_generator,
        runner,
        heuristic_pass,
        math_accuracy,
        machine_figures,
        roofline_bound,
        packager,
        time_breakdown,
        measurement_recorded,
        library_built,
    )
}


def test_every_hook_is_exercised() -> None:
    assert EXERCISES.keys() == set(HOOKS)


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=lambda e: e.__name__)
def test_a_hook_has_its_effect(exercise: Callable[[], None]) -> None:
    exercise()


# -- what hooks that go wrong cost -----------------------------------------------------------------


def boom(*_: object) -> Any:
    raise RuntimeError("boom")


def test_an_event_that_raises_is_a_problem_and_the_others_hear_it() -> None:
    heard: list[str] = []
    one = plugin("one", targets=lambda: [target("a")], library_built=boom)
    two = plugin("two", library_built=lambda directory: heard.append(directory.name))
    plugins = load_plugins(extra=[one, two])
    plugins.library_built(plugins.targets["a"], Path("there"))
    [problem] = plugins.problems
    assert heard == ["there"] and (problem.plugin, problem.stage) == ("one", "perfdojo_library_built")


@pytest.mark.parametrize("fault", ["before", "after", "nonsense"])
def test_an_observer_that_fails_costs_its_own_figures_only(fault: str) -> None:
    class Broken(Power):
        name = "broken"

    def nan(before: object, measurement: Measurement) -> dict[str, float]:
        return {"joules": float("nan")}

    broken = Broken()
    setattr(broken, "after" if fault == "nonsense" else fault, nan if fault == "nonsense" else boom)
    watcher = plugin("watcher", observers=lambda target: [broken, Power()])
    desk = plugin("desk", targets=lambda: [target("a")], runner=lambda target: Desk())
    plugins = load_plugins(extra=[desk, watcher])
    measured = plugins.observed_runner(plugins.target("a")).run(
        Artifact("f", (), (), "paper", b""), RunRequest(repeats=1)
    )
    assert isinstance(measured, Measurement) and measured.details == {"cycles": 7.0, "power.joules": 3.0}
    [problem] = plugins.problems
    assert problem.plugin == "watcher" and "observer broken failed" in problem.cause


class Shelf:
    """A packager that does what it is told."""

    def __init__(self, *files: PackagedFile) -> None:
        self.files = files

    def package(self, name: str, kernels: Sequence[Any], runner: object) -> Package | Failure:
        if not self.files:
            raise RuntimeError("no room")
        return Package(self.files, "scissors 1.0")


def file(path: str = "lib/a.paper", *kernels: str) -> PackagedFile:
    return PackagedFile("paper", path, b"compiled", kernels)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from perfdojo_sdk.library import verification
    from perfdojo_sdk.store.records import LegResult, Verification

    leg = LegResult(passed=True, detail="")
    monkeypatch.setattr(
        verification, "verify", lambda *_: Verification(exact=leg, numeric=leg, dependence=leg)
    )
    yield


def shelve(folder: Path, shelf: Packager) -> Any:
    plugins = loaded(
        code_generator=lambda target: Desk(), runner=lambda target: Desk(), packager=lambda target: shelf
    )
    kernels = select("relu[2,2] add[2,2]", plugins.operators)
    return build_library(plugins, plugins.target("a"), kernels, folder, Settings(threads=1))


def test_a_packager_may_give_each_kernel_a_file_of_its_own(tmp_path: Path, verified: None) -> None:
    files = [file("bin/relu.elf", "relu_2x2_f32"), file("bin/add.elf", "add_2x2_f32")]
    report = PackagedFile("report", "reports/size.txt", b"2 kernels")
    result = shelve(tmp_path, Shelf(*files, report))
    assert {k.name: k.code for k in result.manifest.kernels} == {
        "relu_2x2_f32": "bin/relu.elf",
        "add_2x2_f32": "bin/add.elf",
    }
    assert {(a.kind, a.path) for a in result.manifest.artefacts} >= {
        ("report", "reports/size.txt"),
        ("paper", "bin/relu.elf"),
        ("source", "src/relu_2x2_f32.paper"),
    }
    assert (tmp_path / "reports/size.txt").read_bytes() == b"2 kernels"


BOTH = ("relu_2x2_f32", "add_2x2_f32")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), "RuntimeError: no room"),
        ((file("lib/a", BOTH[0]),), "no file holds kernel add_2x2_f32"),
        ((file("lib/a", *BOTH), file("lib/b", BOTH[0])), "both hold kernel relu_2x2_f32"),
        ((file("lib/a", *BOTH), file("lib/a")), "two files are called lib/a"),
        ((file("lib/../../a", *BOTH),), "path"),
        ((file("/a/b", *BOTH),), "path"),
        ((file("manifest.json", *BOTH),), "stands in no folder"),
        ((file("src/relu_2x2_f32.paper", *BOTH),), "two files are called src"),
    ],
)
def test_a_package_that_does_not_fit_together_is_refused_before_anything_is_written(
    tmp_path: Path, verified: None, files: tuple[PackagedFile, ...], words: str
) -> None:
    with pytest.raises(LibraryError) as caught:
        shelve(tmp_path, Shelf(*files))
    assert caught.value.code == "PD-L022" and words in caught.value.why
    assert {p.name for p in tmp_path.iterdir()} == {"records.sqlite", ".lock"}


def test_the_best_of_two_probes_takes_the_higher_of_each_speed() -> None:
    def probe(calibrated: bool = True, **gbs: float) -> MachineFigures:
        return MachineFigures.model_validate({"memory": gbs, "calibrated": calibrated})

    slow_reads = probe(read_gbs=10, write_gbs=9, copy_gbs=8)
    slow_copies = probe(read_gbs=12, write_gbs=9, copy_gbs=7, stream_copy_gbs=11)
    best = probe(read_gbs=12, write_gbs=9, copy_gbs=8, stream_copy_gbs=11)
    assert slow_reads.at_best(slow_copies) == slow_copies.at_best(slow_reads) == best
    defaults = probe(calibrated=False, read_gbs=99, write_gbs=99, copy_gbs=99)
    assert slow_reads.at_best(defaults) == slow_reads
