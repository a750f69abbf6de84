"""Everything that the plugins contribute, by target.

A plugin that brings targets contributes to these only; one that brings none may contribute to every target.
So a target does not depend on the other targets that are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfdojo_sdk.core.errors import UnavailableError, closest
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import LegalityCheck, Rules, Transformation
from perfdojo_sdk.hookspecs.search import SearchStrategy
from perfdojo_sdk.hookspecs.services import Experiment, Observer, Packager, Probe, TimeBreakdown
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    CodeGenerator,
    HeuristicPass,
    MachineFigures,
    Measurement,
    Operator,
    Runner,
    RunRequest,
    Target,
    Unavailable,
)
from perfdojo_sdk.plugins import discovery
from perfdojo_sdk.plugins.calls import HookCalls
from perfdojo_sdk.plugins.faults import limit_s
from perfdojo_sdk.plugins.guarded_moves import GuardedTransformation
from perfdojo_sdk.plugins.guards import GuardedGenerator, GuardedPass, GuardedRunner, GuardedVeto
from perfdojo_sdk.plugins.plugin import BUILTIN, Plugin, Problem, own_plugin, sdk_fingerprint


def load_plugins(
    strict: bool = False,
    without: Iterable[str] = (),
    extra: Sequence[object] = (),
    targets: Iterable[str] | None = None,
) -> Plugins:
    """Load the installed plugins that ``targets`` need (None: any target), and the modules in ``extra``.

    ``without`` names plugins to leave out; the environment variable ``PERFDOJO_PLUGINS=a,b``
    leaves out all others (the SDK's own and ``extra`` excepted). With ``strict``, the first
    problem is raised as :class:`UnavailableError`. What a person chose for the whole command
    (:data:`.discovery.choice`) holds too. :class:`DojoError` when the limit on their time is no number.
    """
    limit_s()  # a wrong value is the user's mistake, and no plugin's problem
    wish = discovery.choice.get()
    plugins = Plugins(strict or wish.strict)
    plugins.add(own_plugin())
    found, problems = discovery.chosen(discovery.installed(), {*without, *wish.without})
    for problem in problems:
        plugins.report(problem)
    for each in discovery.needed(found, targets):
        plugins.load(each)
    for module in extra:
        name = getattr(module, "__name__", type(module).__name__).rpartition(".")[2]
        plugins.add(Plugin(name, name, str(getattr(module, "__version__", "0")), module))
    plugins.gather(found)
    return plugins


class Plugins(HookCalls):
    """Everything that the loaded plugins bring. Made by :func:`load_plugins`."""

    def __init__(self, strict: bool = False) -> None:
        super().__init__(strict)
        self.targets: dict[str, Target] = {}
        """Targets by name; one that two plugins claim is not among them."""
        self.operators: dict[str, Operator] = {}
        """Operators of all loaded plugins; :meth:`operators_for` has those of one target."""
        self.strategies: dict[str, SearchStrategy] = {}
        self.experiments: dict[str, Experiment] = {}
        self._operator_owners: dict[str, Plugin] = {}
        self._strategy_owners: dict[str, str] = {}
        self._declared: dict[str, set[str]] = {}
        self._contested: dict[str, Problem] = {}
        self._rules: dict[str, Rules] = {}

    def gather(self, found: Iterable[discovery.Installed] = ()) -> None:
        """Collect the targets and operators of the loaded plugins; ``found`` are the installed ones."""
        for each in found:
            for target in each.targets:
                self._declared.setdefault(target, set()).add(each.name)
        self._gather_targets()
        for plugin, operator in self.collect_named("perfdojo_operators", Operator):
            self.operators[operator.name], self._operator_owners[operator.name] = operator, plugin
        for plugin, strategy in self.collect_named("perfdojo_search_strategies", SearchStrategy):
            self.strategies[strategy.name], self._strategy_owners[strategy.name] = strategy, plugin.name
        for _, experiment in self.collect_named("perfdojo_experiments", Experiment):
            self.experiments[experiment.name] = experiment

    def _gather_targets(self) -> None:
        for plugin in self.loaded:
            brought = self.collect(plugin, "perfdojo_targets", Target)
            for target in brought:
                # The plugin's name is filled in here, whatever the plugin says.
                target = Target(target.name, target.capabilities, target.dialect, plugin.name)
                first = self.targets.pop(target.name, None)
                if first is None and target.name not in self._contested:
                    self.targets[target.name] = target
                elif first is not None:
                    cause = f"plugins {first.plugin} and {plugin.name} both bring target {target.name}"
                    problem = Problem(plugin.name, "perfdojo_targets", cause, "leave one of them out")
                    self._contested[target.name] = problem
                    self.report(problem)
            missing = sorted(set(plugin.declared) - {target.name for target in brought})
            if missing:
                cause = f"its package declares target {missing[0]}, which it does not bring"
                self.blame(plugin, "perfdojo_targets", cause)

    def fingerprints(self, target: Target | None = None) -> dict[str, str]:
        """Plugin -> version and content hash, for all that contribute to ``target``, the SDK included."""
        plugins = self.loaded if target is None else self.concerned(target)
        return {p.name: sdk_fingerprint() if p.name == BUILTIN else p.fingerprint for p in plugins}

    def concerned(self, target: Target) -> list[Plugin]:
        """The plugins that contribute to ``target``: its own, then those that bring no target."""
        bring = {t.plugin for t in self.targets.values()} | {p.name for p in self.loaded if p.declared}
        own = [p for p in self.loaded if p.name == target.plugin]
        return own + [p for p in self.loaded if p.name not in bring]

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
        """The error for an unknown target, with the problem of a plugin that did not load, if there is
        one."""
        suspects = {name, *self._declared.get(name, ())}
        for problem in self._problems:
            if problem.plugin in suspects:
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
            why="\n        ".join(reasons) or "no plugin brings a target",
            hint="install a plugin for this machine, or mend one of the above",
        )

    def require(self, name: str) -> Target:
        """Like :meth:`target`; :class:`UnavailableError` also when it cannot run on this machine."""
        target = self.target(name)
        reason = self.unavailable(target)
        if reason is not None:
            what = f"target {target.name} cannot run on this machine"
            raise UnavailableError("PD-G004", what, why=reason.why, hint=reason.remedy)
        return target

    def probes(self, target: Target) -> list[tuple[Plugin, Probe]]:
        """The probes of this machine for ``target``, each with the plugin that makes it."""
        return [
            (plugin, probe)
            for plugin in self.concerned(target)
            for probe in self.collect(plugin, "perfdojo_doctor_probes", Probe, target=target)
        ]

    def unavailable(self, target: Target) -> Unavailable | None:
        """The reason why ``target`` cannot run here, or None: the first thing missing that its own plugin
        requires."""
        for plugin, probe in self.probes(target):
            if plugin.name == target.plugin and probe.required and not probe.ok:
                return Unavailable(probe.why or f"there is no {probe.part}", probe.remedy)
        for problem in self._problems:
            if problem.plugin == target.plugin and problem.stage == "perfdojo_doctor_probes":
                return Unavailable(problem.cause, problem.remedy)
        try:
            reason: Unavailable | None = self._first("perfdojo_unavailable", target, _instance(Unavailable))
        except UnavailableError as error:
            return Unavailable(error.why, error.hint)
        return reason

    # -- what a target has -----------------------------------------------------------------

    def rules(self, target: Target) -> Rules:
        """The generic transformations, then those of plugins, and every plugin's vetoes."""
        if target.name not in self._rules:
            self._rules[target.name] = self._make_rules(target)
        return self._rules[target.name]

    def _make_rules(self, target: Target) -> Rules:
        from perfdojo_sdk.core.transformations import GENERIC

        hook = "perfdojo_transformations"
        moves: dict[str, Transformation] = dict(GENERIC)
        owners: dict[str, str] = {}
        packages: dict[str, str] = {}
        vetoes: list[LegalityCheck] = []
        for plugin in self.concerned(target):
            for move in self.collect(plugin, hook, Transformation, target=target):
                if move.name in moves:
                    owner = owners.get(move.name, BUILTIN)
                    self.duplicate(plugin, hook, "transformation", move.name, owner)
                else:
                    own = move if plugin.name == BUILTIN else GuardedTransformation(plugin.name, move)
                    moves[move.name], owners[move.name] = own, plugin.name
                    packages[move.name] = plugin.distribution
            found = self.collect(plugin, "perfdojo_legality_checks", Callable, target=target)
            vetoes += [GuardedVeto(plugin.name, veto) for veto in found]
        self.target(target.name)  # raises the problem that the target's own plugin may have had just now
        return Rules(target.dialect, moves, tuple(vetoes), packages)

    def operators_for(self, target: Target) -> dict[str, Operator]:
        """The operators that any target has, and those of the target's own plugin."""
        concerned = {plugin.name for plugin in self.concerned(target)}
        return {n: o for n, o in self.operators.items() if self._operator_owners[n].name in concerned}

    def code_generator(self, target: Target) -> CodeGenerator:
        generator: CodeGenerator = self._needed("perfdojo_code_generator", target, _instance(CodeGenerator))
        return generator

    def runner(self, target: Target) -> Runner:
        """The target's runner as its plugin gives it; :meth:`observed_runner` is the one to measure with."""
        runner: Runner = self._needed("perfdojo_runner", target, _instance(Runner))
        return runner

    def guarded_generator(self, target: Target) -> CodeGenerator:
        """The same, whose faults name the plugin that brings it."""
        owner, generator = self._owned("perfdojo_code_generator", target, _instance(CodeGenerator))
        return GuardedGenerator(owner, generator)

    def guarded_runner(self, target: Target) -> Runner:
        """The target's runner, whose faults name the plugin that brings it."""
        owner, runner = self._owned("perfdojo_runner", target, _instance(Runner))
        return GuardedRunner(owner, runner)

    def guarded_pass(self, target: Target) -> HeuristicPass | None:
        """The expert's pass, whose faults name the plugin that brings it; None when no plugin has one."""
        found = self.first_of(self.concerned(target), "perfdojo_heuristic_pass", target, callable)
        return None if found is None else GuardedPass(found[0].name, found[1])

    def owner_of_strategy(self, name: str) -> str:
        """The plugin that brings a search strategy."""
        return self._strategy_owners[name]

    def observed_runner(self, target: Target, runner: Runner | None = None) -> Runner:
        """The target's runner, or ``runner``, with every plugin's observers around each timed run."""
        from perfdojo_sdk.measure.observed import Observed

        watching = [
            (observer, plugin)
            for plugin in self.concerned(target)
            for observer in self.collect(plugin, "perfdojo_observers", Observer, target=target)
        ]
        return Observed(runner or self.guarded_runner(target), tuple(watching), self._blame_observer)

    def _blame_observer(self, owner: object, cause: str) -> None:
        assert isinstance(owner, Plugin)
        self.blame(owner, "perfdojo_observers", cause)

    def heuristic_pass(self, target: Target) -> HeuristicPass | None:
        """The expert's pass, or None when no plugin has one."""
        play: HeuristicPass | None = self._first("perfdojo_heuristic_pass", target, callable)
        return play

    def math_accuracy(self, target: Target) -> Mapping[str, float]:
        """Operation -> its error in ulp on the target, at most :attr:`Meaning.largest_error`; of one that is
        left out, :attr:`Meaning.error`."""
        return self._first("perfdojo_math_accuracy", target, _is_accuracy) or {}

    def machine_figures(self, target: Target, refresh: bool = False) -> MachineFigures:
        """This machine's figures, measured for ``target`` (anew with ``refresh``), else the file's."""
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

    def packager(self, target: Target) -> Packager | None:
        """The target's own way to make a library; None stands for a shared object with a C header."""
        packager: Packager | None = self._first("perfdojo_packager", target, _instance(Packager))
        return packager

    def time_breakdown(
        self, program: Program, target: Target, artifact: Artifact, request: RunRequest
    ) -> TimeBreakdown:
        """The parts of the time; :class:`UnavailableError` when the target's plugin cannot tell."""
        more = {"program": program, "artifact": artifact, "request": request}
        found = self._first("perfdojo_time_breakdown", target, _instance(TimeBreakdown), **more)
        if not isinstance(found, TimeBreakdown):
            what = f"no plugin can tell where a kernel's time goes on target {target.name}"
            hint = "`bench` prints the time, `build-library` the fraction of the roofline"
            raise UnavailableError("PD-G006", what, hint=hint)
        return found

    def search_strategy(self, name: str) -> SearchStrategy:
        """The strategy of this name; :class:`UnavailableError` when there is none."""
        if name not in self.strategies:
            what = f"unknown search strategy {name!r}"
            raise UnavailableError("PD-G007", what, hint=closest(name, list(self.strategies)))
        return self.strategies[name]

    # -- events ----------------------------------------------------------------------------

    def measurement_recorded(self, target: Target, kernel: str, measurement: Measurement) -> None:
        """Tell all plugins that ``kernel`` was measured."""
        hook = "perfdojo_measurement_recorded"
        more = {"target": target, "kernel": kernel, "measurement": measurement}
        self.notify(self.concerned(target), hook, **more)

    def library_built(self, target: Target, directory: Path) -> None:
        """Tell all plugins that a library is complete."""
        self.notify(self.concerned(target), "perfdojo_library_built", target=target, directory=directory)

    # -- asking ----------------------------------------------------------------------------

    def _first(self, hook: str, target: Target, fits: Callable[[Any], bool], **more: Any) -> Any:
        return self.first(self.concerned(target), hook, target, fits, **more)

    def _needed(self, hook: str, target: Target, fits: Callable[[Any], bool]) -> Any:
        return self._owned(hook, target, fits)[1]

    def _owned(self, hook: str, target: Target, fits: Callable[[Any], bool]) -> tuple[str, Any]:
        """An answer that has to be there, and the name of the plugin that gave it."""
        found = self.first_of(self.concerned(target), hook, target, fits)
        if found is None:
            what = f"no plugin implements {hook} for target {target.name}"
            hint = f"plugin {target.plugin} brings the target and should implement it"
            raise UnavailableError("PD-G005", what, hint=hint)
        return found[0].name, found[1]


def _instance(kind: type) -> Callable[[Any], bool]:
    return lambda answer: isinstance(answer, kind)


def _is_accuracy(answer: Any) -> bool:
    """True if the answer has errors in ulp that the language allows; unknown operations are ignored."""
    return isinstance(answer, Mapping) and all(
        isinstance(name, str) and isinstance(error, (int, float)) and 0 < error <= _largest_error(name)
        for name, error in answer.items()
    )


def _largest_error(name: str) -> float:
    return OPERATIONS[name].largest_error if name in OPERATIONS else 1e6
