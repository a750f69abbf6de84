"""What can be said about a plugin without running a kernel: its names, versions, texts and borders.

``perfdojo-sdk plugins check`` prints these checks; the conformance kit runs them as tests.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Transformation
from perfdojo_sdk.hookspecs.search import SearchStrategy
from perfdojo_sdk.hookspecs.services import Experiment
from perfdojo_sdk.hookspecs.types import Operator, Target
from perfdojo_sdk.kernels.selection import instantiate
from perfdojo_sdk.plugins import BUILTIN, Plugin, Plugins

Check = Callable[[Plugins, Plugin], Iterator[str]]


@dataclass(frozen=True)
class Checked:
    """One check and what it found wrong; nothing when it passed."""

    name: str
    doc: str
    complaints: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.complaints


def check(plugins: Plugins, plugin: Plugin) -> list[Checked]:
    """Every check on one plugin. A check that raises has failed with that error."""
    results = []
    for name, test in CHECKS.items():
        try:
            complaints = tuple(test(plugins, plugin))
        except DojoError as error:
            complaints = (f"{error.what}: {error.why}" if error.why else error.what,)
        except Exception as error:
            complaints = (f"{type(error).__name__}: {error}",)
        results.append(Checked(name, inspect.getdoc(test) or "", complaints))
    return results


def targets_of(plugins: Plugins, plugin: Plugin) -> list[Target]:
    """The targets that a plugin may be asked about: its own, or all when it brings none."""
    return [t for t in plugins.targets.values() if plugin in plugins.concerned(t)]


def own_targets(plugins: Plugins, plugin: Plugin) -> list[Target]:
    return [t for t in plugins.targets.values() if t.plugin == plugin.name]


# -- the checks ----------------------------------------------------------------------------------


def loads(plugins: Plugins, plugin: Plugin) -> Iterator[str]:
    """It imports, fits this version of the contract, and its hooks answer what they promise."""
    for target in targets_of(plugins, plugin):
        plugins.rules(target)
        plugins.probes(target)
    for problem in plugins.problems:
        if problem.plugin == plugin.name:
            yield f"{problem.stage}: {problem.cause}"


def up_to_date(plugins: Plugins, plugin: Plugin) -> Iterator[str]:
    """It uses nothing that the next version of the contract will not have."""
    for name, what in plugins.deprecations:
        if name == plugin.name:
            yield what


def declares_targets(plugins: Plugins, plugin: Plugin) -> Iterator[str]:
    """Its package declares its targets, so that it is imported only for them."""
    for target in own_targets(plugins, plugin):
        if target.name not in plugin.declared:
            yield f"target {target.name} is not among the entry points of group perfdojo_sdk.targets"


def names_have_a_prefix(plugins: Plugins, plugin: Plugin) -> Iterator[str]:
    """What it adds to others' name spaces starts with one prefix and a slash."""
    if plugin.name == BUILTIN:
        return
    names = [t.name for t in _moves(plugins, plugin)]
    names += [s.name for s in plugins.collect(plugin, "perfdojo_search_strategies", SearchStrategy)]
    names += [e.name for e in plugins.collect(plugin, "perfdojo_experiments", Experiment)]
    for name in names:
        if "/" not in name:
            yield f"{name} has no prefix"
    prefixes = {name.partition("/")[0] for name in names if "/" in name}
    if len(prefixes) > 1:
        yield f"it uses several prefixes: {', '.join(sorted(prefixes))}"


def moves_are_described(plugins: Plugins, plugin: Plugin) -> Iterator[str]:
    """Each transformation has a sentence, an example, and requirements with codes of their own."""
    codes: dict[str, str] = {}
    for move in _moves(plugins, plugin):
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
            if not (requirement.title and requirement.why and requirement.hint):
                yield f"{requirement.code}: title, why and hint must say something"


def operators_build(plugins: Plugins, plugin: Plugin) -> Iterator[str]:
    """Each operator builds a program of its name at its default sizes."""
    for operator in _operators(plugins, plugin):
        if not operator.doc.endswith("."):
            yield f"{operator.name}: its description is no sentence"
        for sizes in operator.defaults or ((2,) * len(operator.parameters),):
            try:
                instantiate(operator, sizes)
            except DojoError as error:
                yield f"{operator.name}{list(sizes)}: {error.what}"


def objects_cross_processes(plugins: Plugins, plugin: Plugin) -> Iterator[str]:
    """Its targets, runners and operators pickle, so that workers can have them."""
    things: list[tuple[str, object]] = [(o.name, o) for o in _operators(plugins, plugin)]
    for target in own_targets(plugins, plugin):
        things += [(target.name, target)]
        if "perfdojo_runner" in plugin.hooks:
            things.append((f"the runner of {target.name}", plugins.runner(target)))
    for name, thing in things:
        try:
            pickle.loads(pickle.dumps(thing))
        except Exception as error:
            yield f"{name} does not pickle: {type(error).__name__}: {error}"


CHECKS: dict[str, Check] = {
    "loads": loads,
    "up to date": up_to_date,
    "declares its targets": declares_targets,
    "names have a prefix": names_have_a_prefix,
    "moves are described": moves_are_described,
    "operators build": operators_build,
    "objects cross processes": objects_cross_processes,
}


def _moves(plugins: Plugins, plugin: Plugin) -> Sequence[Transformation]:
    """The transformations that a plugin brings to any target, once each."""
    found = {
        move.name: move
        for target in targets_of(plugins, plugin)
        for move in plugins.collect(plugin, "perfdojo_transformations", Transformation, target=target)
    }
    return list(found.values())


def _operators(plugins: Plugins, plugin: Plugin) -> Sequence[Operator]:
    return plugins.collect(plugin, "perfdojo_operators", Operator)
