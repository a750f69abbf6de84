"""Random programs: small, well-formed, and with many features that make moves illegal.

A program is a sequence of nests. Each nest writes one array that did not exist before, or works
on one that did: element-wise with broadcast, shifted, reversed and transposed reads, reductions
with the initial value in the same nest or in one before, updates in place, overlapping windows,
overwritten temporaries, statistics of rows. With the whole language there are also selections, statements
under conditions, padded windows, integers and quotients in subscripts, gathers, inputs that are changed in
place; values kept in dtypes without operations, tables and packed inputs; and unusual flows of values:
accumulations of two kinds into one cell, first writes under a condition, reductions of elements and into
results that only some iterations have, reductions of which the last
iteration is left, recurrences, scans, reads ahead of writes, aliases inside one nest, and filters that slide.
Some temporaries share a buffer. No cell is read before it was written.
"""

from __future__ import annotations

from random import Random

from perfdojo_sdk.core.dtypes import PACKED_DTYPES, UNCOMPUTED_DTYPES
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse

EXTENTS = (2, 3, 4, 6, 8)


def random_program(rng: Random, statements: int = 6, whole_language: bool = True) -> Program:
    """A program with at least ``statements`` statements.

    Without the whole language: float32 throughout, affine subscripts, no conditions.
    """
    return _Writer(rng, whole_language).write(statements)


class _Writer:
    def __init__(self, rng: Random, whole_language: bool) -> None:
        self.rng, self.whole_language = rng, whole_language
        self.integers: dict[str, tuple[int, ...]] = {}
        """Arrays of i32 with their shapes; they stay inside the program."""
        self.indices: dict[str, tuple[int, ...]] = {}
        """Inputs of integers, with their shapes, which choose elements of other inputs."""
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: list[str] = []
        self.chosen_from: set[str] = set()
        """Inputs of which elements are chosen: nothing writes them."""
        self.given_back: list[str] = []
        """Inputs that are outputs, too."""
        self.locals: list[str] = []
        self.steps: list[tuple[list[str], tuple[int, ...]]] = []
        """Arrays of one buffer, each made from the one before, and their shape; nothing else reads them."""
        self.lines: list[str] = []
        self.count = 0
        extents = rng.sample(EXTENTS, 3)
        for k in range(rng.randint(1, 3)):
            shape = tuple(rng.choice(extents) for _ in range(rng.randint(1, 3)))
            self.shapes[f"x{k}"] = shape
            self.inputs.append(f"x{k}")
        self.extents = extents

    def write(self, statements: int) -> Program:
        nests = (self.elementwise, self.elementwise, self.reduction, self.reduction, self.update,
                 self.window, self.scalar, self.pair, self.overwrite, self.in_place,
                 *[self.statistic] * 4)  # fmt: skip
        if self.whole_language:
            nests += (self.conditional, self.conditional, self.padded, self.integer, self.counted,
                      self.mixed, self.kept, self.last_only, self.recurrence, self.ahead, self.aliased,
                      self.filtered, self.gathered, self.changed)  # fmt: skip
        while self.count < statements:
            self.rng.choice(nests)()
        if not self.locals:
            self.elementwise()
        outputs = [self.locals[-1], *(a for a in self.locals[:-1] if self.rng.random() < 0.25)]
        interface = [*self.inputs, *self.indices], [*outputs, *self.given_back]
        buffers = [
            f"{names[0]} f32 [{','.join(map(str, shape))}] heap"
            + (f" -> {', '.join(names)}" if len(names) > 1 else "")
            for names, shape in self.storage(outputs)
        ]
        integers = self.integers | self.indices
        buffers += [f"{n} i32 [{','.join(map(str, shape))}] heap" for n, shape in integers.items()]
        # Drawn last, and by another generator, so that everything before stays as it was.
        rng = Random(self.rng.random())
        makes = (self.stored, self.looked_up, self.scanned, self.painted, self.stepped, self.tallied)
        for make in makes if self.whole_language else ():
            if rng.random() < 0.25 and (made := make(rng)):
                interface[1].append(made[0])
                buffers += made[1]
        rng = Random(rng.random())
        if self.whole_language and rng.random() < 0.25:
            interface[0].append("shares")
            interface[1].append("opened")
            buffers += self.opened(rng)
        rng = Random(rng.random())
        if self.whole_language and rng.random() < 0.35:
            outputs, declared = self.masked(rng)
            interface[1].extend(outputs)
            buffers += declared
        rng = Random(rng.random())
        if self.whole_language and rng.random() < 0.25:
            interface[0].extend(("left", "right"))
            interface[1].append("both")
            buffers += self.multiplied(rng)
        header = f"kernel random({', '.join(interface[0])}) -> {', '.join(interface[1])}"
        return parse("\n".join([header, *buffers, "", *self.lines]))

    def storage(self, outputs: list[str]) -> list[tuple[list[str], tuple[int, ...]]]:
        """The arrays of each buffer, and its shape; now and then, temporaries of one shape alias each other.

        Arrays that start at infinity share with none, since the infinities would spread to the other array.
        """
        groups = {name: [name] for name in self.shapes}
        infinite = {line.split("[")[0].split()[-1] for line in self.lines if line.endswith("inf")}
        own = [name for name in self.locals if name not in outputs and name not in infinite]
        for k, name in enumerate(own):
            alike = [o for o in own[:k] if o in groups and self.shapes[o] == self.shapes[name]]
            if alike and self.rng.random() < 0.3:
                groups[self.rng.choice(alike)] += groups.pop(name)
        return [(names, self.shapes[names[0]]) for names in groups.values()] + self.steps

    def stored(self, rng: Random) -> tuple[str, list[str]] | None:
        """A dtype without operations keeps an array: the output made of it, and declarations."""
        name = rng.choice(self.inputs)
        shape, dtype = self.shapes[name], rng.choice(UNCOMPUTED_DTYPES)
        at = f"[{','.join(f'{{{k}}}' for k in range(len(shape)))}]"
        self.line(f"{self.head(shape)}kept{at} = {dtype}({name}{at} * 3)")
        self.line(f"{self.head(shape)}back{at} = f32(kept{at}) + {name}{at}", 2)
        sizes = ",".join(map(str, shape))
        return "back", [f"kept {dtype} [{sizes}] heap", f"back f32 [{sizes}] heap"]

    def opened(self, rng: Random) -> list[str]:
        """An input of which elements share bytes, and an output made of it: their declarations."""
        name, dtype = rng.choice(self.inputs), rng.choice(PACKED_DTYPES)
        shape = self.shapes[name]
        levels = [f"{{{k}}}" for k in range(len(shape))]
        order = rng.sample(range(len(shape)), len(shape))
        turned = [f"{shape[k] - 1}-{levels[k]}" if rng.random() < 0.2 else levels[k] for k in order]
        value = f"f32(shares[{','.join(turned)}]) * {name}[{','.join(levels)}]"
        results, at = shape, levels
        if rng.random() < 0.5:
            self.line(f"{self.head(shape)}opened[{','.join(at)}] = {value}")
        else:
            results, at = shape[:-1] or (1,), levels[:-1] or ["0"]
            self.line(f"{self.head(shape[:-1])}opened[{','.join(at)}] = 0")
            self.line(f"{self.head(shape)}opened[{','.join(at)}] += {value}")
        sizes = ",".join([str(shape[k]) for k in order])
        declared = f"opened f32 [{','.join(map(str, results))}] heap"
        return [f"shares packed {dtype} [{sizes}] heap", declared]

    def looked_up(self, rng: Random) -> tuple[str, list[str]] | None:
        """Rows of an input in the order of a table, with factors of another one."""
        names = [name for name in self.inputs if name not in self.given_back]
        if not names:
            return None
        name = rng.choice(names)
        (rows, *rest), count = self.shapes[name], rng.choice(self.extents)
        order = ", ".join(str(rng.randrange(rows)) for _ in range(count))
        factors = ", ".join(rng.choice(("0", "1", "-1.5", "0.1")) for _ in range(count))
        after = "".join(f",{{{k + 1}}}" for k in range(len(rest)))
        head = self.head((count, *rest))
        self.line(f"{head}rows[{{0}}{after}] = {name}[order[{{0}}]{after}] * factors[{{0}}]", 1)
        sizes = ",".join(map(str, (count, *rest)))
        tables = [f"order table i32 [{count}] = {{{order}}}", f"factors table f32 [{count}] = {{{factors}}}"]
        return "rows", [f"rows f32 [{sizes}] heap", *tables]

    def stepped(self, rng: Random) -> tuple[str, list[str]] | None:
        """Rows of an input at equal distances, which a table says, in one run or in two; with a constant
        factor and a term that counts, from tables too."""
        names = [name for name in self.inputs if name not in self.given_back]
        if not names:
            return None
        name = rng.choice(names)
        (rows, *rest), count = self.shapes[name], rng.choice(self.extents)
        step = rng.choice([s for s in (-2, -1, 0, 1, 2) if abs(s) * (count - 1) < rows])
        least, most = max(0, -step * (count - 1)), rows - 1 - max(0, step * (count - 1))
        start, cut = rng.randint(least, most), rng.choice((count, count, rng.randrange(1, count)))
        run = [start + step * k if k < cut else k % rows for k in range(count)]
        first, pace = rng.randint(-128, 100), rng.randint(-2, 3)
        counts = [max(-128, first + pace * k) for k in range(count)]
        after = "".join(f",{{{k + 1}}}" for k in range(len(rest)))
        read = f"{name}[{rng.choice(('run[{0}]', f'clamp(run[{{0}}], 0, {rows - 1})'))}{after}]"
        value = f"{read} * even[{{0}}] + f32(counts[{{0}}])"
        self.line(f"{self.head((count, *rest))}picked[{{0}}{after}] = {value}", 1)
        declared = (("run", "i16", run), ("even", "f32", [0.5] * count), ("counts", "i8", counts))
        tables = [f"{t} table {d} [{count}] = {{{', '.join(map(str, of))}}}" for t, d, of in declared]
        return "picked", [f"picked f32 [{','.join(map(str, (count, *rest)))}] heap", *tables]

    def tallied(self, rng: Random) -> tuple[str, list[str]]:
        """A sum of integers to which a term or a table may add zeros."""
        count, terms = rng.choice(self.extents), rng.choice(self.extents)
        weights = [0] * terms if rng.random() < 0.7 else [rng.randrange(-1, 2) for _ in range(terms)]
        term = rng.choice(("0 * {1}", "i32(weights[{1}]) * ({0} + 5)", "{1} * 0 - i32(i8(0))"))
        self.line(f"{count} tally[{{0}}] = {{0}} + 3")
        self.line(f"{count} {terms} tally[{{0}}] += {term}")
        self.line(f"{count} told[{{0}}] = f32(tally[{{0}}])", 3)
        declared = f"weights table i8 [{terms}] = {{{', '.join(map(str, weights))}}}"
        return "told", [f"tally i32 [{count}] heap", f"told f32 [{count}] heap", declared]

    def multiplied(self, rng: Random) -> list[str]:
        """A product of matrices of short integers, and sums of one of them that rows share: declarations."""
        rows, columns, terms = (rng.choice(self.extents) for _ in range(3))
        one, other = (rng.choice(("i8", "u8", "i16")) for _ in range(2))
        again = rng.choice(("{0},{1}", "{1}", f"{rows - 1}-{{0}},{{1}}"))
        condition = rng.choice(
            ("", f" if {{1}} <= {rng.randrange(columns)}", f" if {{2}} >= {rng.randrange(terms)}")
        )
        product = "i32(left[{0},{2}]) * i32(right[{2},{1}])"
        self.line(
            f"{rows} {columns}\n| sums[{{0}},{{1}}] = 0\n| {terms} sums[{{0}},{{1}}] += {product}{condition}",
            2,
        )
        self.line(
            f"{rows} {columns}\n| alike[{again}] = 0\n"
            f"| {terms} alike[{again}] += i32(right[{{2}},{{1}}]){condition}",
            2,
        )
        self.line(f"{rows} {columns} both[{{0}},{{1}}] = f32(sums[{{0}},{{1}}] + alike[{again}])")
        shape = f"{columns}" if again == "{1}" else f"{rows},{columns}"
        return [f"left {one} [{rows},{terms}] heap", f"right {other} [{terms},{columns}] heap",
                f"sums i32 [{rows},{columns}] heap", f"alike i32 [{shape}] heap",
                f"both f32 [{rows},{columns}] heap"]  # fmt: skip

    def masked(self, rng: Random) -> tuple[list[str], list[str]]:
        """Elements that only some iterations write, and their reduction in some rows, which are the only ones
        that have a result; then a scan of them, or squares in these rows. Outputs, and declarations."""
        n, m = rng.choice(self.extents), rng.choice(self.extents)
        rows = rng.choice(("", f"{{0}} <= {rng.randrange(n)}", f"{{0}} >= {rng.randrange(n)}"))
        some = rng.choice(
            ("{1} <= {0}", f"{{1}} >= {rng.randrange(m)}", f"{{0}}+{{1}} <= {rng.randrange(n + m - 1)}",
             "{1} <= {0} and {1} >= {0}-1", "{1}*2 <= {0}", "{0}+{1} >= 1 and {0} <= {1}", rows or "{1} >= 1")
        )  # fmt: skip
        sign, start = rng.choice((("+=", "0"), ("+=", "0"), ("*=", "1"), ("max=", "-0.5"), ("min=", "0.5")))
        both = " and ".join(dict.fromkeys(filter(None, (some, rows))))
        only = f" if {rows}" if rows else ""
        loops = [(0, n), (1, m)]
        term = rng.choice(
            ("shown[{0},{1}]", "shown[{0},{1}] / {}", "shown[{0},{1}] * {}", "exp(shown[{0},{1}])")
        ).replace("{}", self.read(loops[:1]))
        self.line(f"{n} {m} shown[{{0}},{{1}}] = {self.value(loops)} if {some}")
        first, then = f"hidden[{{0}}] = {start}{only}", f"hidden[{{0}}] {sign} {term} if {both}"
        together = rng.random() < 0.5
        self.line(f"{n}\n| {first}\n| {m} {then}" if together else f"{n} {first}\n{n} {m} {then}")
        self.line(f"{n}\n| masked[{{0}}] = 0.5\n| masked[{{0}}] = hidden[{{0}}] * 2{only}", 5)
        declared = [f"shown f32 [{n},{m}] heap", f"hidden f32 [{n}] heap", f"masked f32 [{n}] heap"]
        way = rng.choice(("", "", "scan", "squares"))
        if way == "scan":
            self.line(f"{n} ran[{{0}}] = {start}{only}\n{n} {m} more[{{0}},{{1}}] = 0.25")
            keep = f"more[{{0}},{{1}}] = ran[{{0}}] * 2{only}"
            self.line(f"{n} {m}\n| {then.replace('hidden', 'ran')}\n| {keep}", 4)
            return ["masked", "more"], [*declared, f"ran f32 [{n}] heap", f"more f32 [{n},{m}] heap"]
        if way == "squares":
            difference = f"(flat[{{0}},{{1}}] - {self.read(loops[:1])})"
            self.line(f"{n} {m} flat[{{0}},{{1}}] = {self.read(loops)}")
            self.line(f"{n}\n| total_m[{{0}}] = 0\n| {m} total_m[{{0}}] += flat[{{0}},{{1}}]", 3)
            square = f"{m} more[{{0}}] += {difference} * {difference}{only}"
            self.line(f"{n}\n| more[{{0}}] = total_m[{{0}}]\n| {square}", 2)
            of_rows = [f"total_m f32 [{n}] heap", f"more f32 [{n}] heap"]
            return ["masked", "more"], [*declared, f"flat f32 [{n},{m}] heap", *of_rows]
        return ["masked"], declared

    def scanned(self, rng: Random) -> tuple[str, list[str]]:
        """A running sum, product or extremum of rows, or of the whole, with or without each element."""
        n, m = rng.choice(self.extents), rng.choice(self.extents)
        loops, rows = [(0, n), (1, m)], rng.random() < 0.5
        sign, start = rng.choice((("+=", "0"), ("+=", "0"), ("*=", "1"), ("max=", "-0.5"), ("min=", "0.5")))
        total = "total[{0}]" if rows else "total[0]"
        add, keep = f"{total} {sign} {self.value(loops)}", f"scan[{{0}},{{1}}] = {total} * 2"
        body = [keep, add] if rng.random() < 0.3 else [add, keep]
        self.line(f"{n} {total} = {start}" if rows else f"{total} = {start}")
        self.line("\n".join([f"{n} {m}", *(f"| {line}" for line in body)]), 3)
        return "scan", [f"total f32 [{n if rows else 1}] heap", f"scan f32 [{n},{m}] heap"]

    def painted(self, rng: Random) -> tuple[str, list[str]]:
        """An array that is filled, and then written again: as a whole, in part, or with what it holds."""
        name = rng.choice(self.inputs)
        rows, *rest = self.shapes[name]
        after = "".join(f",{{{k + 1}}}" for k in range(len(rest)))
        way = rng.choice(("whole", "whole", "in part", "again"))
        self.line(f"{self.head((rows, *rest))}painted[{{0}}{after}] = 0.5")
        read = "painted" if way == "again" else name
        count = max(1, rows - 1) if way == "in part" else rows
        self.line(f"{self.head((count, *rest))}painted[{{0}}{after}] = {read}[{{0}}{after}] * 2")
        return "painted", [f"painted f32 [{','.join(map(str, (rows, *rest)))}] heap"]

    # -- pieces --------------------------------------------------------------------------------

    def line(self, text: str, statements: int = 0) -> None:
        self.lines.append(text)
        self.count += statements

    def new(self, shape: tuple[int, ...]) -> str:
        name = f"t{len(self.locals)}"
        self.shapes[name] = shape
        self.locals.append(name)
        return name

    def shape(self, least: int = 1, most: int = 3) -> tuple[int, ...]:
        return tuple(self.rng.choice(self.extents) for _ in range(self.rng.randint(least, most)))

    def subscript(self, size: int, loops: list[tuple[int, int]]) -> str:
        """A subscript within ``0 .. size - 1`` from ``loops`` (level, iterations)."""
        rng = self.rng
        fitting = [(level, n) for level, n in loops if n <= size]
        if not fitting or rng.random() < 0.08:
            return str(rng.randrange(size))
        level, n = rng.choice(fitting)
        exact = [f for f in fitting if f[1] == size]
        if exact and rng.random() < 0.8:
            level, n = rng.choice(exact)
        if self.whole_language and rng.random() < 0.12:
            return self.quotient(size, loops)
        choice = rng.random()
        if choice < 0.15:
            return f"{rng.randint(n - 1, size - 1)}-{{{level}}}"
        if choice < 0.3 and n < size:
            return f"{{{level}}}+{rng.randint(0, size - n)}"
        if choice < 0.4:
            for other, m in fitting:
                if other != level and n + m - 1 <= size:
                    return f"{{{level}}}+{{{other}}}"
        return f"{{{level}}}"

    def quotient(self, size: int, loops: list[tuple[int, int]]) -> str:
        """A subscript within ``0 .. size - 1`` that divides an iterator, or two of them as one."""
        rng = self.rng
        (level, n), (other, m) = rng.choice(loops), rng.choice(loops)
        dividend, count = f"{{{level}}}", n
        if rng.random() < 0.4:
            dividend, count = f"({{{level}}}*{m}+{{{other}}})", n * m
        divisor = -(-count // size)
        if divisor > 1 and rng.random() < 0.5:
            return f"{dividend}//{divisor}"
        return f"{dividend}%{rng.randint(1, size)}"

    def comparison(self, loops: list[tuple[int, int]], avoid: str) -> str:
        sign = self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
        if loops and self.rng.random() < 0.6:
            level, n = self.rng.choice(loops)
            return f"{{{level}}} {sign} {self.rng.randrange(n + 1)}"
        return f"{self.read(loops, avoid)} {sign} {self.read(loops, avoid)}"

    def read(self, loops: list[tuple[int, int]], avoid: str = "") -> str:
        names = [n for n in self.shapes if n != avoid]
        recent = names[-3:]
        name = self.rng.choice(recent if self.rng.random() < 0.6 else names)
        return f"{name}[{','.join(self.subscript(s, loops) for s in self.shapes[name])}]"

    def value(self, loops: list[tuple[int, int]], avoid: str = "", depth: int = 0) -> str:
        rng, choice = self.rng, self.rng.random()
        if depth > 2 or choice < 0.35:
            return self.read(loops, avoid)
        if choice < 0.42:
            return str(rng.choice((2, 3, 0.5, -1)))
        if choice < 0.47 and loops:
            return f"{{{rng.choice(loops)[0]}}}"
        left = self.value(loops, avoid, depth + 1)
        if self.whole_language and choice < 0.51:
            right = self.value(loops, avoid, depth + 1)
            return f"select({self.comparison(loops, avoid)}, {left}, {right})"
        if choice < 0.55:
            return f"{rng.choice(('exp', 'abs', '-'))}({left})"
        right = self.value(loops, avoid, depth + 1)
        if choice < 0.65:
            return f"{rng.choice(('max', 'min'))}({left}, {right})"
        if choice < 0.7:
            return f"({left}) / ({self.read(loops, avoid)})"
        return f"({left}) {rng.choice('+-*')} ({right})"

    @staticmethod
    def loops(shape: tuple[int, ...], start: int = 0) -> list[tuple[int, int]]:
        return [(start + k, n) for k, n in enumerate(shape)]

    @staticmethod
    def at(name: str, loops: list[tuple[int, int]]) -> str:
        return f"{name}[{','.join(f'{{{level}}}' for level, _ in loops)}]"

    @staticmethod
    def head(shape: tuple[int, ...]) -> str:
        return "".join(f"{n} " for n in shape)

    # -- nests ---------------------------------------------------------------------------------

    def elementwise(self) -> None:
        shape = self.shape()
        loops = self.loops(shape)
        value = self.value(loops)
        self.line(f"{self.head(shape)}{self.at(self.new(shape), loops)} = {value}", 1)

    def scalar(self) -> None:
        value = self.value([])
        self.line(f"{self.new((1,))}[0] = {value}", 1)

    def reduction(self) -> None:
        rng = self.rng
        shape, over = self.shape(1, 2), self.shape(1, 2)
        sign, start = rng.choice((("+=", "0"), ("+=", "0"), ("max=", "-inf"), ("min=", "inf"), ("*=", "1")))
        loops, inner = self.loops(shape), self.loops(over, len(shape))
        value = self.value(loops + inner)
        name = self.new(shape)
        target = self.at(name, loops)
        if rng.random() < 0.3:
            start = self.value(loops, avoid=name)
        if rng.random() < 0.5:
            self.line(f"{self.head(shape)}{target} = {start}")
            self.line(f"{self.head(shape)}{self.head(over)}{target} {sign} {value}", 2)
        else:
            self.line(self.head(shape).rstrip())
            self.line(f"| {target} = {start}")
            self.line(f"| {self.head(over)}{target} {sign} {value}", 2)

    def update(self) -> None:
        if not self.locals:
            return self.elementwise()
        name = self.rng.choice(self.locals[-3:])
        shape = self.shapes[name]
        loops = self.loops(shape)
        sign = self.rng.choice(("=", "=", "+=", "*="))
        self.line(f"{self.head(shape)}{self.at(name, loops)} {sign} {self.value(loops)}", 1)

    def overwrite(self) -> None:
        """Add a temporary that is written whole, partly written again from the other end, and read."""
        n = self.rng.choice(self.extents)
        value = self.value(self.loops((n,)))
        name = self.new((n,))
        self.line(f"{n} {name}[{{0}}] = {value}")
        self.line(f"{n} {name}[{n - 1}-{{0}}] = {self.value(self.loops((n,)))}", 2)

    def window(self) -> None:
        n, k = self.rng.choice(self.extents), self.rng.choice(self.extents)
        size = n + k - 1
        value = self.value([(0, n), (1, k)])
        name = self.new((size,))
        self.line(f"{size} {name}[{{0}}] = 0")
        self.line(f"{n} {k} {name}[{{0}}+{{1}}] {self.rng.choice(('+=', 'max='))} {value}", 2)

    def in_place(self) -> None:
        """Two steps of element-wise work, the second in the place of the first."""
        shape = self.shape(1, 2)
        loops, head = self.loops(shape), self.head(shape)
        values = [self.value(loops) for _ in range(2)]
        result = self.new(shape)
        first, second = names = [f"{result}_{k}" for k in "ab"]
        self.line(f"{head}{self.at(first, loops)} = {values[0]}", 1)
        self.line(f"{head}{self.at(second, loops)} = {self.at(first, loops)} * {values[1]}", 1)
        self.line(f"{head}{self.at(result, loops)} = {self.at(second, loops)}", 1)
        self.steps.append((names, shape))

    def statistic(self) -> None:
        """Rows summed and then squares summed around a value, or a maximum and then exponentials."""
        rng = self.rng
        n, k = rng.choice(self.extents), rng.choice(self.extents)
        loops = self.loops((n, k))
        element = self.new((n, k))
        self.line(f"{n} {k} {self.at(element, loops)} = {self.value(loops, avoid=element)}")
        first, second = self.new((n,)), self.new((n,))
        exponential = rng.random() < 0.65
        start, sign = ("-inf", "max=") if exponential else ("0", "+=")
        self.line(f"{n}\n| {first}[{{0}}] = {start}\n| {k} {first}[{{0}}] {sign} {element}[{{0}},{{1}}]")
        difference = f"({element}[{{0}},{{1}}] - {self.read(loops[:1], avoid=second)})"
        factor = self.read(loops[:1], avoid=second)
        term = f"exp{difference} * {factor}" if exponential else f"{difference} * {difference}"
        self.line(f"{n}\n| {second}[{{0}}] = 0\n| {k} {second}[{{0}}] += {term}", 4)

    def pair(self) -> None:
        """A temporary used inside one iteration, contracted already or not."""
        shape = self.shape(1, 2)
        loops = self.loops(shape)
        first = self.value(loops)
        temporary = self.new(shape)
        self.line(self.head(shape).rstrip())
        self.line(f"| {self.at(temporary, loops)} = {first}")
        second = self.value(loops, avoid=temporary)
        result = self.new(shape)
        self.line(f"| {self.at(result, loops)} = {self.at(temporary, loops)} + {second}", 2)

    # -- nests of the whole language -----------------------------------------------------------

    def condition(self, loops: list[tuple[int, int]]) -> str:
        """One or two conditions on the iterators; every other one never holds, or always does."""
        parts = []
        if self.rng.random() < 0.5:
            level, n = self.rng.choice(loops)
            return f"{{{level}}} {self.rng.choice(('>=', '>=', '>=', '<='))} {n}"
        for level, n in self.rng.sample(loops, min(len(loops), self.rng.randint(1, 2))):
            other, _ = self.rng.choice(loops)
            left = f"{{{level}}}" if self.rng.random() < 0.6 else f"{{{level}}}+{{{other}}}"
            parts.append(f"{left} {self.rng.choice(('>=', '<='))} {self.rng.randrange(n + 1)}")
        return " and ".join(parts)

    def conditional(self) -> None:
        """An array written as a whole, then again where a condition holds."""
        shape = self.shape()
        loops = self.loops(shape)
        start, again = self.value(loops), self.value(loops)
        target = self.at(self.new(shape), loops)
        together = self.rng.random() < 0.5
        sign = self.rng.choice(("=", "+=", "max="))
        if together:
            self.line(self.head(shape).rstrip())
            self.line(f"| {target} = {start}")
            self.line(f"| {target} {sign} {again} if {self.condition(loops)}", 2)
        else:
            self.line(f"{self.head(shape)}{target} = {start}")
            self.line(f"{self.head(shape)}{target} {sign} {again} if {self.condition(loops)}", 2)

    def padded(self) -> None:
        """A window over an array with one element of padding on either side."""
        names = [(a, s) for a, s in self.shapes.items() if len(s) == 1]
        if not names:
            return self.window()
        source, (n,) = self.rng.choice(names)
        name = self.new((n,))
        sign, start = self.rng.choice((("+=", "0"), ("max=", "-inf")))
        self.line(f"{n} {name}[{{0}}] = {start}")
        inside = f"{{0}}+{{1}} >= 1 and {{0}}+{{1}} <= {n}"
        self.line(f"{n} 3 {name}[{{0}}] {sign} {source}[{{0}}+{{1}}-1] if {inside}", 2)

    def integer(self) -> None:
        """Integers made of floats, worked on bit by bit, and turned back."""
        shape = self.shape(1, 2)
        loops = self.loops(shape)
        name = f"k{len(self.integers)}"
        value = f"{self.read(loops)} + {self.value(loops)}"
        self.integers[name] = shape
        here = self.at(name, loops)
        work = self.rng.choice(
            (f"{here} + {{0}}", f"and({here}, 255)", f"xor({here}, shl({here}, 3))", f"max({here}, -{{0}})",
             f"{here} / 3 - rem({here}, 5)", f"select({here} < 0, -{here}, shr({here}, 1))")
        )  # fmt: skip
        self.line(f"{self.head(shape)}{here} = i32(round({value}))")
        result = self.new(shape)
        self.line(f"{self.head(shape)}{self.at(result, loops)} = f32({work})", 2)

    def counted(self) -> None:
        """Integers summed up, or their extremes, from a number of their own dtype."""
        (n,), (m,) = self.shape(1, 1), self.shape(1, 1)
        name = f"k{len(self.integers)}"
        sign, start = self.rng.choice((("+=", "0"), ("max=", "-100"), ("min=", "100"), ("*=", "1")))
        term = f"i32(round({self.read([(0, n), (1, m)])} + {self.read([(0, n), (1, m)])}))"
        self.integers[name] = (n,)
        self.line(f"{n} {name}[{{0}}] = {start}")
        self.line(f"{n} {m} {name}[{{0}}] {sign} {term}")
        if self.rng.random() < 0.4:
            self.line(f"{n} {m} {name}[{{0}}] {self.rng.choice(('+=', 'max=', 'min='))} {{1}} - 1")
        self.line(f"{n} {self.at(self.new((n,)), [(0, n)])} = f32({name}[{{0}}])", 3)

    def filtered(self) -> None:
        """A short filter slides over a row, or over the rows of several channels that are summed up."""
        rng = self.rng
        outputs, taps, channels = rng.choice((2, 3)), rng.choice((2, 3)), rng.choice(((), (2,), (3,)))
        size = outputs + taps - 1
        names = []
        for shape in ((*channels, size), (*channels, taps)):
            loops = self.loops(shape)
            value = self.read(loops)
            names.append(self.new(shape))
            self.line(f"{self.head(shape)}{self.at(names[-1], loops)} = {value}", 1)
        window, tap = f"{{0}}+{{{1 + len(channels)}}}", f"{{{1 + len(channels)}}}"
        channel = "{1}," if channels else ""
        read = f"{names[0]}[{channel}{window}]"
        read = f"exp({read})" if rng.random() < 0.3 else read
        result = self.new((outputs,))
        self.line(f"{outputs} {result}[{{0}}] = 0")
        inner = self.head((*channels, taps))
        self.line(f"{outputs} {inner}{result}[{{0}}] += {read} * {names[1]}[{channel}{tap}]", 2)

    def gathered(self) -> None:
        """Elements of an input that integers choose, worked on one by one or summed up."""
        rng = self.rng
        shape = self.shape(1, 3)
        loops = self.loops(shape)
        sources = [name for name in self.inputs if name not in self.given_back]
        if not sources:
            return self.elementwise()
        source = rng.choice(sources)
        self.chosen_from.add(source)
        chosen = ",".join(self.choice(size, loops) for size in self.shapes[source])
        value = f"{source}[{chosen}]"
        if rng.random() < 0.6:
            value = f"{value} {rng.choice('+*')} {self.value(loops)}"
        if rng.random() < 0.6 or len(shape) == 1:
            self.line(f"{self.head(shape)}{self.at(self.new(shape), loops)} = {value}", 1)
        else:
            target = self.at(self.new(shape[:1]), loops[:1])
            self.line(f"{shape[0]}\n| {target} = 0\n| {self.head(shape[1:])}{target} += {value}", 2)

    def changed(self) -> None:
        """An input that the kernel changes in place: everywhere, in part, or where integers say."""
        rng = self.rng
        names = [name for name in self.inputs if name not in self.chosen_from]
        if not names:
            return self.elementwise()
        name = rng.choice(names)
        if name not in self.given_back:
            self.given_back.append(name)
        shape = self.shapes[name]
        loops = self.loops(shape)
        sign, value = rng.choice(("=", "+=", "*=", "max=")), self.value(loops)
        if rng.random() < 0.4:
            chosen = ",".join(self.choice(size, loops) for size in shape)
            return self.line(f"{self.head(shape)}{name}[{chosen}] {sign} {value}", 1)
        guard = f" if {self.condition(loops)}" if rng.random() < 0.3 else ""
        over = self.head(self.shape(1, 1)) if sign != "=" and rng.random() < 0.3 else ""
        self.line(f"{self.head(shape)}{over}{self.at(name, loops)} {sign} {value}{guard}", 1)

    def choice(self, size: int, loops: list[tuple[int, int]]) -> str:
        """A subscript within ``0 .. size - 1``, mostly one that an input of integers chooses."""
        rng = self.rng
        if rng.random() < 0.3:
            return self.subscript(size, loops)
        name = rng.choice([*self.indices, ""])
        if not name or rng.random() < 0.5:
            name = f"n{len(self.indices)}"
            self.indices[name] = (rng.choice(loops)[1],)
        (length,) = self.indices[name]
        index = f"{name}[{self.subscript(length, loops)}]"
        if rng.random() < 0.3:
            index = f"select({index} < 0, {index} + {size}, {index})"
        elif rng.random() < 0.3:
            index = f"{index} + {{{rng.choice(loops)[0]}}}"
        if size > 2 and rng.random() < 0.3:
            return f"clamp({index}, 0, {(size - 1) // 2})*2" + "+1" * (size % 2 == 0)
        level, n = rng.choice(loops)
        if n < size and rng.random() < 0.3:
            return f"clamp({index}, 0, {size - n})+{{{level}}}"
        return f"clamp({index}, 0, {size - 1})"

    # -- nests in which a value takes an unusual way ------------------------------------------------

    def mixed(self) -> None:
        """Two kinds of accumulation into the same cells, in one nest or one after the other."""
        (n,), (m,) = self.shape(1, 1), self.shape(1, 1)
        loops = [(0, n), (1, m)]
        first, second = self.rng.sample(("+=", "max=", "min=", "*="), 2)
        start, one, two = self.value(loops[:1]), self.value(loops), self.value(loops)
        target = self.at(self.new((n,)), loops[:1])
        self.line(f"{n} {target} = {start}")
        if self.rng.random() < 0.4:
            self.line(f"{n} {m}\n| {target} {first} {one}\n| {target} {second} {two}", 3)
        else:
            self.line(f"{n} {m} {target} {first} {one}\n{n} {m} {target} {second} {two}", 3)

    def kept(self) -> None:
        """A cell that only the first iteration writes and all read, and one that each iteration writes
        again."""
        n = self.rng.choice(self.extents)
        loops = self.loops((n,))
        own, kept = self.value(loops), self.value([])
        again, first = self.new((1,)), self.new((1,))
        result, other = self.new((n,)), self.new((n,))
        lines = [f"| {first}[0] = {kept} if {{0}} <= 0", f"| {result}[{{0}}] = {first}[0] * 2"]
        more = [f"| {again}[0] = {own}", f"| {other}[{{0}}] = {again}[0] + 1"]
        self.line("\n".join([str(n), *lines, *more]), 4)

    def last_only(self) -> None:
        """A sum that starts again in each iteration, so that only the last one is kept; then squares around
        it."""
        n, m = self.rng.choice(self.extents), self.rng.choice(self.extents)
        loops = self.loops((n, m))
        element = self.new((n, m))
        self.line(f"{n} {m} {self.at(element, loops)} = {self.value(loops, avoid=element)}")
        total, squares, centre = self.new((1,)), self.new((1,)), self.read([], avoid=element)
        self.line(f"{n}\n| {total}[0] = 0\n| {m} {total}[0] += {self.at(element, loops)}", 2)
        difference = f"({self.at(element, loops)} - {centre})"
        self.line(f"{squares}[0] = 0\n{n} {m} {squares}[0] += {difference} * {difference}", 3)

    def recurrence(self) -> None:
        """Each element from the one before, forwards or backwards."""
        n = self.rng.choice(self.extents)
        start, step = self.value([]), self.value([(0, n)])
        name = self.new((n + 1,))
        here, before = ("{0}+1", "{0}") if self.rng.random() < 0.6 else (f"{n - 1}-{{0}}", f"{n}-{{0}}")
        self.line(f"{n + 1} {name}[{{0}}] = {start}")
        self.line(f"{n} {name}[{here}] = {name}[{before}] * 0.5 + {step}", 2)

    def ahead(self) -> None:
        """A nest that reads all elements of an array while it overwrites them one by one."""
        n = self.rng.choice(self.extents)
        start, again = self.value([(0, n)]), self.value([(0, n)])
        name = self.new((n,))
        result = self.new((n, n))
        self.line(f"{n} {name}[{{0}}] = {start}")
        self.line(f"{n}\n| {name}[{{0}}] = {again}\n| {n} {result}[{{0}},{{1}}] = {name}[{{1}}]", 3)

    def aliased(self) -> None:
        """Two names of one buffer in one nest: one name writes a cell that the other reads, or has just
        read."""
        n = self.rng.choice(self.extents)
        start, step = self.value([(0, n)]), self.value([(0, n)])
        result = self.new((n,))
        first, second = names = [f"{result}_{k}" for k in "ab"]
        self.line(f"{n + 1} {first}[{{0}}] = {self.value([], avoid=result)}")
        if self.rng.random() < 0.5:
            self.line(f"{n} {second}[{{0}}+1] = {first}[{{0}}] + {step}")
            self.line(f"{n} {self.at(result, [(0, n)])} = {second}[{{0}}+1]", 3)
        else:
            self.line(f"{n}\n| {second}[0] = {step}\n| {result}[{{0}}] = {first}[0] * {start}", 3)
        self.steps.append((names, (n + 1,)))
