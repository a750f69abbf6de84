"""The data that crosses the border between the SDK and a plugin. All of it pickles.

Capabilities describe a target as figures; sources, artifacts, requests and results describe a
kernel on its way from text to a measured time. Nothing here knows how a target does its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from perfdojo_sdk.core.dialect import CORE_LOCATIONS, CORE_SUFFIXES, Dialect, Group, Location, ScopeSuffix
from perfdojo_sdk.core.dtypes import DTYPES
from perfdojo_sdk.core.errors import closest
from perfdojo_sdk.core.groups import group_of
from perfdojo_sdk.core.metadata import spare_pydantic
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import Rules, Trace

Provenance = Literal["measured", "simulated", "estimated"]

#: The closed set of reasons for which a candidate fails.
FailureReason = Literal[
    "constraints",  # the target refuses the program
    "compile",  # the compiler failed
    "compile_timeout",
    "timeout",  # the kernel ran too long
    "memory",  # it asked for more memory than allowed
    "crash",  # it died by a signal
    "wrong_result",  # outputs differ, were not written, or memory around them was touched
    "input_modified",
    "device",  # the device or its driver is gone
    "runtime",  # anything else that the kernel or its runner reported
]


spare_pydantic()


class Strict(BaseModel):
    """Data of a target file; the sentence under each field is also its entry in the documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _of(known: Iterable[str], what: str, instead: str = "") -> AfterValidator:
    """The value is one of ``known``, else a sentence with the nearest one."""

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}; {closest(name, list(known))}{instead}")
        return name

    return AfterValidator(check)


def _not(taken: Iterable[str], why: str) -> AfterValidator:
    """The value is none of ``taken``."""

    def check(name: str) -> str:
        if name in taken:
            raise ValueError(f"{name!r} {why}; choose another name")
        return name

    return AfterValidator(check)


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]
CoreSuffix = Annotated[str, _of(CORE_SUFFIXES, "scope suffix", ", or describe it under extra_suffixes")]
CoreLocation = Annotated[str, _of(CORE_LOCATIONS, "location", ", or describe it under extra_locations")]
OwnSuffix = Annotated[Name, _not(CORE_SUFFIXES, "means the same for every target")]
OwnLocation = Annotated[Name, _not(CORE_LOCATIONS, "means the same for every target")]
Dtype = Annotated[str, _of(DTYPES, "dtype")]
Lanes = Annotated[int, Field(ge=1, le=4096)]
Peak = Annotated[float, Field(gt=0)]


class LocationFile(Strict):
    """A buffer location of the target's own."""

    doc: str
    """A description in one line."""
    shared: bool = True
    """Iterations of a parallel scope can reach one instance together."""
    constant_subscripts: bool = False
    """Cells are named, not addressed (registers): subscripts use unrolled and lockstep iterators only."""
    copy_out_only: bool = False
    """It is written, then copied to another array, and nothing else (a window with a store of its own)."""
    fetch_ahead: bool = False
    """Filling it also prefetches what the next iteration of the outermost scope will fill it with."""
    lead_bytes: int = Field(0, ge=0)
    """Copying between it and memory also prefetches the memory this many bytes further on."""
    second_cache: bool = False
    """Prefetched memory goes into the second-level cache, and not into the first."""
    past_caches: bool = False
    """Copies out of it to memory bypass the caches."""
    max_bytes: int | None = Field(None, ge=1)
    """Room of one buffer; a move that would need more is refused."""


class GroupFile(Strict):
    """Products that one instruction adds up in each of its lanes."""

    factors: tuple[Dtype, Dtype]
    """Dtypes of the elements that are multiplied, in the order in which the instruction takes them."""
    total: Dtype
    """Dtype of the sum, to which the factors are converted."""
    size: int = Field(ge=2, le=64)
    """Products in a group."""
    flushes: bool = False
    """True if numbers below the normal ones count as zero. Such a move is only played where the user allows
    less precision."""
    rounds_to_odd: bool = False
    """True if each sum of two numbers is rounded to the odd one of its neighbours. Such a move is only played
    where the user allows less precision."""
    tile: tuple[int, int] | None = None
    """Rows and columns of the sums of an instruction for matrices: the first factor belongs to a row, the
    second to a column."""
    adds_apart: bool = False
    """True if the sum of a group comes in a register of its own, and is added to the lane by itself. Tiles of
    the planner leave that register free."""
    cpu_flags: tuple[str, ...] = ()
    """Flags of /proc/cpuinfo that a kernel with this instruction needs besides those of the target."""
    instruction: str = Field("", max_length=64, pattern=r"^[\w., +-]*$")
    """The instruction's name in assembly, for readers: `explain-plan` prints it."""

    @property
    def group(self) -> Group:
        return Group(
            self.factors,
            self.total,
            self.size,
            self.flushes,
            self.rounds_to_odd,
            self.tile,
            self.adds_apart,
            self.instruction,
        )


class SuffixFile(Strict):
    """A scope suffix of the target's own."""

    doc: str
    """A description in one line."""
    order: Literal["sequential", "parallel", "lockstep"]
    """`sequential` one by one, `parallel` in any interleaving, `lockstep` all load before any stores."""
    unrolled: bool = False
    """Each iteration becomes its own code, so the iterator is a constant there."""
    groups: tuple[GroupFile, ...] = ()
    """Lockstep: the scope adds up one of these groups of products."""
    around_groups: bool = False
    """Sequential: the iterations are the lanes of an instruction, each of which adds up a group."""
    unit: bool = False
    """Lockstep: a unit takes the scope and those around it as they are. Cells of neighbouring lanes may be
    any distance apart, where else it is one or none; a smaller kernel that is verified keeps these sizes."""
    gathers: bool = False
    """Lockstep: what lanes read may lie anywhere; what they write are neighbours."""

    @model_validator(mode="after")
    def _in_order(self) -> SuffixFile:
        if self.groups and self.order != "lockstep":
            raise ValueError("a suffix with groups has to be lockstep")
        if self.unit and self.order != "lockstep":
            raise ValueError("the suffix of a unit has to be lockstep")
        if self.gathers and self.order != "lockstep":
            raise ValueError("a suffix of lanes that gather has to be lockstep")
        if self.around_groups and self.order != "sequential":
            raise ValueError("a suffix around groups has to be sequential")
        return self

    def suffix(self, name: str) -> ScopeSuffix:
        groups = tuple(row.group for row in self.groups)
        more = {"around_groups": self.around_groups, "unit": self.unit, "gathers": self.gathers}
        return ScopeSuffix(name, self.order, self.doc, self.unrolled, groups=groups, **more)


class CacheLevel(Strict):
    """One level of cache."""

    bytes: int = Field(gt=0)
    """Its size."""
    shared: bool = False
    """True if all cores use one instance."""
    read_gbs: float = Field(gt=0)
    """Bandwidth of one thread in GB/s."""
    read_gbs_all: float | None = None
    """Bandwidth of all threads together in GB/s."""


class MemoryFigures(Strict):
    """Main memory, GB/s of bytes read plus written, one thread and all threads."""

    read_gbs: float = Field(gt=0)
    """One thread reads."""
    write_gbs: float = Field(gt=0)
    """One thread writes, with the faster kind of store."""
    copy_gbs: float = Field(gt=0)
    """One thread copies with ordinary stores."""
    stream_copy_gbs: float | None = None
    """One thread copies with stores past the caches, if there are any."""
    read_gbs_all: float | None = None
    """All threads read."""
    write_gbs_all: float | None = None
    """All threads write."""
    copy_gbs_all: float | None = None
    """All threads copy with ordinary stores."""
    stream_copy_gbs_all: float | None = None
    """All threads copy with stores past the caches."""

    def best_copy_gbs(self, threads: int) -> float:
        """The fastest copy on one thread, or on all."""
        one = max(self.copy_gbs, self.stream_copy_gbs or 0)
        if threads == 1:
            return one
        return max(self.copy_gbs_all or 0, self.stream_copy_gbs_all or 0) or one


class MachineFigures(Strict):
    """Speeds of one machine: a target file's defaults, or what a probe measured on a device."""

    caches: dict[str, CacheLevel] = {}
    """Name -> level."""
    memory: MemoryFigures | None = None
    """Main memory."""
    peak_gflops: dict[Dtype, Peak] = {}
    """dtype -> one thread's peak."""
    calibrated: bool = False
    """True when the figures were measured on this device."""

    def at_best(self, other: MachineFigures) -> MachineFigures:
        """The higher figure of each speed: a device can do what it did once. Measured figures
        and those of a target file are not mixed: then the figures stay as they are."""
        if self.calibrated != other.calibrated:
            return self
        return MachineFigures.model_validate(_higher(self.model_dump(), other.model_dump()))


def _higher(a: Any, b: Any) -> Any:
    if isinstance(a, dict) and isinstance(b, dict):
        return {key: _higher(a.get(key), b.get(key)) for key in {**a, **b}}
    return b if a is None else a if b is None else max(a, b)


class Capabilities(Strict):
    """One target, as the YAML file in its plugin describes it."""

    name: Annotated[Name, _not(("best",), "stands for whichever target can run and is the best")]
    """The name that `--target` takes: lower-case letters, digits and underscores."""
    description: str
    """One line for `perfdojo-sdk targets`."""
    rank: int = 0
    """Among the targets that can run here, the highest rank is the best."""
    suffixes: tuple[CoreSuffix, ...] = ()
    """Scope suffixes of the core that the target has."""
    extra_suffixes: dict[OwnSuffix, SuffixFile] = {}
    """Suffix -> what it means, for those that the core does not have."""
    locations: tuple[CoreLocation, ...] = ("heap", "stack")
    """Buffer locations of the core that the target has."""
    extra_locations: dict[OwnLocation, LocationFile] = {}
    """Location -> what it means, for those that the core does not have."""
    lanes: dict[Dtype, Lanes] = {}
    """dtype -> lanes of a vector; a dtype that is absent has no vectors."""
    roundings: tuple[Literal["bf16", "tf32"], ...] = ()
    """Dtypes to which a move that changes precision may round temporaries of f32; such moves are only played
    where the user allows it."""
    vector_registers: int = Field(0, ge=0)
    """The number of vector registers, for expert passes."""
    nested_parallel: bool = False
    """True if a parallel scope may stand inside another one (threads inside a block)."""
    max_unroll: int = Field(256, ge=1, le=65536)
    """Most copies of one statement that unrolled scopes may make."""
    caches: dict[str, CacheLevel] = {}
    """Name -> level, for the roofline and for expert passes."""
    memory: MemoryFigures | None = None
    """Main memory; without it there is no roofline."""
    peak_gflops: dict[Dtype, Peak] = {}
    """dtype -> one thread's peak, for the roofline."""
    machine: str = ""
    """Processor family of the compiled code, as `uname -m` names it; empty: that of the machine at hand."""
    cpu_flags: tuple[str, ...] = ()
    """Flags of /proc/cpuinfo without which nothing runs."""
    compiler_flags: tuple[str, ...] = ()
    """For the plugin's runner."""
    selections: dict[str, tuple[str, ...]] = {}
    """Name -> kernels, as a selection names them; ``default`` is what is built when none is named."""
    options: dict[str, Any] = {}
    """For the plugin's own use."""

    @model_validator(mode="after")
    def _has_memory_of_callers(self) -> Capabilities:
        """The arrays of callers, and what no move has placed, have to be somewhere."""
        if Dialect.default_location not in (*self.locations, *self.extra_locations):
            where = Dialect.default_location
            raise ValueError(f"locations lack {where}, where the arrays of callers are; add it")
        return self

    def flags_of_groups(self, program: Program) -> tuple[str, ...]:
        """The flags that the sums in groups of a program need besides :attr:`cpu_flags`."""
        rows = {name: {g.group: g for g in suffix.groups} for name, suffix in self.extra_suffixes.items()}
        found: dict[str, None] = {}
        for _, scope in program.scopes:
            groups = rows.get(scope.suffix, {})
            for leaf in scope.leaves if groups else ():
                group = group_of(leaf.statement, groups, scope.size)
                found |= dict.fromkeys(groups[group].cpu_flags if group else ())
        return tuple(found)

    @property
    def figures(self) -> MachineFigures:
        """The target file's own figures, not calibrated."""
        return MachineFigures(caches=self.caches, memory=self.memory, peak_gflops=self.peak_gflops)

    @property
    def last_cache(self) -> CacheLevel | None:
        """The largest cache: the last one before memory, whatever it is called."""
        return max(self.caches.values(), key=lambda level: level.bytes, default=None)

    def dialect(self) -> Dialect:
        suffixes = {s: CORE_SUFFIXES[s] for s in self.suffixes}
        for name, suffix in self.extra_suffixes.items():
            suffixes[name] = suffix.suffix(name)
        locations = {name: CORE_LOCATIONS[name] for name in self.locations}
        for name, where in self.extra_locations.items():
            locations[name] = Location(name, **where.model_dump())
        return Dialect(
            suffixes,
            locations,
            lanes=self.lanes,
            max_unroll=self.max_unroll,
            roundings=frozenset(self.roundings),
            nested_parallel=self.nested_parallel,
        )


@dataclass(frozen=True)
class Target:
    """Something to build for."""

    name: str
    capabilities: Capabilities
    dialect: Dialect
    plugin: str
    """Distribution that brings it."""
    threads: int = 1
    """Threads on which a kernel will run, for experts that plan by their number."""

    def on(self, figures: MachineFigures, threads: int = 1) -> Target:
        """The target with the figures of one machine in place of its file's, for a number of threads."""
        known = figures.model_dump(include={"caches", "memory", "peak_gflops"})
        capabilities = Capabilities.model_validate({**self.capabilities.model_dump(), **known})
        return replace(self, capabilities=capabilities, threads=threads)


@dataclass(frozen=True)
class Unavailable:
    """The reason why a target cannot run on this machine, and what would mend it."""

    why: str
    remedy: str


@dataclass(frozen=True)
class OperatorParameter:
    """One size of an operator."""

    name: str
    doc: str


@dataclass(frozen=True)
class Operator:
    """A kernel for any shape: a builder from sizes to the text of the initial program."""

    name: str
    doc: str
    """One sentence: what the outputs are."""
    parameters: tuple[OperatorParameter, ...]
    build: Callable[..., str]
    """Takes the sizes in the order of ``parameters`` and returns a program named ``name``."""
    defaults: tuple[tuple[int, ...], ...] = ()
    """Sizes that a selection without sizes stands for."""
    names: tuple[str, ...] = ()
    """A name for each of ``defaults``, where there are several that people speak of: ``layernorm1``."""

    def __post_init__(self) -> None:
        if self.names and len(self.names) != len(self.defaults):
            raise ValueError(f"{self.name} has {len(self.defaults)} defaults and {len(self.names)} names")

    @property
    def named(self) -> Mapping[str, tuple[int, ...]]:
        """Name -> default sizes."""
        return dict(zip(self.names, self.defaults, strict=bool(self.names)))


@dataclass(frozen=True)
class Elements:
    """The elements that share the bytes of a packed array."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ArraySpec:
    """One array of a kernel's interface, as it lies in memory."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    holds: Elements | None = None
    """The elements that the program declares, where this is an array of their bytes: a packed one."""

    @classmethod
    def of(cls, buffer: Buffer) -> ArraySpec:
        """A buffer of the interface, as callers give it."""
        if not buffer.packed:
            return cls(buffer.name, buffer.shape, buffer.dtype)
        return cls(buffer.name, (buffer.bytes,), "u8", Elements(buffer.shape, buffer.dtype))


@dataclass(frozen=True)
class Packing:
    """The half of a kernel that depends on some inputs alone, and runs once for all calls.

    ``int SYMBOL_pack(const T *constant..., void *packed, ...)`` fills ``bytes`` at ``packed``, a multiple of
    64, from which ``int SYMBOL_packed(const T *in..., const void *packed, T *out..., ...)`` computes the
    kernel's outputs. Workspace, threads and statuses are as for the kernel.
    """

    constants: tuple[ArraySpec, ...]
    """The inputs that the pack reads."""
    rest: tuple[ArraySpec, ...]
    """The inputs that are read at each call."""
    bytes: int
    identity: str
    """The same for two packs that do the same with their inputs."""


@dataclass(frozen=True)
class KernelSource:
    """A kernel as source text.

    C interface: ``int SYMBOL(const T *in..., T *out..., void *workspace, size_t bytes, int threads)``
    returns 0, or a status of ``core.interface``, having written nothing: 1 when the workspace is too small,
    another one when it cannot run on this processor; and ``size_t SYMBOL_workspace_bytes(int threads)``.
    """

    symbol: str
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    code: str
    language: str = "c"
    """Also the suffix of the file: ``c``, ``cu``, ``s``."""
    support: Mapping[str, str] = field(default_factory=dict)
    """File name -> text that ``code`` includes; the same for all kernels of a target."""
    packing: Packing | None = None
    """The halves of the kernel, if it has functions for them beside its own."""


@dataclass(frozen=True)
class Artifact:
    """A compiled kernel; ``content`` is the file's bytes (shared object, ELF, cubin ...)."""

    symbol: str
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    kind: str
    content: bytes = field(repr=False)
    toolchain: str = ""
    """Compiler, version and flags, as one line."""
    notes: str = ""
    """The compiler's messages."""
    again: str = ""
    """The function whose calls are timed, if that is another one than ``symbol``: it takes the same arguments
    and reads what a call of ``symbol`` packed in the workspace. A runner may ignore it."""


@dataclass(frozen=True)
class RunRequest:
    """A request to run an artifact.

    ``inputs`` are given arrays (verification), or None: the runner draws them from ``seed``.
    With ``repeats`` 0 the kernel runs once and nothing is timed.
    """

    inputs: Mapping[str, np.ndarray[Any, Any]] | None = None
    seed: int = 0
    threads: int = 1
    want_outputs: bool = True
    repeats: int = 0
    """Most timed calls."""
    budget_s: float = 1.0
    """Time for the timed calls together."""
    cold: bool | None = None
    """Rotate input sets so that none is in cache; None: when the data exceeds the last cache."""
    timeout_s: float = 60.0
    memory_bytes: int = 8 << 30
    stop_above_s: float | None = None
    """Give up when a call is slower than this: the candidate cannot win."""
    precision: float = 0.0
    """Stop early when the median is known this well: half of its 95 % interval over itself."""
    first_look: bool = False
    """True for a candidate that runs again if it wins: a runner may leave out what only a cheat would
    fail."""
    executions: tuple[str, ...] = ()
    """Names of ``core.interface.EXECUTIONS``: ways in which to call the kernel beside the plain one, each of
    which must give the plain call's bits. A runner does those that it knows, and says so."""
    thread_counts: tuple[int, ...] = ()
    """For the execution ``threads``; as far as time allows, in this order."""
    busy_threads: int = 0
    """On up to so many threads, each has something to do in every parallel scope; 0: not known."""


@dataclass(frozen=True)
class Measurement:
    """The kernel ran. ``seconds`` are the timed calls in order."""

    outputs: Mapping[str, np.ndarray[Any, Any]] | None
    seconds: tuple[float, ...]
    provenance: Provenance
    device: str
    threads: int
    cold: bool = False
    details: Mapping[str, float] = field(default_factory=dict)
    executions: tuple[str, ...] = ()
    """The executions of the request that the kernel was put through."""

    @property
    def median(self) -> float:
        return float(np.median(self.seconds)) if self.seconds else float("nan")


@dataclass(frozen=True)
class Failure:
    """The kernel did not run, or must not count."""

    reason: FailureReason
    detail: str = ""


@dataclass(frozen=True)
class Bound:
    """A lower bound on a kernel's time and what it rests on."""

    seconds: float
    limit: str
    """The limit that binds, in words: "DRAM copy 37.4 GB/s"."""
    provenance: Provenance
    calibrated: bool
    """True when the figures behind it were measured on this device."""


@runtime_checkable
class CodeGenerator(Protocol):
    """Turns a program into source text. Pure: the same program gives the same text.

    What it may do besides stands in :mod:`.abilities`.
    """

    def generate(self, program: Program, symbol: str) -> KernelSource: ...


@runtime_checkable
class Runner(Protocol):
    """Compiles and runs. Picklable; a crash, hang or compiler error is a :class:`Failure`.

    What it may do besides stands in :mod:`.abilities`.
    """

    def compile(self, source: KernelSource) -> Artifact | Failure: ...

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure: ...

    def device(self) -> str:
        """The device and its figures in words, part of each record's key."""
        ...


class HeuristicPass(Protocol):
    """Plays moves on an initial program as an expert would, and returns the game.

    An expert who cannot know which of a few ways is faster on the machine at hand returns one game
    for each, the likeliest first; the builder measures them. ``target`` carries the machine's own
    figures where they are known.
    """

    def __call__(self, root: Program, rules: Rules, target: Target) -> Sequence[Trace]: ...
