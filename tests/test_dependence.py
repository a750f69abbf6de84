"""The dependence test that offers moves, against all pairs of iterations of small nests."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from snippets import RULES, move, program

from perfdojo_sdk.core.dependence import may_meet
from perfdojo_sdk.core.expression import Access, AffineExpr, Quotient
from perfdojo_sdk.core.program import Statement
from perfdojo_sdk.core.reaching import Spot, matching_instance, one_instance_each
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import Step

BUFFER = Buffer("x", "f32", (Dimension(10**6),), "heap", ("x",))
RELATED = {
    "=": lambda a, b: a == b, "<": lambda a, b: a < b, ">": lambda a, b: a > b, "*": lambda a, b: True,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_what_it_calls_apart_never_meets(seed: int) -> None:
    rng, cautious, apart = Random(seed), 0, 0
    for _ in range(1500):
        depth = rng.randint(1, 3)
        shared = rng.randint(0, depth)
        ours = [rng.randint(1, 4) for _ in range(depth)]
        theirs = ours[:shared] + [rng.randint(1, 4) for _ in range(depth - shared)]

        def form(constant: int) -> AffineExpr:
            return AffineExpr.of(
                {l: rng.choice([0, 1, 2, 3, 4, 6, 8, -1, -2]) for l in range(depth)},  # noqa: B023
                constant,
            )

        one = form(rng.randint(0, 6))
        other = rng.choice([form(rng.randint(0, 6)), one, AffineExpr.of(dict(one.terms), rng.randint(0, 6))])
        signs = "".join(rng.choice("=<>*") for _ in range(shared))
        found = may_meet(BUFFER, Access("x", (one,)), ours, Access("x", (other,)), theirs, signs)
        meet = any(
            one.evaluate(i) == other.evaluate(j)
            for i in product(*map(range, ours))
            for j in product(*map(range, theirs))
            if all(RELATED[sign](i[l], j[l]) for l, sign in enumerate(signs))
        )
        assert found or not meet, (one, other, ours, theirs, signs)
        cautious, apart = cautious + (found and not meet), apart + (not found)
    assert cautious < apart / 10


def random_form(rng: Random, sizes: list[int]) -> AffineExpr:
    """An affine form, a quotient, a remainder, or a sum of such, over iterators of these sizes."""
    coefficients = (0, 0, 1, 1, 2, 3, 4, -1, -2)
    form = AffineExpr.of({l: rng.choice(coefficients) for l in range(len(sizes))}, rng.randint(0, 4))
    if rng.random() < 0.3:
        return form
    dividend = AffineExpr.of({l: rng.choice((0, 1, 1, 2, 4)) for l in range(len(sizes))}, rng.randint(0, 3))
    divisor = rng.randint(1, 5)
    quotient = Quotient.of(dividend, divisor, rng.random() < 0.5, sizes)
    choice = rng.random()
    if choice < 0.5:
        return quotient
    if choice < 0.75:
        return quotient.plus(AffineExpr.of({}, rng.randint(0, 2)), rng.choice((1, 2, -1)))
    return quotient.plus(form)


def digits(rng: Random, sizes: list[int]) -> list[AffineExpr]:
    """Quotient and remainder of one number by one divisor, as collapsed loops leave them."""
    number = AffineExpr.of({l: rng.choice((0, 1, 2, 3, 4, 8)) for l in range(len(sizes))}, rng.randint(0, 2))
    divisor = rng.randint(2, 5)
    return [Quotient.of(number, divisor, remainder, sizes) for remainder in (False, True)]


def subscripts_of_two(
    rng: Random, ours: list[int], theirs: list[int]
) -> tuple[list[AffineExpr], list[AffineExpr]]:
    """Subscripts of one buffer in two places, often alike."""
    if rng.random() < 0.4:
        one = digits(rng, ours)
        return one, rng.choice((one, digits(rng, theirs))) if ours == theirs else digits(rng, theirs)
    dimensions = rng.randint(1, 2)
    one, other = ([random_form(rng, sizes) for _ in range(dimensions)] for sizes in (ours, theirs))
    return one, one if ours == theirs and rng.random() < 0.4 else other


def buffer_of(forms: list[AffineExpr], sizes: list[int], rng: Random) -> Buffer:
    """Just as large as the forms need, or much larger; now and then with a dimension that is not
    materialised."""
    dimensions = []
    for form in forms:
        size = max(form.bounds(sizes)[1], 0) + 1 if rng.random() < 0.6 else 10**6
        dimensions.append(Dimension(size, "N" if rng.random() < 0.15 else ""))
    return Buffer("x", "f32", tuple(dimensions), "heap", ("x",))


@pytest.mark.parametrize("seed", range(4))
def test_quotients_that_it_calls_apart_never_meet(seed: int) -> None:
    rng, cautious, apart, together = Random(seed), 0, 0, 0
    for _ in range(1500):
        depth = rng.randint(1, 3)
        shared = rng.randint(0, depth)
        ours = [rng.randint(1, 4) for _ in range(depth)]
        theirs = ours[:shared] + [rng.randint(1, 4) for _ in range(depth - shared)]
        one, other = subscripts_of_two(rng, ours, theirs)
        buffer = buffer_of(one, ours, rng)
        signs = "".join(rng.choice("=<>*") for _ in range(shared))
        found = may_meet(buffer, Access("x", tuple(one)), ours, Access("x", tuple(other)), theirs, signs)
        meet = any(
            all(one[k].evaluate(i) == other[k].evaluate(j) for k in buffer.materialised)
            for i in product(*map(range, ours))
            for j in product(*map(range, theirs))
            if all(RELATED[sign](i[l], j[l]) for l, sign in enumerate(signs))
        )
        assert found or not meet, (buffer, one, other, ours, theirs, signs)
        cautious, apart, together = cautious + (found and not meet), apart + (not found), together + meet
    assert apart > 150 and together > 150, "there is something to tell apart"
    assert cautious < apart, "it says more than that everything may meet"


def test_cells_of_joined_loops_are_told_apart_behind_a_constant() -> None:
    """The last 5 of 50 iterations over rows of 7: ``{0}+45`` is ``({0}+3)//7+6`` and its remainder."""
    sizes, number = [5], AffineExpr.of({0: 1}, 3)
    row = Quotient.of(number, 7, False, sizes).plus(AffineExpr.of({}, 6))
    access = Access("x", (row, Quotient.of(number, 7, True, sizes)))
    buffer = Buffer("x", "f32", (Dimension(8), Dimension(7)), "heap", ("x",))
    assert not may_meet(buffer, access, sizes, access, sizes, "<")
    rows_only = Buffer("x", "f32", (Dimension(8), Dimension(7, "N")), "heap", ("x",))
    assert may_meet(rows_only, access, sizes, access, sizes, "<")


def spot_of(path: tuple[int, ...], sizes: list[int], text: str) -> Spot:
    """A statement of that text somewhere; only where it stands and what is around it count."""
    statement = next(leaf.statement for leaf in program(text).body[0].leaves)
    assert isinstance(statement, Statement)
    return Spot(statement, path, tuple(sizes))


@pytest.mark.parametrize("seed", range(4))
def test_an_instance_that_it_finds_wrote_what_is_read(seed: int) -> None:
    rng, solved = Random(seed), 0
    for _ in range(1500):
        common = rng.randint(0, 1)
        around = [rng.randint(1, 4) for _ in range(common)]
        ours = around + [rng.randint(1, 4) for _ in range(rng.randint(1, 2))]
        theirs = around + [rng.randint(1, 4) for _ in range(rng.randint(0, 2))]
        written = digits(rng, ours) if rng.random() < 0.5 else [random_form(rng, ours) for _ in range(2)]
        read = digits(rng, theirs) if rng.random() < 0.5 else [random_form(rng, theirs) for _ in range(2)]
        if rng.random() < 0.5:  # the writer's iterators in another order, or moved on
            forms = [
                AffineExpr.of({rng.randrange(len(theirs)): 1} if theirs else {}, rng.randint(0, 1))
                for _ in ours
            ]
            forms[:common] = [AffineExpr.level(level) for level in range(common)]
            written = [form for form in written if not form.quotients]
            read = [form.substitute(forms.__getitem__) for form in written]
        path = (0,) * common
        first = spot_of((*path, 0, *[0] * len(ours)), ours, "2 y[{0}] = x[{0}]")
        second = spot_of((*path, 1, *[0] * len(theirs)), theirs, "2 z[{0}] = y[{0}]")
        found = matching_instance(written, first, read, second)
        if found is None:
            continue
        solved += 1
        for j in product(*map(range, theirs)):
            i = [form.evaluate(j) for form in found]
            assert i[:common] == list(j[:common])
            assert all(0 <= k < size for k, size in zip(i, ours, strict=True)), (written, read, found)
            pairs = zip(written, read, strict=True)
            assert all(w.evaluate(i) == r.evaluate(j) for w, r in pairs), (written, read, found)
    assert solved > 50


@pytest.mark.parametrize("seed", range(4))
def test_one_instance_each_is_meant(seed: int) -> None:
    rng, single = Random(seed), 0
    for _ in range(1500):
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        subscripts = digits(rng, sizes) if rng.random() < 0.4 else [random_form(rng, sizes) for _ in range(2)]
        buffer = buffer_of(subscripts, sizes, rng)
        start = rng.randrange(len(sizes))
        at = spot_of((0,) * len(sizes), sizes, "2 y[{0}] = x[{0}]")
        levels = range(start, len(sizes))
        if not one_instance_each(buffer, Access("x", tuple(subscripts)), at, levels):
            continue
        single += 1
        seen: set[tuple[object, ...]] = set()
        for i in product(*map(range, sizes)):
            cell = (i[:start], *(subscripts[k].evaluate(i) for k in buffer.materialised))
            assert cell not in seen, (subscripts, sizes, start)
            seen.add(cell)
    assert single > 100


@pytest.mark.parametrize(
    "text",
    [
        "8 4 y[{0}+{1}*8] = x[{0},{1}]",
        "4 4 y[{0}*4+{1}] = x[{0},{1}]",
        "y f32 [32] heap\n8 4 y[{1}*8-{0}+7] = x[{0},{1}]",
        "8 2 4 y[{0}+{1}*8+{2}*16] = x[{0},{1},{2}]",
    ],
)
def test_digits_of_a_number_are_independent(text: str) -> None:
    """Whichever digit the loop is: the others make multiples of something that it does not reach."""
    assert isinstance(RULES.attempt(program(text), move("annotate_scope(s0, suffix=p)")), Step)


def test_overlapping_digits_are_not() -> None:
    start = program("8 4 y[{0}+{1}*7] = x[{0},{1}]")
    assert not isinstance(RULES.attempt(start, move("annotate_scope(s0, suffix=p)")), Step)


@pytest.mark.parametrize(
    ("subscripts", "apart"),
    [
        ("{0}//12,({0}%12)//4,({0}%12)%4", True),
        ("({0}%12)%4,{0}//12,({0}%12)//4", True),
        ("({0}%12)//4,({0}%12)%4,{0}%2", False),
        ("{0}//8,({0}%12)//4,({0}%12)%4", False),
    ],
)
def test_a_number_is_known_by_its_digits(subscripts: str, apart: bool) -> None:
    """A remainder that is taken apart itself is known by its parts; the answer is right, or cautious."""
    start = program(f"24 y[{subscripts}] = x[{{0}}]")
    statement = start.body[0].leaves[0].statement
    cells = {tuple(form.evaluate((k,)) for form in statement.target.subscripts) for k in range(24)}
    assert not apart or len(cells) == 24
    assert isinstance(RULES.attempt(start, move("annotate_scope(s0, suffix=p)")), Step) == apart
