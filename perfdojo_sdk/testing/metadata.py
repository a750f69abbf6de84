"""Checks of a plugin as a package: its names, versions, descriptions and imports."""

from __future__ import annotations

import importlib
import inspect
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.core.transformation import Transformation
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.imports import instead_of
from perfdojo_sdk.hookspecs.search import SearchStrategy
from perfdojo_sdk.hookspecs.services import Experiment
from perfdojo_sdk.hookspecs.types import Operator, Target
from perfdojo_sdk.kernels.selection import instantiate
from perfdojo_sdk.plugins import BUILTIN, installed
from perfdojo_sdk.testing import child_interpreter
from perfdojo_sdk.testing.context import Context
from perfdojo_sdk.testing.imported import sdk_imports

#: Libraries that a plugin may need, and must not load before it needs them.
HEAVY = frozenset(
    {"jax", "matplotlib", "networkx", "numba", "onnx", "onnxruntime", "pandas", "ray", "scipy", "sklearn"}
    | {"sqlalchemy", "sympy", "tensorflow", "torch", "transformers", "triton", "tvm", "typer"}
)
#: Processor time that importing a plugin may take beyond the SDK's own modules.
IMPORT_S = 1.0


def targets_of(context: Context) -> list[Target]:
    """The targets that the plugin may be asked about: its own, or all when it brings none."""
    plugins = context.plugins
    return [t for t in plugins.targets.values() if context.plugin in plugins.concerned(t)]


def own_targets(context: Context) -> list[Target]:
    return [t for t in context.plugins.targets.values() if t.plugin == context.plugin.name]


# -- the checks ----------------------------------------------------------------------------------


def loads(context: Context) -> Iterator[str]:
    """It imports, fits this version of the contract, and its hooks answer what they promise."""
    plugins = context.plugins
    for target in targets_of(context):
        with suppress(UnavailableError):  # then there is a problem, and it is listed below
            plugins.rules(target)
            plugins.math_accuracy(target)
        for owner, probe in plugins.probes(target):
            if owner == context.plugin and not probe.ok and not (probe.why and probe.remedy):
                yield f"probe {probe.part} of {target.name} finds nothing, and says not why or what mends it"
    for problem in plugins.problems:
        if problem.plugin == context.plugin.name:
            yield f"{problem.stage}: {problem.cause}; {problem.remedy}"


def up_to_date(context: Context) -> Iterator[str]:
    """It uses nothing that the next version of the contract will not have."""
    for name, what in context.plugins.deprecations:
        if name == context.plugin.name:
            yield what


def declares_targets(context: Context) -> Iterator[str]:
    """Its package declares its targets, so that it is imported only for them."""
    for target in own_targets(context):
        if target.name not in context.plugin.declared:
            yield f"target {target.name} is not among the entry points of group perfdojo_sdk.targets"


def import_is_cheap(context: Context) -> Iterator[str]:
    """Its names are read without importing it, and importing it loads no heavy library."""
    if context.plugin.name == BUILTIN:
        return
    if context.plugin.name not in {each.name for each in installed()}:
        yield "it is not among the entry points of group perfdojo_sdk.plugins: is it installed?"
        return
    module = getattr(context.plugin.module, "__name__", "")
    early, loaded, seconds = child_interpreter.call(import_cost, module)
    if early:
        yield f"listing the plugins imports {module}"
    if HEAVY & set(loaded):
        yield f"importing {module} loads {', '.join(sorted(HEAVY & set(loaded)))}; import them where needed"
    if seconds > IMPORT_S:
        yield f"importing {module} takes {seconds:.1f} s of processor time, more than {IMPORT_S:g} s"


def imports_what_plugins_may(context: Context) -> Iterator[str]:
    """It imports no modules of the SDK but those of the contract; each other one is a warning, with what to
    use."""
    file = getattr(context.plugin.module, "__file__", None)
    if context.plugin.name == BUILTIN or file is None:
        return
    folder = Path(file).parent
    for path, line, module in sdk_imports(folder):
        instead = instead_of(module)
        if instead:
            where = f"{path.relative_to(folder)}:{line}"
            context.warnings.append(f"{where} imports {module}, which may change at any time; use {instead}")
    yield from ()


def import_cost(module: str) -> tuple[bool, list[str], float]:
    """Measure the import of ``module``: a flag that listing plugins imports it, the packages it loads,
    seconds.

    Runs in a process of its own. The time does not include the SDK's modules and their imports.
    """
    installed()
    early = module in sys.modules
    before = set(sys.modules)
    importlib.import_module("perfdojo_sdk.plugins")
    for name in ("codegen.vector", "measure.native_runner", "search.play", "store.traces"):
        importlib.import_module(f"perfdojo_sdk.{name}")
    known = set(sys.modules) - before
    start = time.process_time()
    importlib.import_module(module)
    seconds = time.process_time() - start
    loaded = {name.partition(".")[0] for name in set(sys.modules) - known - before}
    return early, sorted(loaded), seconds


def names_have_a_prefix(context: Context) -> Iterator[str]:
    """The names it adds to shared name spaces start with one prefix and a slash."""
    plugins, plugin = context.plugins, context.plugin
    if plugin.name == BUILTIN:
        return
    names = [t.name for t in _moves(context)]
    names += [s.name for s in plugins.collect(plugin, "perfdojo_search_strategies", SearchStrategy)]
    names += [e.name for e in plugins.collect(plugin, "perfdojo_experiments", Experiment)]
    for name in names:
        if "/" not in name:
            yield f"{name} has no prefix"
    prefixes = {name.partition("/")[0] for name in names if "/" in name}
    if len(prefixes) > 1:
        yield f"it uses several prefixes: {', '.join(sorted(prefixes))}"


def moves_are_described(context: Context) -> Iterator[str]:
    """Each transformation has a sentence, an example, and requirements with codes of their own."""
    codes: dict[str, str] = {}
    known = {*GENERIC, *[move.name for move in _moves(context)]}
    for move in _moves(context):
        doc = inspect.getdoc(type(move)) or ""
        if type(move).__doc__ is None or not doc.split("\n")[0].endswith("."):
            yield f"{move.name}: its docstring does not start with a sentence"
        if "before:" not in doc or "after:" not in doc:
            yield f"{move.name}: its docstring has no before: and after:"
        if not move.requirements:
            yield f"{move.name}: it has no requirement, so it could never refuse"
        for requirement in move.requirements:
            if codes.setdefault(requirement.code, move.name) != move.name:
                yield f"{move.name} and {codes[requirement.code]} share the code {requirement.code}"
            if requirement.code.startswith("PD-"):
                yield f"{move.name}: the codes PD-... are the SDK's, and {requirement.code} is one of them"
            unknown = [name for name in requirement.established_by or () if name not in known]
            if unknown:
                yield f"{requirement.code}: it may be established by {', '.join(unknown)}, which is no move"
            if not (requirement.title and requirement.why and requirement.hint):
                yield f"{requirement.code}: title, why and hint must say something"


def operators_build(context: Context) -> Iterator[str]:
    """Each operator builds a program of its name at its default sizes."""
    for operator in _operators(context):
        if not operator.doc.endswith("."):
            yield f"{operator.name}: its description is no sentence"
        for sizes in operator.defaults or ((2,) * len(operator.parameters),):
            try:
                instantiate(operator, sizes)
            except DojoError as error:
                yield f"{operator.name}{list(sizes)}: {error.what}"


def objects_cross_processes(context: Context) -> Iterator[str]:
    """Its targets, runners, code generators and operators reach a fresh process, as a worker has them."""
    plugins, hooks = context.plugins, context.plugin.hooks
    things: dict[str, object] = {o.name: o for o in _operators(context)}
    for target in own_targets(context):
        things[target.name] = target
        if "perfdojo_runner" in hooks:
            things[f"the runner of {target.name}"] = plugins.runner(target)
        if "perfdojo_code_generator" in hooks:
            things[f"the code generator of {target.name}"] = plugins.code_generator(target)
    try:
        child_interpreter.call(child_interpreter.unchanged, things)
    except child_interpreter.ChildFailed:
        for name, thing in things.items():  # slowly, to know which
            try:
                child_interpreter.call(child_interpreter.unchanged, thing)
            except child_interpreter.ChildFailed as error:
                yield f"{name} {error}"


def _moves(context: Context) -> Sequence[Transformation]:
    """The transformations that the plugin brings to any target, once each."""
    found = {
        move.name: move
        for target in targets_of(context)
        for move in context.plugins.collect(
            context.plugin, "perfdojo_transformations", Transformation, target=target
        )
    }
    return list(found.values())


def _operators(context: Context) -> Sequence[Operator]:
    return context.plugins.collect(context.plugin, "perfdojo_operators", Operator)
