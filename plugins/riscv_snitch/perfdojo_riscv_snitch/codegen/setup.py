"""Code of the integer core for streams: it configures movers, starts their jobs and waits for their end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from perfdojo_riscv_snitch.codegen.assembly import ZERO, Instruction, Listing, Register
from perfdojo_riscv_snitch.codegen.schedule import latency
from perfdojo_riscv_snitch.codegen.streams import MOVERS, Dimension, Stream
from perfdojo_sdk.core.program import Program

#: The number of a mover by which registers of all movers are written.
ALL_MOVERS = 31
_REG_REPEAT, _REG_BOUND, _REG_STRIDE, _REG_READ, _REG_WRITE = 1, 2, 6, 24, 28


class SetUp:
    """Emits what the movers of one kernel need. ``registers``: a stream register for each location."""

    def __init__(self, program: Program, streams: Mapping[str, Stream], listing: Listing) -> None:
        self.program, self.streams, self.listing = program, streams, listing
        self.registers = {name: Register("f", fixed=f"ft{mover}") for name, mover in MOVERS.items()}

    def configure(self) -> None:
        """Set up, once and before everything else, the movers that have one job only."""
        self._configure([s for s in self.streams.values() if self._alone(s)])

    def _alone(self, stream: Stream) -> bool:
        return [s.mover for s in self.streams.values()].count(stream.mover) == 1

    def _configure(self, streams: Sequence[Stream]) -> None:
        """Bounds, strides and repetition of jobs that start later.

        A value that all movers with jobs share is written to all of them at once, by :data:`ALL_MOVERS`.
        """
        numbers = {0: ZERO}

        def write(register: int, mover: int, value: int) -> None:
            if value not in numbers:
                numbers[value] = self.listing.number(value)
            self.listing.stream_config(register, mover, numbers[value])

        wanted: dict[int, dict[int, int]] = {}
        for stream in streams:
            for register, value in configuration(stream).items():
                wanted.setdefault(register, {})[stream.mover] = value
        for register, values in sorted(wanted.items()):
            common = Counter(values.values()).most_common(1)[0]
            shared = common[0] if common[1] > 1 and len(streams) == len(self.streams) else None
            if shared is not None:
                write(register, ALL_MOVERS, shared)
            for mover, value in values.items():
                if value != shared:
                    write(register, mover, value)

    def prepare(self, stream: Stream) -> None:
        """Emit the code that must directly precede a job, on a mover with several jobs."""
        if self._alone(stream):
            return
        if self._changes_hands(stream):
            self._drain(stream.mover)
        self._configure([stream])

    def start(self, stream: Stream, pointer: Register) -> None:
        first = _REG_WRITE if stream.writes else _REG_READ
        self.listing.stream_config(first + len(stream.dimensions) - 1, stream.mover, pointer)

    def finish(self, stream: Stream) -> None:
        """Wait for a job's end, if a later access may touch what it wrote."""
        if stream.writes and self._touched_elsewhere(stream):
            self._await(stream.mover)

    def fetch(
        self, mover: int, repeat: int, dimensions: tuple[Dimension, ...], place: str, drain: bool
    ) -> None:
        """Let a mover read words of the frame."""
        if drain:
            self.listing.await_fpu()
        for register, value in settings(dimensions, repeat).items():
            self.listing.stream_config(register, mover, self.listing.number(value) if value else ZERO)
        start = self.listing.compute("x", f"addi {{0}}, sp, {place}")
        self.listing.stream_config(_REG_READ + len(dimensions) - 1, mover, start)

    def _changes_hands(self, stream: Stream) -> bool:
        """True if an earlier job of the mover may have had the other direction or another repetition.

        The repetition applies to elements still in the FIFO as well, and a read job ends for the mover when
        it has requested the last element, not when the FPU has read it. The FPU must not read from a mover
        that still writes.
        """
        others = [s for s in self.streams.values() if s.mover == stream.mover]
        alike = {(s.writes, s.repeat) for s in others}
        first = len(stream.job) == 1 and stream.job == min(s.job for s in others)
        return len(alike) > 1 and not first

    def _drain(self, mover: int) -> None:
        """Wait until the FPU has taken all that a mover has read, and memory all that it has to write."""
        self.listing.await_fpu()
        if any(s.writes for s in self.streams.values() if s.mover == mover):
            self._await(mover)

    def _await(self, mover: int) -> None:
        """Wait until all that a mover has to write is in memory."""
        jobs = [s.job for s in self.streams.values() if s.mover == mover]
        self.listing.await_writes(mover)
        if len(jobs) > 1 or len(jobs[0]) > 1:
            # Between two jobs the mover's status is "done" for a moment.
            self.listing.await_writes(mover)

    def _touched_elsewhere(self, stream: Stream) -> bool:
        """True if code after the job, or the job's next run, may access the cells it wrote."""
        target, job = self.program.buffer_of[stream.memory.array], stream.job
        others = [o for o in self.program.occurrences[target.name] if o.statement is not stream.copy]
        return any(len(job) > 1 or o.path[: len(job)] != job for o in others)

    def end(self) -> None:
        """Disable the streams, and wait until what they write is in memory.

        Disabling waits for the last FP instruction, and later code waits for that. A query of a mover is
        issued in a cycle and answered after four, so a query before the last result has left still gets the
        right answer.
        """
        self.listing.put("csrci 0x7c0, 1 # streams off")
        for mover in sorted({s.mover for s in self.streams.values() if s.writes}):
            stream = self.registers[f"ssr{mover}"]
            last = [
                line for line in self.listing.lines if isinstance(line, Instruction) and stream in line.writes
            ]
            for _ in range(latency(last[-1]) - 1):
                self.listing.stream_status(mover, ZERO)
            self._await(mover)

    def undisturbed(self, location: str) -> bool:
        """True if all streams through a register are writes to buffers that no other statement accesses."""
        here = [s for s in self.streams.values() if s.buffer.location == location]
        copies = [s.copy for s in self.streams.values() if s.writes]
        written = [self.program.buffer_of[s.memory.array] for s in here]
        occurrences = [o for buffer in written for o in self.program.occurrences[buffer.name]]
        return (
            bool(here)
            and all(s.writes for s in here)
            and all(any(o.statement is c for c in copies) for o in occurrences)
        )


def configuration(stream: Stream) -> dict[int, int]:
    """Register -> value for a job."""
    return settings(stream.dimensions, None if stream.writes else stream.repeat)


def settings(dimensions: Sequence[Dimension], repeat: int | None) -> dict[int, int]:
    """Register -> value for such a pattern; a stride is the distance added by the outermost loop that
    advances.

    ``repeat``: how often each element is read; None where it is written.
    """
    found, back = {} if repeat is None else {_REG_REPEAT: repeat - 1}, 0
    for k, dimension in enumerate(dimensions):
        found[_REG_BOUND + k] = dimension.size - 1
        found[_REG_STRIDE + k] = dimension.stride - back
        back += dimension.stride * (dimension.size - 1)
    return found
