"""Instances of one statement side by side: first instructions of all, second instructions of all, and so on.

A function written as a straight line makes each instruction wait for the one before it. Four instances
in step hide that. Numbers that the lines need come from registers where an instruction needs two of them,
and else through a stream register, each read once by every instance, or from a table in the frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfdojo_riscv_snitch.codegen.assembly import ZERO, Instruction, Line, Listing, Mark, Register
from perfdojo_riscv_snitch.codegen.inline import Check, Rescue
from perfdojo_riscv_snitch.codegen.values import BYTES

#: Most instances in step: they hide the latency of the FPU; more would need more registers than there are.
MOST_TOGETHER = 6

#: Bits and dtype of a number that instructions read.
Constant = tuple[int, str]


def chunks(count: int) -> list[int]:
    """Sizes of the groups that ``count`` instances run in, as equal as can be."""
    groups = -(-count // MOST_TOGETHER)
    return [count // groups + (k < count % groups) for k in range(groups)]


@dataclass
class Table:
    """Constants in the frame, in the order in which a stream or loads fetch them."""

    words: list[int] = field(default_factory=list)

    def place(self, words: Sequence[int]) -> int:
        """Byte offset of these consecutive words in the table; they are appended where missing."""
        for at in range(len(self.words) - len(words) + 1):
            if self.words[at : at + len(words)] == list(words):
                return 8 * at
        self.words += words
        return 8 * (len(self.words) - len(words))


class Group:
    """Emits one group. ``stream``: the stream register that numbers come through, if they do."""

    def __init__(
        self,
        listing: Listing,
        instances: Sequence[Sequence[Line]],
        constants: Mapping[Register, Constant],
        table: Table,
        stream: Register | None,
    ) -> None:
        self.listing, self.constants, self.table, self.stream = listing, constants, table, stream
        self.rows = list(zip(*instances, strict=True))
        self.streamed: list[int] = []
        """Words that the group takes from the stream, in order."""
        self.resident = self._resident()
        self._checks: list[Iterator[Instruction]] = []
        self._verdict: Register | None = None

    def emit(self) -> None:
        """Emit all rows; one instruction of a check follows each row, so that checks do not stall."""
        for row in self.rows:
            if isinstance(row[0], Check):
                self._checks.append(self._check([line for line in row if isinstance(line, Check)]))
            elif isinstance(row[0], Rescue):
                self._rescue([line for line in row if isinstance(line, Rescue)])
            elif isinstance(row[0], Instruction):
                self._instructions([line for line in row if isinstance(line, Instruction)])
                self._advance()
            else:
                self.listing.lines += row
        while self._checks:
            self._advance()

    def _resident(self) -> set[Register]:
        """Constants that need a register of their own: all but one of an instruction."""
        found: set[Register] = set()
        for row in self.rows:
            if isinstance(row[0], Instruction):
                needed = [r for r in dict.fromkeys(row[0].reads) if r in self.constants]
                found.update(needed[1:])
        return found

    def _instructions(self, row: Sequence[Instruction]) -> None:
        other = [r for r in row[0].reads if r in self.constants and r not in self.resident]
        if not other:
            self.listing.lines += row
            return
        bits, dtype = self.constants[other[0]]
        word = bits | (1 << 64) - (1 << 8 * BYTES[dtype])  # NaN boxing: ones above a narrower number
        place = self.stream
        if place is None:
            at = self.table.place([word])
            place = self.listing.compute("f", f"fld {{0}}, {{constants}}+{at}(sp)")
        else:
            self.streamed.append(word)
        for line in row:
            reads = tuple(place if r is other[0] else r for r in line.reads)
            self.listing.put(line.text, line.writes, reads)

    # -- ordinary arguments ------------------------------------------------------------------------

    def _check(self, row: Sequence[Check]) -> Iterator[Instruction]:
        """Yield the instructions for the sum of squares, and for the comparison with the limit."""
        total = Register("f")
        for k, line in enumerate(row):
            if k == 0:
                yield Instruction("fmul.d {0}, {1}, {1}", (total,), (line.value,))
            else:
                yield Instruction("fmadd.d {0}, {1}, {1}, {2}", (total,), (line.value, total))
        self._verdict = Register("x")
        yield Instruction("flt.d {0}, {1}, {2}", (self._verdict,), (total, row[0].limit))

    def _advance(self) -> None:
        if self._checks:
            following = next(self._checks[0], None)
            if following is None:
                self._checks.pop(0)
                self._advance()
            else:
                self.listing.lines.append(following)

    def _rescue(self, row: Sequence[Rescue]) -> None:
        """Emit the slow path: keep the line's results, or let the routine compute them."""
        while self._checks:
            self._advance()
        listing, verdict = self.listing, self._verdict
        assert verdict is not None, "a rescue follows a check"
        label = listing.new_label()
        listing.put(f"bnez {{0}}, {label} # all arguments were ordinary", (), (verdict,))
        for line in row:
            for k, argument in enumerate(line.arguments):
                number = argument or self._whole(1)
                listing.put(f"fsd {{0}}, {{rescue}}+{8 * k}(sp)", (), (number,))
            listing.rescues.add(line.routine)
            listing.put(f"jal ra, .L{listing.prefix}_rescue_{line.routine}")
            listing.put("fld {0}, {rescue}(sp)", (line.result,))
            for register in line.zeros:
                listing.put("fcvt.d.w {0}, {1}", (register,), (ZERO,))
            for register in line.zeros[:1]:  # so that their product keeps -0
                listing.put("fsgnj.d {0}, {0}, {1}", (register,), (line.result,))
            for register in line.ones:
                self._whole(1, register)
        listing.label(label)

    def _whole(self, number: int, into: Register | None = None) -> Register:
        return self.listing.compute("f", "fcvt.d.w {0}, {1}", self.listing.number(number), into=into)


def in_step(instances: Sequence[Sequence[Line]]) -> bool:
    """True if all instances are the same sequence of instructions without branches."""
    first = instances[0]
    if any(len(each) != len(first) for each in instances):
        return False
    return all(_alike(row) for row in zip(*instances, strict=True))


def _alike(row: Sequence[Line]) -> bool:
    if isinstance(row[0], Instruction):
        names = {line.text.partition(" ")[0] for line in row if isinstance(line, Instruction)}
        return len(names) == 1 and "jal" not in names and all(isinstance(line, Instruction) for line in row)
    if isinstance(row[0], Check | Rescue):
        return all(type(line) is type(row[0]) for line in row)
    return isinstance(row[0], Mark) and not row[0].text.endswith(":")
