"""Verified kernels for graphs: from the user's cache, or built now; each once in a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.library.build import Observer
from perfdojo_sdk.library.builder import Builder, builder_here
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.library.manifest import KernelEntry
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.cache import KernelCache
from perfdojo_sdk.models.fusion import fused
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.optimise import plan_for
from perfdojo_sdk.plugins import load_plugins

#: Time for the timed calls of one program, and the most of them: a user waits for these kernels.
BUDGET_S, REPEATS = 0.1, 20


@dataclass
class Workshop:
    """The kernels of one target under one choice of settings."""

    builder: Builder
    cache: KernelCache
    libraries: dict[str, Library] = field(default_factory=dict)
    """Text of a program -> the library that has its kernel."""
    failures: dict[str, DojoError] = field(default_factory=dict)
    built: int = 0
    """Kernels that were not in the cache."""

    @property
    def threads(self) -> int:
        return self.builder.context.settings.threads

    def joined(self, graph: Graph) -> Graph:
        """The graph with kernels joined where that pays, but for joined kernels that could not be had."""
        graph = without_duplicates(graph)
        context = self.builder.context
        return fused(graph, plan_for(context.plugins, context.target, graph, self._why_not))

    def _why_not(self, program: Program) -> str:
        failure = self.failures.get(program.text)
        return failure.what if failure else ""

    def prepare(
        self, programs: Sequence[Program], said: Callable[[str], None] | None = None
    ) -> dict[str, DojoError]:
        """Have a kernel for each program; those that cannot be had, by text, with the reason."""
        failed: dict[str, DojoError] = {}
        missing = [p for p in programs if p.text not in self.libraries]
        for number, program in enumerate(missing, 1):
            known = self.failures.get(program.text)
            if known is None:
                known = self._one(program, f"kernel {number} of {len(missing)}", said)
            if known is not None:
                failed[program.text] = known
        return failed

    def _one(self, program: Program, place: str, said: Callable[[str], None] | None) -> DojoError | None:
        try:
            self.builder.context.generator.generate(program, f"pd_{kernel_name(program)}")
            if not self.cache.has(self.builder, program):
                self.built += 1
                if said is not None:
                    said(f"{place}: {program.name}")
            self.libraries[program.text] = self.cache.library(self.builder, program, Observer())
        except DojoError as error:
            self.failures[program.text] = error
            return error
        return None

    def entry(self, program: Program) -> KernelEntry:
        """The manifest's entry of a kernel that is there."""
        return self.libraries[program.text][kernel_name(program)].only.entry


def settings_for(threads: int, tune: int | None = None) -> Settings:
    """Settings of kernels that are built while a user waits. ``tune``: search, evaluating so many."""
    settings = replace(Settings(), threads=threads, budget_s=BUDGET_S, repeats=REPEATS)
    if tune is None:
        return settings
    from perfdojo_sdk.search.strategies import AUTO

    return replace(settings, search=AUTO, evaluations=tune)


@lru_cache(maxsize=16)
def workshop(target: str, threads: int, tune: int | None = None, folder: Path | None = None) -> Workshop:
    """The workshop of a target; :class:`UnavailableError` when it cannot build here."""
    plugins = load_plugins(targets=[target])
    builder = builder_here(plugins, plugins.target(target), settings_for(threads, tune))
    return Workshop(builder, KernelCache(folder))
