"""Optional abilities: protocols for what an object of a plugin can do beyond its type.

:func:`ability` is the only way to ask for one. An object that wraps another one is a :class:`Wrapper`,
and has exactly the abilities of the wrapped object: it passes on those that it does not know unchanged.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, cast

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Requirement, Rules
from perfdojo_sdk.hookspecs.services import Plan, Simulator
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    CodeGenerator,
    Failure,
    HeuristicPass,
    Measurement,
    Runner,
    RunRequest,
    Target,
)

A = TypeVar("A")

#: What runs the kernels of a target here: an emulator, which computes results and has times of a model; a
#: simulator, which has both cycle by cycle; empty: the device itself.
Imitation: TypeAlias = Literal["emulated", "simulated", ""]


# -- of runners ------------------------------------------------------------------------------------


class TimesInterleaved(Protocol):
    """Times several kernels of one interface in turns, call by call, on the same memory.

    Used to find the fastest of a few kernels of nearly the same speed: a busy moment of the machine then
    slows down all of them. Without it, they are timed one after the other.
    """

    def time_interleaved(
        self, artifacts: Sequence[Artifact], request: RunRequest
    ) -> Sequence[Measurement | Failure]:
        """One result for each artifact, in order; ``budget_s`` and ``timeout_s`` count for each."""
        ...


class RunsSets(Protocol):
    """Calls a kernel on many sets of inputs in one child process.

    Used by the numeric leg for kernels with few elements, which then draws thousands of sets.
    """

    def run_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        """One call without timing for each of ``sets`` sets.

        They stand one behind the other in arrays of one dimension more; so do the outputs.
        """
        ...


class RunsTogether(Protocol):
    """Answers several requests without timing in one child process, as long as nothing dies.

    Used where many small kernels are looked at: by the conformance kit, by fuzzing, and by planted faults.
    """

    def run_together(
        self, artifact: Artifact, requests: Sequence[RunRequest]
    ) -> Sequence[Measurement | Failure]:
        """The results of ``run`` for each request, in order."""
        ...


class Forks(Protocol):
    """Tells whether kernels run in forks of the calling process.

    Used by the numeric leg: while forks run, it does nothing else in this process.
    """

    @property
    def forks(self) -> bool: ...


class UsableInForks(Protocol):
    """Tells whether forks of this process may use the runner too, beside this process and each other.

    Used where a user waits for several kernels: each process then builds some of them. A runner that shares
    a connection or a device with its forks cannot do that.
    """

    @property
    def usable_in_forks(self) -> bool: ...


class LimitsInstances(Protocol):
    """Tells how large a kernel it can run within reasonable time; for emulators and simulators.

    Used by verification: kernels with more statement instances are verified by the same game at a smaller
    shape. A timed run may then estimate a large kernel's time and leave ``outputs`` None.
    """

    @property
    def most_instances(self) -> int | None:
        """Statement instances; None: no limit here and now."""
        ...


class Imitates(Protocol):
    """Tells whether an imitation runs the kernels, and not the device that the target describes.

    Used by ``perfdojo-sdk targets``. A runner without it runs kernels on the device and measures.
    """

    @property
    def imitation(self) -> Imitation: ...


class LimitsCompiling(Protocol):
    """Bounds the time of its compiler by a field of its own; the runner is a dataclass.

    Used by searches, which replace the field by a smaller figure: no candidate is worth minutes of compiling.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def compile_timeout_s(self) -> float:
        """Seconds."""
        ...


# -- of code generators ----------------------------------------------------------------------------


class GeneratesAsFor(Protocol):
    """Chooses by a program's size (the width of iterators, say), and can make the choices of another program.

    Used by verification at a smaller shape, so that the code which is verified is the code that ships.
    """

    def as_for(self, program: Program) -> CodeGenerator:
        """A generator that makes these choices as for ``program``."""
        ...


# -- of passes -------------------------------------------------------------------------------------


class ExplainsPlans(Protocol):
    """Tells the decisions behind the games of an expert's pass.

    Used by ``perfdojo-sdk explain-plan``.
    """

    def plan(self, root: Program, rules: Rules, target: Target) -> Plan:
        """The games that the pass returns for the same arguments, with its decisions."""
        ...


class KnowsConstants(Protocol):
    """Plays otherwise where it is known that inputs stay as they are from call to call.

    Used for kernels that offer a pack: what depends on these inputs alone is then computed once.
    """

    def knowing(self, constants: Collection[str]) -> HeuristicPass:
        """The pass for programs in which these inputs are constants."""
        ...


# -- of vetoes -------------------------------------------------------------------------------------


class GivesRequirements(Protocol):
    """Names the requirements that its objections may hold.

    Used by ``perfdojo-sdk explain CODE`` and by the pages of the documentation.
    """

    @property
    def requirements(self) -> Sequence[Requirement[Any]]: ...


@dataclass(frozen=True)
class Declared:
    """One ability, and the kind of object that may have it."""

    protocol: Callable[..., Any]
    kind: str

    @property
    def name(self) -> str:
        return self.protocol.__name__

    @property
    def members(self) -> tuple[str, ...]:
        """The names that an object with the ability has."""
        return _members(self.protocol)


#: Every ability that the SDK asks for; the documentation and the tests read this list.
ABILITIES: tuple[Declared, ...] = (
    Declared(TimesInterleaved, "runner"),
    Declared(RunsSets, "runner"),
    Declared(RunsTogether, "runner"),
    Declared(Forks, "runner"),
    Declared(UsableInForks, "runner"),
    Declared(LimitsInstances, "runner"),
    Declared(Imitates, "runner"),
    Declared(LimitsCompiling, "runner"),
    Declared(Simulator, "runner"),
    Declared(GeneratesAsFor, "code generator"),
    Declared(ExplainsPlans, "pass"),
    Declared(KnowsConstants, "pass"),
    Declared(GivesRequirements, "veto"),
)


def ability(one: object, asked: Callable[..., A]) -> A | None:
    """The object typed as the ability ``asked``, a protocol of this module; None if it does not have it.

    It may be another object than ``one``: a :class:`Wrapper` chooses the object for each ability. (The
    parameter is typed as a callable because a type checker accepts no protocol as a ``type[A]``.)
    """
    if isinstance(one, Wrapper):
        held = ability(one.inside, asked)
        return None if held is None else one.able(asked, held)
    return cast(A, one) if all(_has(one, name) for name in _members(asked)) else None


class Wrapper(ABC):
    """An object that wraps another one of its kind: a guard, an observer, a cache.

    It may extend an ability of the wrapped object (:meth:`able`); it can neither hide nor add one.
    """

    @property
    @abstractmethod
    def inside(self) -> object:
        """The wrapped object."""

    @abstractmethod
    def around(self, inside: Any) -> Any:
        """The same wrapper around another object of that kind."""

    def able(self, asked: Callable[..., A], held: A) -> A:
        """``held``, which has the ability ``asked``, as callers of the wrapper see it; here: as it is."""
        return held


def with_compile_timeout(runner: Runner, most_s: float) -> Runner:
    """The runner with at most ``most_s`` seconds for its compiler, where it has such a limit."""
    limited = ability(runner, LimitsCompiling)
    if limited is None or limited.compile_timeout_s <= most_s:
        return runner
    return cast(Runner, _replaced(runner, compile_timeout_s=most_s))


def _replaced(one: Any, **changes: object) -> object:
    """A dataclass with other values in its fields, inside all of its wrappers."""
    if isinstance(one, Wrapper):
        return one.around(_replaced(one.inside, **changes))
    return replace(one, **changes)


def _members(protocol: Callable[..., Any]) -> tuple[str, ...]:
    names = (*vars(protocol), *vars(protocol).get("__annotations__", ()))
    return tuple(name for name in names if name[0] != "_" or name == "__dataclass_fields__")


def _has(one: object, name: str) -> bool:
    """An attribute that fails when it is read is there; it fails where it is used."""
    try:
        return hasattr(one, name)
    except Exception:
        return True
