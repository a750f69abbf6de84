"""Find the plugins, and keep a broken one from stopping anybody else.

Plugins are entry points of the group ``perfdojo_sdk.plugins``. Whatever goes wrong with one of
them (it does not import, speaks another version of the contract, misspells a hook, raises) is
recorded as a :class:`Problem` with its stage, cause and remedy. A problem is raised only when a
target of that plugin is asked for, or in strict mode. So that the plugin at fault can be named,
hook implementations are called one by one; pluggy checks their names and signatures.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

import pluggy

import perfdojo_sdk
from perfdojo_sdk.core.errors import UnavailableError, closest
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import LegalityCheck, Rules, Transformation
from perfdojo_sdk.hookspecs import API_VERSION, specs
from perfdojo_sdk.hookspecs.types import (
    Bound,
    CodeGenerator,
    HeuristicPass,
    MachineFigures,
    Operator,
    Runner,
    Target,
    Unavailable,
)

GROUP = "perfdojo_sdk.plugins"
BUILTIN = "perfdojo_sdk"
PREFIX = "perfdojo_"
HOOKS = tuple(name for name in vars(specs) if name.startswith(PREFIX))

T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """One plugin that loaded, and where it comes from."""

    name: str
    distribution: str
    version: str
    module: object = field(repr=False)
    hooks: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Version and a hash of the plugin's files: changes whenever its code or data does."""
        return f"{self.version}+{content_hash(self.module)}"


@dataclass(frozen=True)
class Problem:
    """What is wrong with one plugin."""

    plugin: str
    stage: str
    """``discovery``, ``import``, ``version``, ``hooks``, or the name of the hook that failed."""
    cause: str
    remedy: str

    def error(self) -> UnavailableError:
        what = f"plugin {self.plugin} is broken at stage {self.stage}"
        return UnavailableError("PD-G001", what, why=self.cause, hint=self.remedy)


def content_hash(module: object, skip: str = "") -> str:
    """Twelve hex digits over the source and data files of a module's package, but for folder ``skip``."""
    package = sys.modules.get(getattr(module, "__package__", None) or "")
    if getattr(package, "__file__", None):
        module = package
    file = getattr(module, "__file__", None)
    if file is None:
        return "unknown"
    path = Path(file)
    root = path.parent
    files = [path]
    if hasattr(module, "__path__"):
        files = sorted(f for s in ("py", "yaml", "c", "h", "dojo") for f in root.rglob(f"*.{s}"))
    digest = hashlib.sha256()
    for each in files:
        if each.relative_to(root).parts[0] == skip:
            continue
        digest.update(str(each.relative_to(root)).encode() + b"\0" + each.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def installed() -> tuple[EntryPoint, ...]:
    """The plugins that are installed, by name; nothing is imported."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda e: (e.name, _distribution(e))))


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module


def load_plugins(strict: bool = False, without: Iterable[str] = (), extra: Sequence[object] = ()) -> Plugins:
    """Load the installed plugins and the modules in ``extra``.

    ``without`` names plugins to leave out; the environment variable ``PERFDOJO_PLUGINS=a,b``
    leaves out all others (the SDK's own and ``extra`` excepted). With ``strict``, the first
    problem is raised as :class:`UnavailableError`.
    """
    plugins = Plugins(strict)
    import perfdojo_sdk.kernels.operators as builtin

    plugins._add(Plugin(BUILTIN, "perfdojo-sdk", perfdojo_sdk.__version__, builtin))
    for entry in _selected(plugins, set(without)):
        plugins._load(entry)
    for module in extra:
        name = getattr(module, "__name__", type(module).__name__).rpartition(".")[2]
        plugins._add(Plugin(name, name, str(getattr(module, "__version__", "0")), module))
    plugins._collect_targets()
    plugins._collect_operators()
    return plugins


def _selected(plugins: Plugins, without: set[str]) -> Iterator[EntryPoint]:
    """The entry points to load; names that nobody has are problems."""
    by_name: dict[str, list[EntryPoint]] = {}
    for entry in installed():
        by_name.setdefault(entry.name, []).append(entry)
    only = {n.strip() for n in os.environ.get("PERFDOJO_PLUGINS", "").split(",")} - {""}
    for source, names in (("PERFDOJO_PLUGINS", only), ("the list of disabled plugins", without)):
        for name in sorted(names - by_name.keys()):
            cause = f"{source} names it, and it is not installed"
            plugins._report(Problem(name, "discovery", cause, closest(name, list(by_name))))
    for name, entries in by_name.items():
        if name in without or (only and name not in only):
            continue
        if len(entries) > 1:
            owners = " and ".join(_distribution(e) for e in entries)
            plugins._report(
                Problem(name, "discovery", f"{owners} both claim this name", "uninstall one of them")
            )
            continue
        yield entries[0]


class Plugins:
    """Everything that the loaded plugins bring. Made by :func:`load_plugins`."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.targets: dict[str, Target] = {}
        """Targets by name; one that two plugins claim is not among them."""
        self.operators: dict[str, Operator] = {}
        self._plugins: dict[str, Plugin] = {}
        self._problems: list[Problem] = []
        self._contested: dict[str, Problem] = {}
        self._rules: dict[str, Rules] = {}
        self._manager = pluggy.PluginManager(specs.PROJECT)
        self._manager.add_hookspecs(specs)

    # -- what is there ---------------------------------------------------------------------

    @property
    def loaded(self) -> tuple[Plugin, ...]:
        return tuple(self._plugins.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems)

    def fingerprints(self) -> dict[str, str]:
        """Plugin -> version and content hash, the SDK's own included: part of a record's key."""
        return {BUILTIN: _sdk_fingerprint()} | {
            p.name: p.fingerprint for p in self.loaded if p.name != BUILTIN
        }

    # -- targets ---------------------------------------------------------------------------

    def target(self, name: str) -> Target:
        """The target of this name; ``best`` is the usable one of the highest rank.

        :class:`UnavailableError` when there is none, or when its plugin is broken.
        """
        if name == "best":
            return self._best()
        if name in self._contested:
            raise self._contested[name].error()
        target = self.targets.get(name)
        if target is None:
            raise self._unknown(name)
        for problem in self._problems:
            if problem.plugin == target.plugin and problem not in self._contested.values():
                raise problem.error()
        return target

    def _unknown(self, name: str) -> UnavailableError:
        """No such target; when some plugin did not load, that may be why."""
        for problem in self._problems:
            if problem.plugin == name:
                return problem.error()
        known = [*self.targets, "best"] if self.targets else []
        silent = {p.plugin for p in self._problems} - {t.plugin for t in self.targets.values()}
        why = f"these plugins did not load: {', '.join(sorted(silent))}" if silent else ""
        hint = closest(name, known) if known else "install a plugin that brings a target"
        return UnavailableError("PD-G002", f"unknown target {name!r}", why=why, hint=hint)

    def _best(self) -> Target:
        reasons = []
        for target in sorted(self.targets.values(), key=lambda t: (-t.capabilities.rank, t.name)):
            try:
                reason = self.unavailable(self.target(target.name))
            except UnavailableError as error:
                reason = Unavailable(error.why or error.what, error.hint)
            if reason is None:
                return target
            reasons.append(f"{target.name}: {reason.why} ({reason.remedy})")
        raise UnavailableError(
            "PD-G003",
            "no target can run on this machine",
            why="; ".join(reasons) or "no plugin brings a target",
            hint="install a plugin for this machine, or mend one of the above",
        )

    def unavailable(self, target: Target) -> Unavailable | None:
        """Why ``target`` cannot run here, or None."""
        try:
            reason: Unavailable | None = self._first("perfdojo_unavailable", target, _instance(Unavailable))
        except UnavailableError as error:
            return Unavailable(error.why, error.hint)
        return reason

    def require(self, name: str) -> Target:
        """Like :meth:`target`; :class:`UnavailableError` also when it cannot run on this machine."""
        target = self.target(name)
        reason = self.unavailable(target)
        if reason is not None:
            what = f"target {target.name} cannot run on this machine"
            raise UnavailableError("PD-G004", what, why=reason.why, hint=reason.remedy)
        return target

    # -- what a target has -----------------------------------------------------------------

    def rules(self, target: Target) -> Rules:
        """The generic transformations, then those of plugins, and every plugin's vetoes."""
        if target.name not in self._rules:
            self._rules[target.name] = self._make_rules(target)
        return self._rules[target.name]

    def _make_rules(self, target: Target) -> Rules:
        from perfdojo_sdk.core.transformations import GENERIC

        moves: dict[str, Transformation] = dict(GENERIC)
        owner = dict.fromkeys(moves, BUILTIN)
        vetoes: list[LegalityCheck] = []
        for plugin in self._own_first(target):
            for move in self._collect(plugin, "perfdojo_transformations", Transformation, target=target):
                if move.name in moves:
                    self._duplicate(
                        plugin, "perfdojo_transformations", "transformation", move.name, owner[move.name]
                    )
                else:
                    moves[move.name], owner[move.name] = move, plugin.name
            vetoes += self._collect(plugin, "perfdojo_legality_checks", Callable, target=target)
        self.target(target.name)  # raises what the target's own plugin did wrong just now
        return Rules(target.dialect, moves, tuple(vetoes))

    def code_generator(self, target: Target) -> CodeGenerator:
        generator: CodeGenerator = self._needed("perfdojo_code_generator", target, _instance(CodeGenerator))
        return generator

    def runner(self, target: Target) -> Runner:
        runner: Runner = self._needed("perfdojo_runner", target, _instance(Runner))
        return runner

    def heuristic_pass(self, target: Target) -> HeuristicPass | None:
        """The expert's pass, or None when no plugin has one."""
        play: HeuristicPass | None = self._first("perfdojo_heuristic_pass", target, callable)
        return play

    def math_accuracy(self, target: Target) -> Mapping[str, float]:
        """Function -> largest error in ulp; empty when the target has no function of its own."""
        return self._first("perfdojo_math_accuracy", target, _is_accuracy) or {}

    def machine_figures(self, target: Target, refresh: bool = False) -> MachineFigures:
        """What this machine measures for ``target`` (anew with ``refresh``), else the target file's."""
        figures: MachineFigures | None = self._first(
            "perfdojo_machine_figures", target, _instance(MachineFigures), refresh=refresh
        )
        return figures or target.capabilities.figures

    def roofline_bound(
        self, program: Program, target: Target, threads: int, figures: MachineFigures | None = None
    ) -> Bound | None:
        """A lower bound on the time, from the target file's figures unless others are given."""
        figures = figures or target.capabilities.figures
        more = {"program": program, "threads": threads, "figures": figures}
        bound: Bound | None = self._first("perfdojo_roofline_bound", target, _instance(Bound), **more)
        return bound

    # -- loading ---------------------------------------------------------------------------

    def _report(self, problem: Problem) -> None:
        self._problems.append(problem)
        if self.strict:
            raise problem.error()

    def _load(self, entry: EntryPoint) -> None:
        owner = _distribution(entry)
        try:
            module = entry.load()
        except (Exception, SystemExit) as error:
            remedy = f"repair or upgrade {owner}, or disable the plugin {entry.name}"
            self._report(Problem(entry.name, "import", _cause(error), remedy))
            return
        version = entry.dist.version if entry.dist else "0"
        self._add(Plugin(entry.name, owner, version, module))

    def _add(self, plugin: Plugin) -> None:
        if plugin.name in self._plugins:
            both = f"{self._plugins[plugin.name].distribution} and {plugin.distribution} both claim this name"
            self._report(Problem(plugin.name, "discovery", both, "uninstall one of them"))
            return
        version = getattr(plugin.module, "PERFDOJO_API", None)
        if not _compatible(version):
            ours = ".".join(map(str, API_VERSION))
            cause = f"it is written for plugin API {version!r}, this SDK has {ours}"
            remedy = f"install a version of {plugin.distribution} for plugin API {ours}"
            if version is None:
                cause, remedy = "it does not declare PERFDOJO_API", f"add: PERFDOJO_API = {API_VERSION}"
            self._report(Problem(plugin.name, "version", cause, remedy))
            return
        hooks = tuple(name for name in HOOKS if hasattr(plugin.module, name))
        plugin = Plugin(plugin.name, plugin.distribution, plugin.version, plugin.module, hooks)
        for cause, remedy in _misfits(plugin.module):
            self._report(Problem(plugin.name, "hooks", cause, remedy))
        try:
            self._manager.register(plugin.module, plugin.name)
        except (pluggy.PluginValidationError, ValueError) as error:
            remedy = f"compare its signature with {specs.__name__}"
            self._report(Problem(plugin.name, "hooks", _cause(error), remedy))
            return
        self._plugins[plugin.name] = plugin

    def _collect_targets(self) -> None:
        for plugin in self.loaded:
            for target in self._collect(plugin, "perfdojo_targets", Target):
                # The record of who brings a target is ours to keep, not the plugin's.
                target = Target(target.name, target.capabilities, target.dialect, plugin.name)
                first = self.targets.pop(target.name, None)
                if first is None and target.name not in self._contested:
                    self.targets[target.name] = target
                elif first is not None:
                    cause = f"plugins {first.plugin} and {plugin.name} both bring target {target.name}"
                    problem = Problem(plugin.name, "perfdojo_targets", cause, "disable one of them")
                    self._contested[target.name] = problem
                    self._report(problem)

    def _collect_operators(self) -> None:
        """On a duplicate the first plugin keeps the name. Named sizes are names like any other."""
        owner: dict[str, str] = {}
        for plugin in self.loaded:
            for operator in self._collect(plugin, "perfdojo_operators", Operator):
                claims = (operator.name, *operator.names)
                taken = next((name for name in claims if name in owner), None)
                if taken is not None:
                    self._duplicate(plugin, "perfdojo_operators", "operator", taken, owner[taken])
                    continue
                self.operators[operator.name] = operator
                owner.update(dict.fromkeys(claims, plugin.name))

    def _duplicate(self, plugin: Plugin, hook: str, what: str, name: str, owner: str) -> None:
        cause = f"{what} {name} already comes from plugin {owner}, {plugin.name} claims it too"
        self._report(Problem(plugin.name, hook, cause, "rename one of them"))

    # -- calling hooks ---------------------------------------------------------------------

    def _own_first(self, target: Target) -> list[Plugin]:
        return sorted(self.loaded, key=lambda p: p.name != target.plugin)

    def _call(self, plugin: Plugin, hook: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of one plugin to one hook; None when it does not implement the hook."""
        for each in getattr(self._manager.hook, hook).get_hookimpls():
            if each.plugin_name == plugin.name:
                return each.function(*(arguments[name] for name in each.argnames))
        return None

    def _collect(self, plugin: Plugin, hook: str, kind: Any, **arguments: Any) -> list[Any]:
        """What a plugin contributes; a plugin that raises, or yields the wrong thing, has a problem."""
        try:
            items = list(self._call(plugin, hook, arguments) or ())
        except (Exception, SystemExit) as error:
            self._report(Problem(plugin.name, hook, f"it raised {_cause(error)}", _UPGRADE.format(plugin)))
            return []
        for item in items:
            if not isinstance(item, kind):
                cause = f"it returned {type(item).__name__} {item!r:.80}, expected {kind.__name__}"
                self._report(Problem(plugin.name, hook, cause, _UPGRADE.format(plugin)))
        return [item for item in items if isinstance(item, kind)]

    def _first(self, hook: str, target: Target, fits: Callable[[Any], bool], **more: Any) -> Any:
        """The first answer, the target's own plugin asked first; its failure is fatal, others' are not."""
        for plugin in self._own_first(target):
            cause = ""
            answer = None
            try:
                answer = self._call(plugin, hook, {"target": target, **more})
            except (Exception, SystemExit) as error:
                cause = f"it raised {_cause(error)}"
            if answer is not None and not fits(answer):
                cause = f"it returned {type(answer).__name__} {answer!r:.80}"
            if not cause:
                if answer is not None:
                    return answer
                continue
            problem = Problem(plugin.name, hook, cause, _UPGRADE.format(plugin))
            if problem not in self._problems:
                self._report(problem)
            if plugin.name == target.plugin:
                raise problem.error()
        return None

    def _needed(self, hook: str, target: Target, fits: Callable[[Any], bool]) -> Any:
        answer = self._first(hook, target, fits)
        if answer is None:
            what = f"no plugin implements {hook} for target {target.name}"
            hint = f"plugin {target.plugin} brings the target and should implement it"
            raise UnavailableError("PD-G005", what, hint=hint)
        return answer


_UPGRADE = "repair or upgrade {0.distribution}, or disable the plugin {0.name}"


def _cause(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _compatible(version: object) -> bool:
    """While major is 0 a minor version may change anything, so both must be the same."""
    return isinstance(version, tuple) and version == API_VERSION


def _misfits(module: object) -> Iterator[tuple[str, str]]:
    """(cause, remedy) for every name that looks like a hook and is none."""
    for name in dir(module):
        if not name.startswith(PREFIX):
            continue
        value = getattr(module, name)
        options = getattr(value, f"{specs.PROJECT}_impl", None)
        if not callable(value):
            continue
        if name not in HOOKS:
            yield f"there is no hook {name}", closest(name, list(HOOKS))
        elif options is None:
            yield f"{name} is not marked as an implementation", "put @hookimpl above it"
        elif options.get("hookwrapper") or options.get("wrapper"):
            yield f"{name} is a wrapper; hooks are called one by one", "use plain @hookimpl"


def _instance(kind: type) -> Callable[[Any], bool]:
    return lambda answer: isinstance(answer, kind)


def _is_accuracy(answer: Any) -> bool:
    return isinstance(answer, Mapping) and all(
        isinstance(k, str) and isinstance(v, (int, float)) and 0 < v < 1e6 for k, v in answer.items()
    )


def _sdk_fingerprint() -> str:
    # How the command line shows results changes none of them.
    return f"{perfdojo_sdk.__version__}+{content_hash(perfdojo_sdk, skip='cli')}"
