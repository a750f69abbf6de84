"""Programs that may reveal faults of compilers: loops over a few arrays that are read and written at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random

from perfdojo_sdk.codegen.loops import nothing_to_prove
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse

#: Numbers of iterations and cells: around the lanes of vectors, and such that quotients have remainders.
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 20, 33)
DTYPES = ("f32", "f64", "i64", "i32", "i16", "i8", "u8")
#: Operations that have the same result to the bit however they are compiled.
OPERATIONS = ("{} + {}", "{} - {}", "{} * {}", "max({}, {})", "min({}, {})")
#: Cells of each written array of a tame program: as many as its iterators may count.
CELLS = 700


def wild_program(seed: int) -> Program:
    """A program with cells chosen by quotients, which a compiler can seldom prove different, so that it must
    not reorder accesses."""
    return _Writer(Random(seed), tame=False).program()


def tame_program(seed: int) -> Program:
    """A program whose loops a compiler may vectorise, since their accesses are simple."""
    rng = Random(seed)
    while not nothing_to_prove(program := _Writer(rng, tame=True).program()):
        pass
    return program


class _Writer:
    def __init__(self, rng: Random, tame: bool) -> None:
        self.rng, self.tame = rng, tame
        self.dtype = rng.choice(DTYPES)
        self.sizes = {name: CELLS if tame and name != "x" else rng.choice(EXTENTS) for name in "xtuv"}
        self.forms: dict[str, str] = {}
        """Array -> the form of its accesses in this nest, for arrays that a tame nest writes."""

    def program(self) -> Program:
        head = ["kernel wild(x) -> t, u, v"]
        head += [f"{name} {self.dtype} [{size}] heap" for name, size in self.sizes.items()]
        body = [f"{self.sizes[name]} {name}[{{0}}] = x[{{0}}%{self.sizes['x']}]" for name in "tuv"]
        for _ in range(self.rng.randint(1, 3)):
            body += self.nest()
        return parse("\n".join([*head, "", *body, ""]))

    def nest(self) -> list[str]:
        """Scopes one inside the other, with statements before, after and inside."""
        sizes = [self.rng.choice(EXTENTS) for _ in range(self.rng.randint(1, 3))]
        while self.tame and prod(sizes) > CELLS:
            sizes.pop()
        written = self.rng.sample("tuv", self.rng.randint(1, 3))
        outermost = self.rng.randint(
            0, 1
        )  # a statement above the innermost scope sees the outer iterators only
        self.forms = {name: self.one_form(sizes, outermost) for name in written} if self.tame else {}
        lines = []
        for level, size in enumerate(sizes):
            lines.append(f"{'| ' * level}{size}")
            innermost = level == len(sizes) - 1
            if innermost or (self.rng.random() < 0.5 and not self.tame):
                count = self.rng.randint(1, 2)
                lines += [self.statement(level + 1, written) for _ in range(count)]
        return lines

    def one_form(self, sizes: Sequence[int], outermost: int) -> str:
        """A form made of the digits of a number: some of the iterators, each with its weight."""
        terms, place = [], 1
        for level in reversed(range(len(sizes))):
            if level < outermost or self.rng.random() < 0.7:
                terms.append(f"{{{level}}}*{place}")
                place *= sizes[level]
        return " + ".join([*terms, str(self.rng.randint(0, CELLS - place))])

    def statement(self, levels: int, written: Sequence[str]) -> str:
        target = self.rng.choice(written)
        sign = self.rng.choice(("=", "=", "=", "+=", "max=", "*="))
        value = self.rng.choice(OPERATIONS).format(self.value(levels), self.value(levels))
        guard = f" if {self.form(levels)} <= {self.rng.randint(0, 40)}" if self.rng.random() < 0.2 else ""
        return f"{'| ' * levels}{target}[{self.subscript(target, levels)}] {sign} {value}{guard}"

    def value(self, levels: int) -> str:
        if self.rng.random() < 0.15:
            return f"index({self.form(levels)})"
        array = self.rng.choice("xtuv")
        return f"{array}[{self.subscript(array, levels)}]"

    def subscript(self, array: str, levels: int) -> str:
        """A random subscript, kept in range by a remainder; now and then a constant."""
        if array in self.forms:
            return self.forms[array]
        size = self.sizes[array]
        return str(self.rng.randrange(size)) if self.rng.random() < 0.2 else f"({self.form(levels)})%{size}"

    def form(self, levels: int) -> str:
        rng = self.rng
        terms = [f"{{{rng.randrange(levels)}}}*{rng.randint(1, 17)}" for _ in range(rng.randint(1, 2))]
        form = f"({' + '.join([*terms, str(rng.randint(0, 9))])})"
        return f"{form}//{rng.choice((2, 3, 5, 20, 257))}" if rng.random() < 0.5 else form
