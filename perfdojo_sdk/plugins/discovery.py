"""Discovery of installed plugins in package metadata: names, versions and targets, nothing imported.

Two groups of entry points. ``perfdojo_sdk.plugins`` names the plugins. ``perfdojo_sdk.targets`` names
each target that a plugin brings, with the same module; a plugin that declares its targets there is
imported only when one of them may be needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import Distribution, EntryPoint, EntryPoints, distributions, entry_points
from typing import Any

from perfdojo_sdk.core.errors import closest
from perfdojo_sdk.plugins.plugin import Problem

GROUP = "perfdojo_sdk.plugins"
TARGETS = "perfdojo_sdk.targets"
#: Names of plugins, separated by commas: only these are used.
ONLY = "PERFDOJO_PLUGINS"


@dataclass(frozen=True)
class Installed:
    """One plugin as its package describes it."""

    name: str
    distribution: str
    version: str
    targets: tuple[str, ...]
    """The targets that it declares."""
    entry: EntryPoint = field(repr=False, compare=False)


@dataclass(frozen=True)
class Choice:
    """The plugins that a person wants, for a whole command."""

    strict: bool = False
    """Any problem of any plugin is fatal."""
    without: frozenset[str] = frozenset()
    """Plugins to leave out."""


#: The choice of plugins on the command line, which :func:`perfdojo_sdk.plugins.load_plugins` respects.
choice: ContextVar[Choice] = ContextVar("choice", default=Choice())  # noqa: B039 (frozen)


def installed() -> tuple[Installed, ...]:
    """The plugins that are installed, by name."""
    everything, unreadable = _entries()
    declared: dict[tuple[str, str], list[str]] = {}
    for entry in everything.select(group=TARGETS):
        declared.setdefault((_distribution(entry), entry.value), []).append(entry.name)
    found = [
        Installed(
            entry.name,
            _distribution(entry),
            _version(entry),
            tuple(sorted(declared.get((_distribution(entry), entry.value), ()))),
            entry,
        )
        for entry in everything.select(group=GROUP)
    ]
    return tuple(sorted([*found, *unreadable], key=lambda i: (i.name, i.distribution)))


def _entries() -> tuple[Any, list[Installed]]:
    """The declarations of all packages, and the plugins in declarations that are no UTF-8 text."""
    try:
        return entry_points(), []
    except UnicodeDecodeError:
        readable: dict[str, tuple[EntryPoint, ...]] = {}
        unreadable: dict[str, Installed] = {}
        for package in distributions():
            try:
                entries = tuple(package.entry_points)
            except UnicodeDecodeError as error:
                if GROUP.encode() in error.object:
                    unreadable.setdefault(_name(package), _unreadable(package))
                continue
            readable.setdefault(_name(package), entries)
        return EntryPoints(entry for entries in readable.values() for entry in entries), [
            *unreadable.values()
        ]


class _Unreadable:
    """A stand-in for an unreadable entry point; loading it raises an error that says so."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def load(self) -> object:
        raise ImportError(f"what its package declares is no UTF-8 text (entry_points.txt, in {self.folder})")


def _unreadable(package: Distribution) -> Installed:
    try:
        name, version = package.name, package.version
    except UnicodeDecodeError:
        name, version = "of an unknown name", "0"
    entry: Any = _Unreadable(str(package.locate_file("")))
    return Installed(name, name, version, (), entry)


def _name(package: Distribution) -> str:
    """The normalised name of a package, for comparison; a unique one if it cannot be read."""
    try:
        return re.sub(r"[-_.]+", "-", package.name).lower()
    except UnicodeDecodeError:
        return f"{id(package)}"


def _distribution(entry: EntryPoint) -> str:
    """The package's name; that of its module if the package has none."""
    try:
        return entry.dist.name if entry.dist else entry.module
    except UnicodeDecodeError:
        return entry.module


def _version(entry: EntryPoint) -> str:
    try:
        return entry.dist.version if entry.dist else "0"
    except UnicodeDecodeError:
        return "0"


def chosen(found: Iterable[Installed], without: Collection[str]) -> tuple[list[Installed], list[Problem]]:
    """The plugins that the user wants, and problems with the choice or the packages."""
    problems = []
    by_name: dict[str, list[Installed]] = {}
    for each in found:
        by_name.setdefault(each.name, []).append(each)
    only = only_these()
    for source, names in ((ONLY, only), ("the list of disabled plugins", without)):
        for name in sorted(set(names) - by_name.keys()):
            cause = f"{source} names it, and it is not installed"
            problems.append(Problem(name, "discovery", cause, closest(name, list(by_name))))
    kept = []
    for name, twins in by_name.items():
        if disabled(name, without):
            continue
        if len(twins) > 1:
            owners = " and ".join(each.distribution for each in twins)
            cause = f"{owners} both claim this name"
            problems.append(Problem(name, "discovery", cause, "uninstall one of them"))
        else:
            kept += twins
    return kept, problems


def only_these() -> set[str]:
    """The plugins that the environment asks for; empty: all."""
    return {name.strip() for name in os.environ.get(ONLY, "").split(",")} - {""}


def disabled(name: str, without: Collection[str]) -> bool:
    """True if a person left this plugin out."""
    only = only_these()
    return name in without or bool(only and name not in only)


def needed(found: Sequence[Installed], targets: Iterable[str] | None) -> list[Installed]:
    """The plugins that a command about ``targets`` needs; None, or ``best``, stands for all targets.

    A plugin that declares no target may add to any of them, and is always needed. If no plugin declares a
    target, one may have forgotten to, so all are needed.
    """
    if targets is None:
        return list(found)
    wanted = set(targets)
    if wanted - {target for each in found for target in each.targets}:
        return list(found)
    return [each for each in found if not each.targets or wanted & set(each.targets)]
