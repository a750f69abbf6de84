"""Verified kernels for graphs: from the user's cache, or built now; each once in a process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.hookspecs.abilities import UsableInForks, ability
from perfdojo_sdk.library.arrays import available_cores
from perfdojo_sdk.library.background import with_helpers
from perfdojo_sdk.library.build import Observer
from perfdojo_sdk.library.builder import Builder, KernelBuilder, builder_here
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.library.manifest import KernelEntry
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.verification import SharedResults
from perfdojo_sdk.models.cache import CacheError, KernelCache
from perfdojo_sdk.models.fusion import fused
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.optimise import plan_for
from perfdojo_sdk.models.packing import seldom_cached, with_packs
from perfdojo_sdk.plugins import load_plugins

#: Time for the timed calls of one program, and the most of them: a user waits for these kernels.
BUDGET_S, REPEATS = 0.1, 20
#: The factor by which a game of hundreds of moves has to be faster; the same if more than so many kernels are
#: missing.
WORTH_OF_PROOFS, WORTH_OF_MANY, MANY = 1.1, 1.5, 20
#: Most processes that build kernels at once, each on its own; and most elements in the arrays of a kernel
#: beside which others are built: its verification holds them many times.
MOST_BUILDERS, MOST_ELEMENTS = 4, 5 * 10**7


@dataclass
class Workshop:
    """The kernels of one target under one choice of settings."""

    builder: Builder
    cache: KernelCache
    libraries: dict[tuple[str, tuple[str, ...]], Library] = field(default_factory=dict)
    """Text of a program, and the inputs for which its kernel offers a pack -> the library that has it."""
    failures: dict[str, DojoError] = field(default_factory=dict)
    shared: SharedResults = field(default_factory=SharedResults)
    """Results of verifications at smaller shapes, which many kernels have in common."""
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
        given = {p.text: self._given(p, constants.get(p.text, ())) for p in programs}

        def is_missing(program: Program) -> bool:
            ready = (program.text, given[program.text]) in self.libraries
            return not ready and program.text not in self.failures

        wanted = list(filter(is_missing, programs))
        absent = [p for p in wanted if not self._is_kept(p, given[p.text])]
        self.built += len(absent)
        worth = WORTH_OF_MANY if len(absent) > MANY else WORTH_OF_PROOFS

        def build(numbered: tuple[int, Program]) -> None:
            number, program = numbered
            if said is not None:
                said(f"kernel {number} of {len(absent)}: {program.name}")
            self._have(program, given[program.text], worth)

        numbered = list(enumerate(absent, 1))
        large = [each for each in numbered if _is_large(each[1])]
        others = [each for each in numbered if not _is_large(each[1])]
        with with_helpers(build, others, self._helpers(len(others))) as mine:
            for each in chain(large, mine):
                build(each)
        for program in filter(is_missing, wanted):  # kept, or built by another process
            self._have(program, given[program.text], worth)
        return {p.text: self.failures[p.text] for p in programs if p.text in self.failures}

    def _given(self, program: Program, constants: Sequence[str]) -> tuple[str, ...]:
        """The constants of a program for which its kernel may offer a pack."""
        weights = sum(program.buffer_of[array].bytes for array in constants)
        figures = self.builder.context.figures
        large = seldom_cached([program], {program.text: constants}, weights, figures)
        return tuple(constants) if self.packs and not large else ()

    def _have(self, program: Program, constants: tuple[str, ...], worth_of_proofs: float) -> None:
        """Have the kernel of a program, from the cache or built now, or the reason why not."""
        builder = self._builder_for(program, constants, worth_of_proofs)
        try:
            builder.context.generator.generate(program, f"pd_{kernel_name(program, constants)}")
            library = self.cache.library(builder, program, Observer(), constants=constants)
            self.libraries[program.text, constants] = library
        except DojoError as error:
            self.failures[program.text] = error
            if isinstance(error, CacheError):  # it is so for every kernel, and not for any fault of them
                warnings.warn(f"no kernels are built: {error}", stacklevel=2)

    def _is_kept(self, program: Program, constants: tuple[str, ...]) -> bool:
        """True if the kernel of a program is in the cache."""
        return self.cache.has(self._builder_for(program, constants), program, constants)

    def _builder_for(
        self, program: Program, constants: tuple[str, ...], worth_of_proofs: float = WORTH_OF_PROOFS
    ) -> Builder:
        context = self.builder.context
        context = replace(context, settings=replace(context.settings, worth_of_proofs=worth_of_proofs))
        if constants:
            context = with_packs(context, {f"pd_{kernel_name(program, constants)}": constants})
        return KernelBuilder(context, self.shared)

    def _helpers(self, kernels: int) -> int:
        """The number of processes that build some of so many kernels while this process builds others."""
        able = ability(self.builder.context.runner, UsableInForks)
        forks = able is not None and able.usable_in_forks
        return max(0, min(kernels, available_cores(), MOST_BUILDERS) - 1) if forks else 0

    @property
    def packs(self) -> bool:
        """True if the target's kernels may offer packs."""
        context = self.builder.context
        return context.plugins.packager(context.target) is None

    def kernel(self, program: Program, constants: Sequence[str] = ()) -> tuple[Library, KernelEntry]:
        """A kernel that is there: its library and the entry of the manifest."""
        given = self._given(program, constants)
        library = self.libraries[program.text, given]
        return library, library[kernel_name(program, given)].only.entry


def _is_large(program: Program) -> bool:
    return sum(program.buffer_of[name].cells for name in program.interface) > MOST_ELEMENTS


def settings_for(threads: int, tune: int | None = None) -> Settings:
    """Settings of kernels that are built while a user waits. ``tune``: search, evaluating so many."""
    settings = Settings(threads, budget_s=BUDGET_S, repeats=REPEATS)
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
