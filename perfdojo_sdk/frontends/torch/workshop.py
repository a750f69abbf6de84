"""Verified kernels for graphs: from the user's cache, or built now; each once in a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.library.build import Observer
from perfdojo_sdk.library.builder import Builder, KernelBuilder, builder_here
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.library.manifest import KernelEntry
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.cache import KernelCache
from perfdojo_sdk.models.fusion import fused
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.optimise import plan_for
from perfdojo_sdk.models.packing import with_packs
from perfdojo_sdk.plugins import load_plugins

#: Time for the timed calls of one program, and the most of them: a user waits for these kernels.
BUDGET_S, REPEATS = 0.1, 20


@dataclass
class Workshop:
    """The kernels of one target under one choice of settings."""

    builder: Builder
    cache: KernelCache
    libraries: dict[tuple[str, tuple[str, ...]], Library] = field(default_factory=dict)
    """Text of a program, and the inputs for which its kernel offers a pack -> the library that has it."""
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
        self,
        programs: Sequence[Program],
        said: Callable[[str], None] | None = None,
        constants: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> dict[str, DojoError]:
        """Have a kernel for each program; those that cannot be had, by text, with the reason. ``constants``:
        text of a program -> inputs that seldom change, for which its kernel offers a pack."""
        failed: dict[str, DojoError] = {}
        given = {p.text: tuple(constants.get(p.text, ())) if self.packs else () for p in programs}
        missing = [p for p in programs if (p.text, given[p.text]) not in self.libraries]
        for number, program in enumerate(missing, 1):
            known = self.failures.get(program.text)
            if known is None:
                place = f"kernel {number} of {len(missing)}"
                known = self._one(program, given[program.text], place, said)
            if known is not None:
                failed[program.text] = known
        return failed

    def _one(
        self, program: Program, constants: tuple[str, ...], place: str, said: Callable[[str], None] | None
    ) -> DojoError | None:
        name = kernel_name(program, constants)
        builder = self.builder
        if constants:
            builder = KernelBuilder(with_packs(builder.context, {f"pd_{name}": constants}))
        try:
            builder.context.generator.generate(program, f"pd_{name}")
            if not self.cache.has(builder, program, constants):
                self.built += 1
                if said is not None:
                    said(f"{place}: {program.name}")
            library = self.cache.library(builder, program, Observer(), constants=constants)
            self.libraries[program.text, constants] = library
        except DojoError as error:
            self.failures[program.text] = error
            return error
        return None

    @property
    def packs(self) -> bool:
        """True if the target's kernels may offer packs."""
        context = self.builder.context
        return context.plugins.packager(context.target) is None

    def kernel(self, program: Program, constants: Sequence[str] = ()) -> tuple[Library, KernelEntry]:
        """A kernel that is there: its library and the entry of the manifest."""
        given = tuple(constants) if self.packs else ()
        library = self.libraries[program.text, given]
        return library, library[kernel_name(program, given)].only.entry


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
