"""Peeling: the first and the last iteration of a repeated body are merged with the code around it.

A sum starts with a copy of zero and ends with a copy into a stream. If the sequencer repeats the body
between, it is emitted once before and once after the repetition: the first iteration then adds to the zero
itself, the last one writes to the stream itself, and the copies are removed, one instruction each for every
sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfdojo_riscv_snitch.codegen.assembly import Instruction, Line, Mark, Register
from perfdojo_riscv_snitch.codegen.pairs import PRODUCTS
from perfdojo_riscv_snitch.codegen.schedule import latency

#: Most instructions of a repeated body.
SEQUENCER = 32

_COPIES = ("fmv.d ", "fmv.s ", "fmv.h ", "vfsgnj.s ")


def frep(count: Register, length: int) -> Instruction:
    """The instruction that repeats the next ``length`` instructions; ``count`` is the number of times minus
    one."""
    return Instruction(f".insn i 0x0b, 0, x1, {{0}}, {length - 1} # frep.o {{0}}, {length}", (), (count,))


def is_fp(line: Line) -> bool:
    """True for an FPU instruction on FP registers alone."""
    return isinstance(line, Instruction) and line.is_fp


def merged(lines: Sequence[Line], zeros: Collection[Register], direct: Collection[Register]) -> list[Line]:
    """``lines`` with fewer copies around repeated bodies, where that is possible.

    ``zeros``: registers of pairs that are zero throughout. ``direct``: stream registers that may be written
    a bit earlier than before, as nothing else touches what their streams write.
    """
    streams = set(direct)
    while True:
        found = _all_merged(list(lines), zeros, streams)
        # Instructions with a longer latency write their results later, so a mixture would change the order.
        mixed = {r for r in streams if len({latency(each) for each in _writers(found, r)}) > 1}
        if not mixed:
            return found
        streams -= mixed


def _all_merged(lines: list[Line], zeros: Collection[Register], direct: Collection[Register]) -> list[Line]:
    for begin, end in reversed(list(_innermost(lines))):
        for first, last in ((True, True), (True, False), (False, True)):
            attempt = _Peeled.of(lines, begin, end, first, last)
            if attempt and attempt.merge(first, last, zeros, direct):
                lines = attempt.lines
                break
    return lines


def _innermost(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Begin and end of each repeated body without another one inside."""
    begin = None
    for at, line in enumerate(lines):
        if isinstance(line, Mark) and line.begins_loop:
            begin = at if line.repeats else None
        elif isinstance(line, Mark) and line.ends_loop and begin is not None:
            yield begin, at
            begin = None


@dataclass
class _Peeled:
    """A listing with a body written out before or after its repetition."""

    lines: list[Line]
    before: int
    """Index of the first line of the repetition."""
    after: int
    """Index of the line that ends it."""

    @staticmethod
    def of(lines: Sequence[Line], begin: int, end: int, first: bool, last: bool) -> _Peeled | None:
        mark, head = lines[begin], lines[begin - 1]
        assert isinstance(mark, Mark) and isinstance(head, Instruction)
        times = mark.times - first - last
        if times < 1:
            return None
        once: list[Line] = [line for line in lines[begin + 1 : end] if isinstance(line, Instruction)]
        repeated = [head, replace(mark, times=times), *lines[begin + 1 : end + 1]] if times > 1 else once
        opening: list[Line] = [Mark("# the first time"), *once] if first else []
        ending: list[Line] = [Mark("# the last time"), *once] if last else []
        before = _counted(lines[: begin - 1], head.reads[0], times)
        late = _loads_late(before, head.reads[0])
        found = [line for line in before if line not in late]
        found += [*opening, *late]
        start = len(found)
        found += [*repeated, *ending, *lines[end + 1 :]]
        return _Peeled(found, start, start + len(repeated))

    def merge(
        self, first: bool, last: bool, zeros: Collection[Register], direct: Collection[Register]
    ) -> bool:
        """Remove copies; true if some were removed at each peeled iteration, and the rest fits."""
        gone = True
        if last:
            gone = self._sink(direct)
        if first:
            gone = gone and self._forward(zeros)
        if not gone:
            return False
        lengths = dict(_lengths(self.lines))
        self.lines = _sized(self.lines, lengths)
        return all(0 < length <= SEQUENCER for length in lengths.values())

    # -- copies before -------------------------------------------------------------------------------

    def _forward(self, zeros: Collection[Register]) -> bool:
        """Use the sources of copies themselves in the straight code before the repetition."""
        stop = self.before
        start = stop - _straight(self.lines[:stop][::-1])
        block, count, at = self.lines[start:stop], stop - start, 0
        while at < len(block):  # by index: the line that reads one copy may be the next copy
            shorter = _without(block, at, zeros) if _is_copy(block[at]) else None
            if shorter is None:
                at += 1
            else:
                block = shorter
        self.lines[start:stop] = block
        return len(block) < count

    # -- copies after --------------------------------------------------------------------------------

    def _sink(self, direct: Collection[Register]) -> bool:
        """Write to streams where results are computed, in the straight code after the repetition."""
        block = self.lines[self.after : self.after + _straight(self.lines[self.after :])]
        copies = [_of(line) for line in block if _is_copy(line)]
        return sum(self._sunk(copy) for copy in copies if copy.writes[0] in direct) > 0

    def _sunk(self, copy: Instruction) -> bool:
        start = self.after
        at = next(k for k in range(start, len(self.lines)) if self.lines[k] is copy)
        (target,), (source,) = copy.writes, copy.reads
        made = next((k for k in reversed(range(start, at)) if source in _of(self.lines[k]).writes), None)
        if made is None or source.fixed or not _is_dead(self.lines, at, source):
            return False
        maker, between = _of(self.lines[made]), [_of(line) for line in self.lines[made + 1 : at]]
        if any(target in each.writes or source in each.reads for each in between):
            return False
        if not is_fp(maker) or adds_in_place(maker):
            return False
        self.lines[made] = replace(maker, writes=(target,))
        del self.lines[at]
        return True


_NOTHING = Instruction("")


def _of(line: Line) -> Instruction:
    return line if isinstance(line, Instruction) else _NOTHING


def _writers(lines: Sequence[Line], register: Register) -> Iterator[Instruction]:
    return (_of(line) for line in lines if register in _of(line).writes)


def _is_copy(line: Line) -> bool:
    each = _of(line)
    return each.text.rpartition("# ")[2].startswith(_COPIES) and len(each.operands) == 2


def adds_in_place(line: Instruction) -> bool:
    """True if the instruction implicitly reads the register that it writes."""
    return f"{{{len(line.operands) - 1}}}" not in line.text


def _straight(lines: Sequence[Line]) -> int:
    """Number of lines before the first loop, label or branch."""
    for k, line in enumerate(lines):
        if isinstance(line, Mark) and (line.begins_loop or line.ends_loop or line.text.endswith(":")):
            return k
        if _of(line).text.startswith(("b", "j")):
            return k
    return len(lines)


def _without(block: Sequence[Line], at: int, zeros: Collection[Register]) -> list[Line] | None:
    """Straight code without the copy at ``at``; None where the copy is needed."""
    (target,), (source,) = _of(block[at]).writes, _of(block[at]).reads
    if target.fixed or source.fixed:
        return None
    found = [*block[:at], *block[at + 1 :]]
    for k in range(at, len(found)):
        line = _of(found[k])
        if target in line.reads:
            changed = _reading(line, target, source, source in zeros)
            if changed is None:
                return None
            found[k] = changed
        if target in line.writes:
            return found
        if source in line.writes:
            return None
    return None


def _reading(line: Instruction, old: Register, new: Register, is_zero: bool) -> Instruction | None:
    """``line`` with another operand. A product added to zero is the product itself, except for the sign of
    0."""
    if not adds_in_place(line):
        return replace(line, reads=tuple(new if r is old else r for r in line.reads))
    if is_zero and line.text in PRODUCTS and old not in line.reads[:2]:
        return Instruction(PRODUCTS[line.text], line.writes, line.reads[:2])
    return None


def _is_dead(lines: Sequence[Line], at: int, register: Register) -> bool:
    """True if the value of a register after line ``at`` is never read."""
    opened: list[int] = []
    for k, line in enumerate(lines[:at]):
        if isinstance(line, Mark) and line.begins_loop:
            opened.append(k)
        elif isinstance(line, Mark) and line.ends_loop:
            opened.pop()
    for k in range(at + 1, len(lines)):
        line = lines[k]
        if register in _of(line).reads:
            return False
        if register in _of(line).writes:
            return True
        if _is_label(line):
            return False  # a label, where branches meet
        if isinstance(line, Mark) and line.begins_loop:
            opened.append(k)
        if isinstance(line, Mark) and line.ends_loop:
            begin = opened.pop()
            if any(_is_label(each) for each in lines[begin:k]):
                return False
            inside = next((each for each in lines[begin:k] if register in _of(each).operands), None)
            if inside is not None and register in _of(inside).reads:
                return False
    return True


def _is_label(line: Line) -> bool:
    """True for a label that is the target of a branch other than a loop's back edge."""
    return isinstance(line, Mark) and line.text.endswith(":") and not line.begins_loop


# -- counts and lengths -----------------------------------------------------------------------------


def _counted(lines: Sequence[Line], count: Register, times: int) -> list[Line]:
    """The lines with another repetition count, or without the repetition where nothing repeats any more."""
    found: list[Line] = []
    for line in lines:
        if _of(line).writes != (count,):
            found.append(line)
        elif times > 1:
            found.append(Instruction(f"li {{0}}, {times - 1}", (count,)))
    return found


def _loads_late(lines: Sequence[Line], count: Register) -> list[Line]:
    """The lines that load the repetition count, if only straight-line code lies between them and the
    repetition.

    They can then follow the peeled first iteration, so that the FPU starts earlier.
    """
    near = lines[len(lines) - _straight(lines[::-1]) :]
    return [line for line in near if _of(line).writes == (count,)]


def _sized(lines: Sequence[Line], lengths: Mapping[int, int]) -> list[Line]:
    """The lines with corrected lengths of repeated bodies; ``lengths``: begin of each -> its entries."""
    found = list(lines)
    for begin, length in lengths.items():
        found[begin - 1] = frep(_of(found[begin - 1]).reads[0], length)
    return found


def _lengths(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Begin of every repeated body, and how many entries of the sequencer it takes."""
    opened: list[tuple[int, int]] = []
    count = 0
    for at, line in enumerate(lines):
        if isinstance(line, Mark) and line.begins_loop:
            opened.append((at, count))
        elif isinstance(line, Mark) and line.ends_loop:
            begin, earlier = opened.pop()
            mark = _mark(lines[begin])
            length = (count - earlier) // mark.copies
            count = earlier + length
            if mark.repeats:
                yield begin, length
        count += is_fp(line)


def entries(body: Sequence[Line]) -> int:
    """Entries of the sequencer that a whole body takes."""
    around = [Mark(begins_loop=True, repeats="whole"), *body, Mark(ends_loop=True)]
    return next(length for begin, length in _lengths(around) if begin == 0)


def _mark(line: Line) -> Mark:
    assert isinstance(line, Mark)
    return line
