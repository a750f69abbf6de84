"""Calls of hooks, one plugin at a time: a failure is attributed to its plugin, and does not affect others.

pluggy checks names and signatures and passes to each implementation the arguments that it asks for; this
module decides the order, and handles answers and exceptions.
"""

from __future__ import annotations

import logging
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from itertools import islice
from typing import Any

import pluggy

from perfdojo_sdk.hookspecs import deprecated, specs
from perfdojo_sdk.hookspecs.types import Operator, Target
from perfdojo_sdk.plugins.discovery import Installed
from perfdojo_sdk.plugins.faults import TookTooLong, limit_s, within
from perfdojo_sdk.plugins.plugin import (
    HOOKS,
    Plugin,
    Problem,
    cause_of,
    gone_for,
    misfit_hooks,
    misfit_version,
)

#: Most items that a plugin may contribute through one hook.
MOST_ITEMS = 10_000

LOGGER = logging.getLogger("perfdojo_sdk.plugins")


class HookCalls:
    """The loaded plugins, their problems, and calls of their hooks."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._plugins: dict[str, Plugin] = {}
        self._problems: list[Problem] = []
        self._deprecations: list[tuple[str, str]] = []
        self._manager = pluggy.PluginManager(specs.PROJECT)
        self._manager.add_hookspecs(specs)
        self._manager.add_hookspecs(deprecated)

    @property
    def loaded(self) -> tuple[Plugin, ...]:
        """The plugins that were imported, the SDK's own first."""
        return tuple(self._plugins.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The known faults of all plugins."""
        return tuple(self._problems)

    @property
    def deprecations(self) -> tuple[tuple[str, str], ...]:
        """(plugin, message about an old form that it uses and its replacement)."""
        return tuple(self._deprecations)

    def report(self, problem: Problem) -> None:
        """Remember a problem, once; raise it in strict mode."""
        if problem not in self._problems:
            self._problems.append(problem)
        if self.strict:
            raise problem.error()

    # -- loading ---------------------------------------------------------------------------

    def load(self, found: Installed) -> None:
        """Import a plugin."""
        try:
            with within(limit_s()), redirect_stdout(sys.stderr):  # stdout is for the command's results
                module = found.entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            remedy = f"repair or upgrade {found.distribution}, or leave it out with --no-plugin {found.name}"
            cause = f"it {error}" if isinstance(error, TookTooLong) else cause_of(error)
            self.report(Problem(found.name, "import", cause, remedy))
            return
        self.add(Plugin(found.name, found.distribution, found.version, module, declared=found.targets))

    def add(self, plugin: Plugin) -> None:
        """Register a plugin whose module is imported."""
        if plugin.name in self._plugins:
            both = f"{self._plugins[plugin.name].distribution} and {plugin.distribution} both claim this name"
            self.report(Problem(plugin.name, "discovery", both, "uninstall one of them"))
            return
        unfit = misfit_version(plugin)
        if unfit:
            self.report(unfit)
            return
        misfits = list(misfit_hooks(plugin))
        for problem in misfits:
            self.report(problem)
        try:
            self._manager.register(plugin.module, plugin.name)
        except (pluggy.PluginValidationError, ValueError) as error:
            if not misfits:
                remedy = f"compare its signatures with {specs.__name__}"
                self.report(Problem(plugin.name, "hooks", cause_of(error), remedy))
            return
        hooks = tuple(name for name in HOOKS if hasattr(plugin.module, name))
        self._plugins[plugin.name] = Plugin(
            plugin.name, plugin.distribution, plugin.version, plugin.module, hooks, plugin.declared
        )
        self._note_deprecations(plugin)

    def _note_deprecations(self, plugin: Plugin) -> None:
        """Warn of forms that the next version of the contract drops."""
        gone = gone_for(plugin)
        for old in deprecated.DEPRECATIONS:
            if (old.hook, old.argument) in gone:
                continue  # it is a problem already
            arguments = self._arguments(plugin, old.hook)
            if arguments is None or (old.argument and old.argument not in arguments):
                continue
            since = ".".join(map(str, old.since))
            text = f"{old.what} is deprecated since plugin API {since}; use {old.instead}"
            self._deprecations.append((plugin.name, text))
            where = f"plugin {plugin.name} ({plugin.distribution}): "
            warnings.warn(where + text, deprecated.PluginDeprecation, stacklevel=2)

    def _arguments(self, plugin: Plugin, hook: str) -> tuple[str, ...] | None:
        """The arguments that a plugin's implementation takes; None without one."""
        for each in getattr(self._manager.hook, hook).get_hookimpls():
            if each.plugin_name == plugin.name:
                return tuple(each.argnames)
        return None

    # -- calling ---------------------------------------------------------------------------

    def call(self, plugin: Plugin, hook: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of one plugin to one hook; None when it does not implement the hook."""
        for each in getattr(self._manager.hook, hook).get_hookimpls():
            if each.plugin_name == plugin.name:
                with within(limit_s()), redirect_stdout(sys.stderr):
                    return each.function(*(arguments[name] for name in each.argnames))
        return None

    def collect(self, plugin: Plugin, hook: str, kind: Any, **arguments: Any) -> list[Any]:
        """The contributions of a plugin; one that raises, or yields the wrong thing, has a problem."""
        try:
            items = list(islice(self.call(plugin, hook, arguments) or (), MOST_ITEMS))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.blame(plugin, hook, self.raised(plugin, hook, error))
            return []
        for item in items:
            if not isinstance(item, kind):
                cause = f"it returned {shown(item)}, expected {kind.__name__}"
                self.blame(plugin, hook, cause)
        return [item for item in items if isinstance(item, kind)]

    def collect_named(self, hook: str, kind: Any) -> Iterator[tuple[Plugin, Any]]:
        """The named contributions of all plugins; of two with one name the first stays.

        The names that an operator gives to its sizes are names like any other.
        """
        owners: dict[str, str] = {}
        for plugin in self.loaded:
            for item in self.collect(plugin, hook, kind):
                claims = (item.name, *(item.names if isinstance(item, Operator) else ()))
                taken = next((name for name in claims if name in owners), None)
                if taken is not None:
                    self.duplicate(plugin, hook, kind.__name__.lower(), taken, owners[taken])
                    continue
                owners.update(dict.fromkeys(claims, plugin.name))
                yield plugin, item

    def duplicate(self, plugin: Plugin, hook: str, what: str, name: str, owner: str) -> None:
        cause = f"{what} {name} already comes from plugin {owner}, {plugin.name} claims it too"
        self.report(Problem(plugin.name, hook, cause, "rename one of them"))

    def first(
        self, plugins: Iterable[Plugin], hook: str, target: Target, fits: Callable[[Any], bool], **more: Any
    ) -> Any:
        """The first answer of ``plugins``; a failure of the target's own plugin is fatal, others' are not."""
        found = self.first_of(plugins, hook, target, fits, **more)
        return None if found is None else found[1]

    def first_of(
        self, plugins: Iterable[Plugin], hook: str, target: Target, fits: Callable[[Any], bool], **more: Any
    ) -> tuple[Plugin, Any] | None:
        """The first answer, and the plugin that gave it."""
        for plugin in plugins:
            cause, answer, raised = "", None, None
            try:
                answer = self.call(plugin, hook, {"target": target, **more})
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                cause, raised = self.raised(plugin, hook, error), error
            if answer is not None and not fits(answer):
                cause = f"it returned {shown(answer)}"
            if cause:
                problem = self.blame(plugin, hook, cause)
                if plugin.name == target.plugin:
                    raise problem.error() from raised
            elif answer is not None:
                return plugin, answer
        return None

    def notify(self, plugins: Iterable[Plugin], hook: str, **arguments: Any) -> None:
        """Call an event's hook of all plugins; one that raises has a problem, and the others are still
        called."""
        for plugin in plugins:
            try:
                self.call(plugin, hook, arguments)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.blame(plugin, hook, self.raised(plugin, hook, error))

    @staticmethod
    def raised(plugin: Plugin, hook: str, error: BaseException) -> str:
        """The error that a hook raised, on one line; the traceback goes to the logger."""
        LOGGER.debug(f"plugin {plugin.name}: {hook} raised", exc_info=error)
        return f"it {error}" if isinstance(error, TookTooLong) else f"it raised {cause_of(error)}"

    def blame(self, plugin: Plugin, hook: str, cause: str) -> Problem:
        """Report that a plugin's hook failed."""
        remedy = f"repair or upgrade {plugin.distribution}, or leave it out with --no-plugin {plugin.name}"
        problem = Problem(plugin.name, hook, cause, remedy)
        self.report(problem)
        return problem


def shown(answer: object) -> str:
    """A short description of a plugin's answer, even if its ``repr`` raises."""
    return f"{type(answer).__name__} {reprlib.repr(answer):.80}"
