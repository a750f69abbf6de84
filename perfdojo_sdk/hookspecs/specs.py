"""Every hook that a plugin may implement, each with one sentence. Implement what you need.

A plugin is a module (or any object) with functions of these names, marked by :data:`hookimpl`, and a line
``PERFDOJO_API = (0, 3)``; an entry point of the group ``perfdojo_sdk.plugins`` names it. Hooks register
objects once and are asked for one target at a time; a plugin answers None, or nothing, for targets that it
does not know. An implementation may leave out arguments that it does not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from perfdojo_sdk.core.program import Program
    from perfdojo_sdk.core.transformation import LegalityCheck, Transformation
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
    )

#: (major, minor) of this contract; docs/guide/versions.md says which plugins go with which SDK.
API_VERSION = (0, 3)
#: True until this version is closed: a release may still add to it, and change what it added.
PROVISIONAL = True

PROJECT = "perfdojo"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

# -- collected: every plugin contributes -------------------------------------------------------------


@hookspec
def perfdojo_targets() -> Iterable[Target]:  # type: ignore[empty-body]
    """The targets that this plugin brings."""


@hookspec
def perfdojo_transformations(target: Target) -> Iterable[Transformation]:  # type: ignore[empty-body]
    """Moves that ``target`` has beside the generic ones; names start with ``PREFIX/``."""


@hookspec
def perfdojo_legality_checks(target: Target) -> Iterable[LegalityCheck]:  # type: ignore[empty-body]
    """Vetoes over moves on ``target``; a veto stands whatever any other plugin says."""


@hookspec
def perfdojo_operators() -> Iterable[Operator]:  # type: ignore[empty-body]
    """Kernels by name: builders from sizes to the text of an initial program."""


@hookspec
def perfdojo_search_strategies() -> Iterable[SearchStrategy]:  # type: ignore[empty-body]
    """Players of the game, for any target; names start with ``PREFIX/``."""


@hookspec
def perfdojo_observers(target: Target) -> Iterable[Observer]:  # type: ignore[empty-body]
    """Observers that add figures (cycles, energy ...) to each timed run on ``target``."""


@hookspec
def perfdojo_doctor_probes(target: Target) -> Iterable[Probe]:  # type: ignore[empty-body]
    """Probes of this machine for ``target``: what is there, what is missing, and what mends it."""


@hookspec
def perfdojo_experiments() -> Iterable[Experiment]:  # type: ignore[empty-body]
    """Named experiments that ``perfdojo-sdk reproduce`` lists and runs."""


# -- first result: the plugin that brings the target is asked first, then the others ----------------


@hookspec(firstresult=True)
def perfdojo_code_generator(target: Target) -> CodeGenerator | None:
    """The generator that turns a program into source text for ``target``."""


@hookspec(firstresult=True)
def perfdojo_runner(target: Target) -> Runner | None:
    """The runner that compiles, runs and times a kernel on ``target``."""


@hookspec(firstresult=True)
def perfdojo_heuristic_pass(target: Target) -> HeuristicPass | None:
    """The pass that plays as an expert would on ``target``."""


@hookspec(firstresult=True)
def perfdojo_math_accuracy(target: Target) -> Mapping[str, float] | None:
    """Largest error in ulp of each function (``exp`` ...) as emitted for ``target``."""


@hookspec(firstresult=True)
def perfdojo_machine_figures(target: Target, refresh: bool) -> MachineFigures | None:
    """Speeds of this machine as measured for ``target``, kept from earlier unless ``refresh``."""


@hookspec(firstresult=True)
def perfdojo_roofline_bound(
    program: Program, target: Target, threads: int, figures: MachineFigures
) -> Bound | None:
    """A time that ``program`` cannot beat on ``threads`` threads of a machine with these figures."""


@hookspec(firstresult=True)
def perfdojo_packager(target: Target) -> Packager | None:
    """The packager of kernels for ``target``; by default, a library is one shared object and a C header."""


@hookspec(firstresult=True)
def perfdojo_time_breakdown(
    program: Program, target: Target, artifact: Artifact, request: RunRequest
) -> TimeBreakdown | None:
    """The parts of the time of ``program``, compiled as ``artifact`` and run as requested."""


# -- events: everybody is told, nobody answers -------------------------------------------------------


@hookspec
def perfdojo_measurement_recorded(target: Target, kernel: str, measurement: Measurement) -> None:
    """A kernel was measured for a library, or measured again."""


@hookspec
def perfdojo_library_built(target: Target, directory: Path) -> None:
    """A library for ``target`` is complete in ``directory``."""
