"""Abilities are declared, asked for in one way, and no wrapper hides one."""

from __future__ import annotations

import ast
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.codegen.packed import PackingGenerator
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.abilities import (
    ABILITIES,
    Forks,
    GeneratesAsFor,
    GivesRequirements,
    KnowsConstants,
    LimitsCompiling,
    LimitsInstances,
    RunsSets,
    RunsTogether,
    TimesInterleaved,
    Wrapper,
    ability,
    with_compile_timeout,
)
from perfdojo_sdk.hookspecs.services import Simulator
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.observed import Observed
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.plugins.faults import PluginFault
from perfdojo_sdk.plugins.guards import (
    GuardedAbilities,
    GuardedGenerator,
    GuardedPass,
    GuardedRunner,
    GuardedVeto,
)
from perfdojo_sdk.testing.estimate import AnalyticGenerator

LOOP = parse("kernel f(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = x[{0}]\n")
ARTIFACT = Artifact("s", (), (), "paper", b"")
PROTOCOLS = [declared.protocol for declared in ABILITIES]


def nobody(owner: object, cause: str) -> None: ...


#: Every way in which the SDK stands around an object of a plugin.
WRAPPERS: dict[type[Wrapper], Callable[[Any], Wrapper]] = {
    GuardedRunner: lambda inside: GuardedRunner("p", inside),
    GuardedGenerator: lambda inside: GuardedGenerator("p", inside),
    PackingGenerator: lambda inside: PackingGenerator(inside, CORE_DIALECT, {}),
    GuardedPass: lambda inside: GuardedPass("p", inside),
    GuardedVeto: lambda inside: GuardedVeto("p", inside),
    Observed: lambda inside: Observed(inside, (), nobody),
}


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins()


def shipped(plugins: Plugins) -> Iterator[tuple[str, object]]:
    for target in plugins.targets.values():
        yield f"the runner of {target.name}", plugins.runner(target)
        yield f"the generator of {target.name}", plugins.code_generator(target)
        if plugins.heuristic_pass(target) is not None:
            yield f"the pass of {target.name}", plugins.heuristic_pass(target)
        for veto in plugins.rules(target).vetoes:
            assert isinstance(veto, GuardedVeto)
            yield f"a veto of {target.name}", veto.veto


def of(one: object) -> set[str]:
    return {p.__name__ for p in PROTOCOLS if ability(one, p) is not None}


def test_every_ability_of_what_is_shipped_is_seen_through_every_wrapper(plugins: Plugins) -> None:
    seen = set[str]()
    for what, one in shipped(plugins):
        own = of(one)
        seen |= own
        for outer, wrap in WRAPPERS.items():
            assert of(wrap(one)) == own, f"{outer.__name__} around {what}"
            for inner, wrap_again in WRAPPERS.items():
                assert of(wrap(wrap_again(one))) == own, f"{outer.__name__}, {inner.__name__} around {what}"
    assert seen == {p.__name__ for p in PROTOCOLS}, "something that is shipped has each of them"


def test_the_list_of_wrappers_is_whole() -> None:
    def below(kind: type) -> set[type]:
        found = set(kind.__subclasses__())
        return found.union(*map(below, found))

    own = {kind for kind in below(Wrapper) if kind.__module__.startswith("perfdojo_")}
    assert own == set(WRAPPERS)


def test_who_holds_a_runner_and_stands_for_it_is_a_wrapper() -> None:
    """A class that has a field for a runner, or a generator, and the methods of one."""
    for path in (ROOT / "perfdojo_sdk").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            fields = {ast.unparse(n.annotation) for n in node.body if isinstance(n, ast.AnnAssign)}
            methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            stands = ("Runner" in fields and {"compile", "run", "device"} <= methods) or (
                "CodeGenerator" in fields and "generate" in methods
            )
            assert not stands or "Wrapper" in map(ast.unparse, node.bases), f"{path.name}: {node.name}"


def test_a_wrapper_that_knows_nothing_hides_nothing() -> None:
    @dataclass(frozen=True)
    class Logged(Wrapper):
        held: Any
        lines: list[str] = field(default_factory=list)

        @property
        def inside(self) -> Any:
            return self.held

        def around(self, inside: Any) -> Logged:
            return replace(self, held=inside)

    runner = NativeRunner()
    assert of(Logged(runner)) == of(runner) >= {"TimesInterleaved", "RunsSets", "LimitsCompiling"}
    nothing: Any = object()
    assert of(Logged(GuardedRunner("p", nothing))) == set()


def test_nobody_asks_by_name() -> None:
    """``getattr`` and ``hasattr`` with the name of an ability's member would not see through a wrapper."""
    names = {name for declared in ABILITIES for name in declared.members}
    for folder in ("perfdojo_sdk", "plugins", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    if node.func.id in ("getattr", "hasattr"):
                        said = {a.value for a in node.args if isinstance(a, ast.Constant)}
                        assert not said & names, f"{path}:{node.lineno} asks for {said & names} by name"


@pytest.mark.parametrize("declared", ABILITIES, ids=lambda declared: declared.name)
def test_an_ability_says_what_it_is_and_when_it_is_used(declared: Any) -> None:
    doc = inspect.getdoc(declared.protocol) or ""
    assert declared.members and doc.split("\n")[0].endswith(".") and "Used " in doc
    if declared.kind == "runner":
        assert all(hasattr(GuardedAbilities, name) for name in declared.members), "it is guarded"


def test_what_a_class_lacks_is_no_ability() -> None:
    class Odd(NativeRunner):
        @property
        def run_sets(self) -> Any:
            raise AttributeError("this one has only run")

    assert ability(Odd(), RunsSets) is None and ability(Odd(), RunsTogether)
    assert of(AnalyticGenerator()) == set()

    class Plain:
        compile_timeout_s = 5.0

    assert ability(Plain(), LimitsCompiling) is None  # it is no dataclass, so nobody could replace the field


# -- what a guard makes of an ability ------------------------------------------------------------------


def test_patience_for_a_compiler_is_set_inside_all_wrappers() -> None:
    runner = Observed(GuardedRunner("p", NativeRunner()), (), nobody)
    quick: Any = with_compile_timeout(runner, 7.0)
    assert isinstance(quick, Observed) and isinstance(quick.runner, GuardedRunner)
    assert quick.runner.runner == replace(NativeRunner(), compile_timeout_s=7.0)
    assert with_compile_timeout(runner, 700.0) is runner
    nothing: Any = object()
    plain = GuardedRunner("p", nothing)
    assert with_compile_timeout(plain, 1.0) is plain


class Strange(NativeRunner):
    """A runner whose answers break the rules."""

    most_instances = 0.5

    def run_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Any:
        return None

    def run_together(self, artifact: Artifact, requests: Any) -> Any:
        return []

    def simulate(self, program: Path, **more: Any) -> Any:
        return "done"


PERHAPS: Any = "perhaps"
STRANGE = GuardedRunner("paper", Strange(forks=PERHAPS))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: ability(STRANGE, Forks).forks, "forks str 'perhaps', expected yes or no"),
        (lambda: ability(STRANGE, LimitsInstances).most_instances, "most_instances float 0.5"),
        (lambda: ability(STRANGE, Simulator).simulate(Path("x")), "simulate returned str 'done'"),
    ],
)
def test_what_an_ability_must_not_say_names_the_plugin(ask: Callable[[], Any], said: str) -> None:
    with pytest.raises(PluginFault, match=f"plugin paper: its runner .*{said}"):
        ask()


def test_a_limit_that_is_no_time_names_the_plugin() -> None:
    with pytest.raises(PluginFault, match="its runner says for compile_timeout_s .* expected seconds"):
        with_compile_timeout(GuardedRunner("paper", NativeRunner(compile_timeout_s=-1.0)), 5.0)


def test_what_an_ability_must_not_give_is_a_failure_that_names_the_plugin() -> None:
    sets, together = ability(STRANGE, RunsSets), ability(STRANGE, RunsTogether)
    assert sets and together
    several = together.run_together(ARTIFACT, [RunRequest()] * 2)
    for found in (sets.run_sets(ARTIFACT, RunRequest(), 3), *several):
        assert isinstance(found, Failure) and "plugin paper: its runner returned" in found.detail
    assert together.run_together(ARTIFACT, []) == []


def test_a_generator_made_by_a_generator_is_guarded_too() -> None:
    class Choosing(AnalyticGenerator):
        def as_for(self, program: Program) -> Any:
            return Broken() if program is LOOP else 7

    class Broken(AnalyticGenerator):
        def generate(self, program: Program, symbol: str) -> KernelSource:
            raise ZeroDivisionError("widths")

    choosing = ability(GuardedGenerator("paper", Choosing()), GeneratesAsFor)
    assert choosing
    with pytest.raises(PluginFault, match="plugin paper: its code generator raised ZeroDivisionError"):
        choosing.as_for(LOOP).generate(LOOP, "f")
    other = parse(LOOP.text.replace("kernel f", "kernel g"))
    with pytest.raises(PluginFault, match="as_for returned int 7, expected a generator"):
        choosing.as_for(other)


def test_a_pass_that_knows_constants_is_guarded_too() -> None:
    class Careful:
        def __call__(self, *_: Any) -> Any:
            return ()

        def knowing(self, constants: Any) -> Any:
            return Broken() if constants == ["w"] else 7

    class Broken:
        def __call__(self, *_: Any) -> Any:
            raise ZeroDivisionError("constants")

    careful = ability(GuardedPass("paper", Careful()), KnowsConstants)
    assert careful and ability(GuardedPass("paper", Broken()), KnowsConstants) is None
    with pytest.raises(PluginFault, match="plugin paper: its pass raised ZeroDivisionError"):
        careful.knowing(["w"])(LOOP, *(None, None))  # type: ignore[arg-type]
    with pytest.raises(PluginFault, match="knowing returned int 7, expected a pass"):
        careful.knowing(["v"])


@pytest.mark.parametrize("named", [7, ["a reason"]])
def test_what_a_veto_names_are_requirements(named: Any) -> None:
    class Veto:
        requirements = named

        def __call__(self, *_: Any) -> None: ...

    found = ability(GuardedVeto("paper", Veto()), GivesRequirements)
    assert found
    with pytest.raises(DojoError, match="plugin paper: its veto"):
        _ = found.requirements


def test_a_guarded_ability_does_what_the_runner_does() -> None:
    """On a real kernel, pickled on the way, since runners cross processes."""
    runner = pickle.loads(pickle.dumps(Observed(GuardedRunner("p", NativeRunner(("-O1",))), (), nobody)))
    artifact = runner.compile(CEmitter(LOOP, "f", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact)
    in_turns = ability(runner, TimesInterleaved)
    assert in_turns
    found = in_turns.time_interleaved([artifact, artifact], RunRequest(repeats=2))
    assert len(found) == 2 and all(isinstance(each, Measurement) and each.seconds for each in found)
