"""A move that copies the windows of a scope: elements that its iterations share are copied once."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import (
    LEVELS,
    Access,
    AffineExpr,
    Expression,
    Read,
)
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Rewritten
from perfdojo_sdk.core.program import Program, Statement, Touch
from perfdojo_sdk.core.transformation import (
    Analysed,
    Definition,
    Move,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.staging import (
    ARRAY,
    NAMED_CELLS,
    ONE_CONDITION,
    SMALLER,
    TOO_LARGE,
    Form,
    Slice,
    named_buffer,
    not_written,
    stage,
    with_reads,
)

Interval = tuple[int, int]


@frozen
class Window(Slice):
    """The elements that a scope reads of an array, as a range of each dimension that begins where iterators
    outside of the scope say. The form is that of a copy, in which an iterator for each range stands for all
    inside ones."""

    reads: tuple[Touch, ...]
    ranges: tuple[Interval, ...]
    """The least and the largest offset of each dimension, over all reads."""

    def element(self, name: str, access: Access) -> Access:
        """The element of the new buffer that stands for one that the scope reads."""
        inner = self.site.level
        forms = [
            _inside(form, inner).plus(AffineExpr(-low))
            for form, (low, high) in zip(access.subscripts, self.ranges, strict=True)
            if high > low
        ]
        return Access(name, (*[LEVELS[l] for l in self.form.outer], *forms))

    @lazy
    def whole(self) -> bool:
        """True if one of the reads goes through every element of the ranges, so that a copy reads nothing
        that the scope does not read."""
        outer = self.site.outer_sizes
        for touch in self.reads:
            sizes = outer + touch.sizes
            forms = [_inside(form, self.site.level) for form in touch.access.subscripts]
            used = [level for form in forms for level in form.levels]
            if len(used) == len({*used}) and all(
                form.bounds(sizes) == found and _without_gaps(form, sizes)
                for form, found in zip(forms, self.ranges, strict=True)
            ):
                return True
        return False


def _inside(form: AffineExpr, inner: int) -> AffineExpr:
    """The constant of a subscript and its terms of the iterators inside a scope."""
    return AffineExpr.affine(form.constant, tuple([(l, c) for l, c in form.terms if l >= inner]))


def _outside(form: AffineExpr, inner: int) -> AffineExpr:
    return form.plus(_inside(form, inner), -1)


def _without_gaps(form: AffineExpr, sizes: tuple[int, ...]) -> bool:
    """True if a sum of iterators takes every value between its bounds."""
    reach = 0
    for step, size in sorted((abs(c), sizes[level]) for level, c in form.terms):
        if step > reach + 1:
            return False
        reach += step * (size - 1)
    return True


def _unconditional(facts: Window) -> Refusal | None:
    for touch in facts.reads:
        if touch.statement.guard:
            return Refusal.of(touch.statement.id, "if", statement=touch.statement.text)
    return None


def _all_read(facts: Window) -> Refusal | None:
    if facts.whole:
        return None
    first = facts.reads[0]
    return Refusal.of(first.statement.id, first.access, arrays=(facts.array,), array=facts.array)


class StageWindow(Analysed[Window]):
    """Copy what the windows of a scope cover of an array into a new buffer, right before the scope.

    Where ``stage_read`` copies an element for each iteration that reads it, this copies it once: iterators
    that a subscript adds up share a dimension of the buffer.

    before:
        4
        | y[{0}] = 0
        | 3 y[{0}] += x[{0}*2+{1}]
    after: stage_window(s0, array=x)
        9 x_r[{0}] = x[{0}]
        4
        | y[{0}] = 0
        | 3 y[{0}] += x_r[{0}*2+{1}]
    """

    name = "stage_window"
    place = "scope"
    parameters = (ARRAY,)
    requirements = (
        Requirement(
            "PD-T711",
            "the scope does not read the array by windows",
            "{array} is read as {other}: {why}",
            "stage at an inner scope, or use stage_read",
            None,
            established_by=("fission_scope", "stage_read"),
        ),
        Requirement(
            "PD-T712",
            "windows leave elements out",
            "no read of {array} goes through all elements between the first and the last",
            "use stage_read, which copies what each iteration reads",
            _all_read,
            established_by=("stage_read",),
        ),
        Requirement(
            "PD-T713",
            "the scope writes the array",
            "{write} changes it after the copy would have been made",
            "stage at a scope that only reads the array",
            not_written,
            semantic=True,
            established_by=("fission_scope",),
        ),
        Requirement("PD-T714", *NAMED_CELLS, established_by=("set_location",)),
        Requirement("PD-T715", *TOO_LARGE, established_by=SMALLER),
        Requirement(
            "PD-T716",
            "elements are read under a condition",
            "{statement} reads some of them in some iterations only",
            "split the scopes so that the condition goes away",
            _unconditional,
            established_by=ONE_CONDITION,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for path, scope in program.scopes:
            for array in scope.read_arrays:
                reads = (t.access for t in scope.touches[array] if not t.writes)
                if any(len(_inside(f, len(path) - 1).terms) > 1 for a in reads for f in a.subscripts):
                    yield Move(self.name, scope.id, (("array", array),))

    def analyse(self, site: Site) -> Window | Refusal:
        array, inner, outer = site.move["array"], site.level, site.outer_sizes
        buffer = named_buffer(site, array)
        inside = Slice.touches(site, buffer)
        reads = tuple([t for t in inside if not t.writes and t.access.array == array])
        if not reads:
            why = "no statement inside reads it"
            head = site.scope.head
            return Refusal.of(site.scope.id, head, arrays=(array,), array=array, other="nothing", why=why)
        bases = [_outside(form, inner) for form in reads[0].access.subscripts]
        slides = False
        for touch in reads:
            for form, base in zip(touch.access.subscripts, bases, strict=True):
                slides = slides or len(_inside(form, inner).terms) > 1
                if _outside(form, inner) != base:
                    why = "windows begin at different places"
                elif any(level >= inner for part, _ in form.quotients for level in part.levels):
                    why = "a quotient or a run-time index holds an iterator of the scope"
                else:
                    continue
                other = touch.access.text
                return Refusal.of(touch.statement.id, touch.access, array=array, other=other, why=why)
        if not slides:
            why, read = "no subscript adds up iterators of the scope", reads[0]
            other = read.access.text
            return Refusal.of(read.statement.id, read.access, array=array, other=other, why=why)
        bounds = [
            [_inside(form, inner).bounds(outer + touch.sizes) for form in touch.access.subscripts]
            for touch in reads
        ]
        ranges = [(min(l for l, _ in found), max(h for _, h in found)) for found in zip(*bounds, strict=True)]
        above = sorted({level for base in bases for level in base.levels})
        subscripts: list[AffineExpr] = []
        sizes: list[int] = []
        for base, (low, high) in zip(bases, ranges, strict=True):
            subscript = base.plus(AffineExpr(low))
            if high > low:
                subscript = subscript.plus(LEVELS[inner + len(sizes)])
                sizes.append(high - low + 1)
            subscripts.append(subscript)
        copy = Form(inner, tuple(above), tuple(sizes), tuple(subscripts))
        return Window(site, array, buffer, inside, copy, reads, tuple(ranges))

    def rewrite(self, facts: Window, /) -> Rewritten:
        array, buffer, form = facts.array, facts.new_buffer("r"), facts.form

        def value(e: Expression) -> Expression:
            if isinstance(e, Read) and e.access.array == array:
                return Read(facts.element(buffer.name, e.access), e.dtype)
            return e

        def change(statement: Statement) -> Statement:
            return with_reads(statement, value)

        source = Read(Access(array, form.subscripts), facts.buffer.dtype)
        copy = Statement(Access(buffer.name, form.element), source, None, facts.buffer.dtype)
        return stage(facts, buffer, copy, None, change)

    def relation(self, facts: Window, result: Program, /) -> Relation:
        return dict.fromkeys(self.rewrite(facts).made.statements, Definition())


MOVES = (StageWindow(),)
