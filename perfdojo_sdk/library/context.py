"""Everything that building kernels for one target needs, looked up once and never changed.

A context is data. The modules that build (:mod:`.builder`), search (:mod:`.tuning`) and package
(:mod:`.package`) take one, and keep their changing state themselves.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.abilities import KnowsConstants, ability
from perfdojo_sdk.hookspecs.search import SearchStrategy, SearchTask
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    CodeGenerator,
    HeuristicPass,
    MachineFigures,
    Runner,
    RunRequest,
    Target,
)
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.running import Helpers, toolchain_of
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.verification import Subject, VerificationCache
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.store.records import RecordKey, sha256


@dataclass(frozen=True)
class BuildContext:
    """All that plugins and machine bring for one target, and the settings."""

    plugins: Plugins = field(repr=False)
    target: Target
    settings: Settings
    rules: Rules = field(repr=False)
    generator: CodeGenerator = field(repr=False)
    runner: Runner = field(repr=False)
    """Guarded, and watched by the observers."""
    strategy: SearchStrategy
    expert: HeuristicPass | None = field(repr=False)
    accuracy: Mapping[str, float] = field(repr=False)
    """Operation -> its error in ulp."""
    figures: MachineFigures = field(repr=False)
    """The machine's speeds as the build begins."""
    fingerprints: Mapping[str, str] = field(repr=False)
    device: str
    toolchain: str
    helpers: Helpers | None = field(default=None, repr=False)
    """Compilers of other machines, for candidates."""
    constants: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """Symbol of a kernel -> its inputs that stay as they are from call to call."""
    cold: Collection[str] = ()
    """Symbols of kernels whose arrays no cache holds when they are called: they are timed like that."""

    @classmethod
    def of(
        cls,
        plugins: Plugins,
        target: Target,
        settings: Settings,
        figures: MachineFigures | None = None,
        runner: Runner | None = None,
        helpers: Helpers | None = None,
        toolchain: str = "",
    ) -> BuildContext:
        """``figures``, ``runner`` and ``toolchain``: by default the plugin's own.

        :class:`UnavailableError` where a plugin lacks something, :class:`LibraryError` where its compiler
        does not work.
        """
        rules = replace(plugins.rules(target), most=settings.most)
        generator = plugins.guarded_generator(target)
        watched = plugins.observed_runner(target, runner or plugins.guarded_runner(target))
        return cls(
            plugins,
            target,
            settings,
            rules,
            generator,
            watched,
            strategy=plugins.search_strategy(settings.search),
            expert=plugins.guarded_pass(target),
            accuracy=plugins.math_accuracy(target),
            figures=figures or plugins.machine_figures(target),
            fingerprints=plugins.fingerprints(target),
            device=watched.device(),
            toolchain=toolchain or toolchain_of(target, generator, watched),
            helpers=helpers,
        )

    def key(self, kernel: Kernel) -> RecordKey:
        """Everything that the kernel's record depends on."""
        capabilities = json.dumps(self.target.capabilities.model_dump(mode="json"), sort_keys=True)
        return RecordKey(
            kernel=kernel.name,
            program_sha256=sha256(kernel.program.text),
            target=self.target.name,
            target_sha256=sha256(capabilities),
            device=self.device,
            toolchain=self.toolchain,
            plugins=dict(self.fingerprints),
            settings=self.settings.as_figures() | ({"cold": True} if kernel.symbol in self.cold else {}),
        )

    def request(self, kernel: Kernel) -> RunRequest:
        """The run that the figures of a kernel come from."""
        request = self.settings.request
        return replace(request, cold=True) if kernel.symbol in self.cold else request

    def subject(self, game: Trace, artifact: Artifact, cache: VerificationCache) -> Subject:
        """The compiled end of a game as verification is given it."""
        settings = self.settings
        return Subject(
            game,
            self.rules,
            artifact,
            self.runner,
            self.accuracy,
            settings.threads,
            settings.seed,
            self.generator,
            cache,
        )

    def task(self, kernel: Kernel) -> SearchTask:
        """The task that a player gets for the kernel."""
        constants = self.constants.get(kernel.symbol, ())
        able = ability(self.expert, KnowsConstants) if constants else None
        return SearchTask(
            kernel.program,
            self.rules,
            self.target.on(self.figures, self.settings.threads),
            self.settings.seed,
            self.settings.most,
            able.knowing(constants) if able else self.expert,
            self.settings.evaluations,
            dict(self.settings.options),
            self.fingerprints,
        )
