"""Assembly with symbolic registers, which the emitter writes and the allocator replaces.

A :class:`Register` is a value's place. The emitter makes as many as it likes; :mod:`.allocate` gives
each a register of the machine, or a slot of the frame where there are too few.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from perfdojo_sdk.core.frozen import frozen, lazy

Kind: TypeAlias = Literal["x", "f"]


@dataclass(eq=False)
class Register:
    """The place of one value."""

    kind: Kind
    """``x``: an integer or an address; ``f``: a number."""
    wish: str = ""
    """The machine's register in which the value arrives."""
    fixed: str = ""
    """The machine's register that it must be."""


#: The integer 0.
ZERO = Register("x", fixed="zero")
#: The register of the kernel's result.
RESULT = Register("x", fixed="a0")


@frozen
class Instruction:
    """One instruction. ``{0}``, ``{1}`` ... of the text are ``writes``, then ``reads``.

    ``{frame}`` is the size of the frame, ``{scratch}`` the offset of eight bytes of it for temporary use.
    """

    text: str
    writes: tuple[Register, ...] = ()
    reads: tuple[Register, ...] = ()

    @lazy
    def operands(self) -> tuple[Register, ...]:
        return self.writes + self.reads

    @lazy
    def is_fp(self) -> bool:
        """True for an FPU instruction on FP registers alone; a jump has no operands."""
        return bool(self.operands) and all(register.kind == "f" for register in self.operands)


@dataclass(frozen=True)
class Mark:
    """A line without an instruction: a label, a comment, an end of a loop."""

    text: str = ""
    begins_loop: bool = False
    ends_loop: bool = False
    repeats: str = ""
    """Id of the scope, at the begin of a loop that the sequencer repeats; empty elsewhere."""
    times: int = 0
    """Number of repetitions of that loop."""
    copies: int = 1
    """Number of emitted copies of a body that the sequencer holds once."""
    together: tuple[tuple[Register, ...], ...] = ()
    """Groups of registers that must have consecutive numbers in that loop."""


Line: TypeAlias = Instruction | Mark


@dataclass
class Listing:
    """Lines that grow."""

    prefix: str
    """The start of every label."""
    lines: list[Line] = field(default_factory=list)
    labels: int = 0
    routines: set[str] = field(default_factory=set)
    """Functions that are called, whose code the kernel has to contain."""
    rescues: set[str] = field(default_factory=set)
    """Functions that are called as a slow path of straight-line code, without changing a register."""

    def put(self, text: str, writes: tuple[Register, ...] = (), reads: tuple[Register, ...] = ()) -> None:
        self.lines.append(Instruction(text, writes, reads))

    def compute(self, kind: Kind, text: str, *reads: Register, into: Register | None = None) -> Register:
        """An instruction with one result: a new register, or ``into``."""
        result = into or Register(kind)
        self.put(text, (result,), reads)
        return result

    def comment(self, text: str) -> None:
        self.lines.append(Mark(f"# {text}"))

    def new_label(self) -> str:
        self.labels += 1
        return f".L{self.prefix}_{self.labels}"

    def label(self, name: str) -> None:
        self.lines.append(Mark(f"{name}:"))

    def stream_config(self, register: int, mover: int, value: Register) -> None:
        """Write a register of a mover."""
        number = register << 5 | mover
        self.put(f".insn i 0x2b, 2, x0, {{0}}, {number} # scfgwi {{0}}, {number}", (), (value,))

    def stream_status(self, mover: int, into: Register) -> None:
        """Read the status of a mover's job; a negative number means that it is done."""
        self.put(f".insn i 0x2b, 1, {{0}}, x0, {mover} # scfgri {{0}}, {mover}", (into,))

    def await_writes(self, mover: int) -> None:
        """Wait until a mover's job of writes has reached memory."""
        with self.loop() as again:
            status = Register("x")
            self.stream_status(mover, status)
            self.put(f"bgez {{0}}, {again}", (), (status,))

    def await_fpu(self) -> None:
        """Wait until the FPU has started every instruction so far."""
        arrived = self.compute("x", "fmv.x.w {0}, ft3")
        self.put("mv zero, {0} # all before it has started", (), (arrived,))

    @contextmanager
    def loop(self) -> Iterator[str]:
        """A loop around the lines emitted in the ``with`` block; yields the label of its start."""
        name = self.new_label()
        self.lines.append(Mark(f"{name}:", begins_loop=True))
        yield name
        self.lines.append(Mark(ends_loop=True))

    # -- numbers -----------------------------------------------------------------------------------

    def number(self, value: int, into: Register | None = None) -> Register:
        return self.compute("x", f"li {{0}}, {value}", into=into)

    def plus(self, base: Register, distance: int, into: Register | None = None) -> Register:
        """``base + distance``; ``base`` itself where nothing is to be added and no place is asked for."""
        if distance == 0 and into in (None, base):
            return base
        if small(distance):
            return self.compute("x", f"addi {{0}}, {{1}}, {distance}", base, into=into)
        return self.compute("x", "add {0}, {1}, {2}", base, self.number(distance), into=into)


def small(number: int) -> bool:
    """True if the number fits a signed 12-bit immediate."""
    return -2048 <= number < 2048
