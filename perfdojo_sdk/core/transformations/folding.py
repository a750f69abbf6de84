"""A move that puts what is known of a table in the place of a read of it."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, integer_bounds
from perfdojo_sdk.core.expression import (
    INDEX_DTYPE,
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Read,
    map_expression,
)
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import beyond_reach, index_values
from perfdojo_sdk.core.known_elements import (
    MOST_ITERATIONS,
    Run,
    beyond,
    foreign_read,
    iterations,
    lookups_and_reads,
    run_of,
)
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.tokens import MAX_NUMBER
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Instance,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.inlining import NOT_ALLOWED, in_its_place, well_formed
from perfdojo_sdk.core.transformations.scopes import levels
from perfdojo_sdk.core.validate import takes_no_dtype

#: Every whole number up to this one is a value of every float dtype.
_EXACT = 2**8


@frozen
class Folding(Facts):
    """A run-time index or a read of a statement that is made of tables alone, and what is known of it."""

    old: Lookup | Read

    @property
    def value(self) -> Expression:
        """The expression whose values are known."""
        return self.old.value if isinstance(self.old, Lookup) else self.old

    @lazy
    def run(self) -> Run:
        return run_of(self.site.program, self.value, self.site.outer_sizes)

    @property
    def number(self) -> Expression:
        """The number that stands for a read."""
        run, dtype = self.run, self.value.dtype
        if run.constant is not None:
            return Literal(run.constant, dtype)
        return IndexValue(run.form, dtype)

    @lazy
    def converted(self) -> Expression | None:
        """The same as a conversion of an integer, where no neighbour says the dtype; None if it is none."""
        run, dtype = self.run, self.value.dtype
        floats = dtype in FLOAT_DTYPES
        low, high = (-_EXACT, _EXACT) if floats else integer_bounds(INDEX_DTYPE)
        if run.constant is None:
            return Cast(IndexValue(run.form, INDEX_DTYPE), dtype)
        whole = int(run.constant)
        if whole != run.constant or not low <= whole <= high or str(run.constant) == "-0.0":
            return None
        return Cast(Literal(whole, INDEX_DTYPE), dtype)

    @lazy
    def folded(self) -> Statement | None:
        """The statement after the move; None where its text would not say a dtype."""
        statement = self.site.statement
        if isinstance(self.old, Lookup):
            target = _without(statement.target, self.old, self.run.form)
            return statement.with_parts(target, self._put(statement.value, self.number))
        found = statement.with_parts(statement.target, self._put(statement.value, self.number))
        open_terms = [term for term in found.value.terms if takes_no_dtype(term)]
        if not open_terms:
            return found
        # A float that is converted to another dtype keeps the place where it is rounded.
        float_in_cast = self.value.dtype in FLOAT_DTYPES and any(isinstance(t, Cast) for t in open_terms)
        if self.converted is None or float_in_cast:
            return None
        found = statement.with_parts(statement.target, self._put(statement.value, self.converted))
        return None if any(map(takes_no_dtype, found.value.terms)) else found

    def _put(self, value: Expression, number: Expression) -> Expression:
        """A value with ``number`` for the read, or the run's form for the run-time index."""
        old, form = self.old, self.run.form

        def leaf(found: Expression) -> Expression:
            if found == old:
                return number
            if isinstance(found, Read) and isinstance(old, Lookup):
                return Read(_without(found.access, old, form), found.dtype)
            return found

        return map_expression(value, leaf)

    @lazy
    def program(self) -> Program:
        """The program after the move."""
        assert self.folded is not None
        return self.site.replaced((self.folded,))


def _without(access: Access, lookup: Lookup, form: AffineExpr) -> Access:
    """The access with a form in the place of a run-time index."""

    def subscript(old: AffineExpr) -> AffineExpr:
        factor = dict(old.quotients).get(lookup)
        if factor is None:
            return old
        kept = tuple([(part, c) for part, c in old.quotients if part != lookup])
        return AffineExpr.of(old.coefficients, old.constant, kept).plus(form, factor)

    return Access(access.array, tuple(map(subscript, access.subscripts)))


def _one_run(facts: Folding) -> Refusal | None:
    run, site = facts.run, facts.site
    if run.broken is None:
        return None
    level, at, found = run.broken
    scope = site.above[level]
    expected = "it would go on in equal steps" if run.form.terms else f"it was {run.constant} before"
    return Refusal.of(
        site.statement.id,
        facts.old.text,
        arrays=tuple(sorted({read.array for read in facts.value.reads})),
        iterator=scope.id,
        value=facts.old.text,
        found=found,
        level=f"{{{level}}}",
        cut=at,
        scope=scope.id,
        expected=expected,
    )


def _dtype_said(facts: Folding) -> Refusal | None:
    if facts.folded is not None:
        return None
    number, statement = facts.number, facts.site.statement
    return Refusal.of(
        statement.id, facts.old.text, number=number.text, dtype=number.dtype, value=statement.value.text
    )


def _well_formed(facts: Folding) -> Refusal | None:
    site, statement = facts.site, facts.folded
    assert statement is not None
    for form in beyond_reach(facts.program, statement, site.outer_sizes):
        return Refusal.of(site.statement.id, facts.old.text, what=f"{form.text} takes numbers above 2**56")
    for form in _written(statement):
        factors = [factor for _, factor in (*form.terms, *form.quotients)]
        if max(map(abs, (form.constant, *factors))) > MAX_NUMBER:
            return Refusal.of(
                site.statement.id, facts.old.text, what=f"{form.text} has a number above 2**31-1"
            )
    return well_formed(site, facts.program, (in_its_place(site, statement),))


def _written(statement: Statement) -> Iterator[AffineExpr]:
    """The forms in the text of a statement."""
    for access in (statement.target, *statement.every_read):
        yield from access.subscripts
    yield from (value.index for value in index_values(statement.value))


class FoldTable(Analysed[Folding]):
    """Write what is known of a table's elements in the place of a read of it.

    Where all iterations read one constant, that is the constant; where integers go in equal steps, it is a
    form of the iterators. A run-time index made of tables alone is replaced as a whole, with its ``clamp``.
    Every iteration of the loops around counts, those that a condition leaves out as well. A loop is cut
    with ``split_range`` where another run begins.

    before:
        x f32 [9] heap
        order table i32 [4] = {1, 3, 5, 7}
        4 y[{0}] = x[order[{0}]]
    after: fold_table(c0, read=0)
        4 y[{0}] = x[{0}*2+1]
    """

    name = "fold_table"
    place = "statement"
    parameters = (
        Parameter("read", int, "which run-time index with a table, or read of one, in the order of the text"),
    )
    requirements = (
        Requirement(
            "PD-T651",
            "no table is read there",
            "{statement} has {count} different run-time indices and reads of tables, and no number {read}",
            "count them from 0 in the order of the text, the target first",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T652",
            "the caller chooses, too",
            "{value} depends on {access}, which is no table",
            "make it a table if its elements never change",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T653",
            "not every iteration reads an element",
            "{access} may lie outside of the table in an iteration that the condition leaves out",
            "play the move before a condition is made, or cut the iterations off with split_range",
            None,
            established_by=("split_range",),
        ),
        Requirement(
            "PD-T654",
            "there are too many iterations to look at",
            "{value} has to be known in {count} iterations, {most} are looked at",
            "cut the loops with split_range, or split them so that fewer iterators choose",
            None,
            established_by=("split_range",),
        ),
        Requirement(
            "PD-T655",
            "the elements are no run of equal steps",
            "{value} is {found} where {level} is {cut}, and {expected}",
            "split_range({scope}, at={cut}) cuts the loop where another run begins",
            _one_run,
            semantic=True,
            established_by=("split_range",),
        ),
        Requirement(
            "PD-T656",
            "the text would no longer say the dtype",
            "nothing in {value} would say that {number} is {dtype}",
            "keep the table: its dtype is what the number is read in",
            _dtype_said,
            established_by=NO_MOVE,
        ),
        Requirement("PD-T657", *NOT_ALLOWED, _well_formed, established_by=("set_location",)),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        if program.tables:
            for node, *_ in program.places:
                count = len(lookups_and_reads(program, node)) if isinstance(node, Statement) else 0
                for read in range(count):
                    yield Move(self.name, node.id, (("read", read),))

    def analyse(self, site: Site) -> Folding | Refusal:
        statement, number, program = site.statement, site.move["read"], site.program
        found = lookups_and_reads(program, statement)
        if not 0 <= number < len(found):
            return Refusal.of(
                statement.id, statement=statement.text, count=len(found), read=number, code="PD-T651"
            )
        facts = Folding(site, found[number])
        mark = facts.old.text
        if (foreign := foreign_read(program, facts.value)) is not None:
            return Refusal.of(statement.id, mark, access=foreign.access, value=mark, code="PD-T652")
        if (outside := beyond(program, facts.value, site.outer_sizes)) is not None:
            return Refusal.of(statement.id, mark, access=outside.access, code="PD-T653")
        count = iterations(facts.value, site.outer_sizes)
        if count > MOST_ITERATIONS:
            return Refusal.of(
                statement.id, mark, value=mark, count=count, most=MOST_ITERATIONS, code="PD-T654"
            )
        return facts

    def rewrite(self, facts: Folding, /) -> Program:
        return facts.program

    def relation(self, facts: Folding, result: Program, /) -> Relation:
        statement = facts.site.statement.id
        return {statement: Instance(statement, levels(facts.site.level), of_tables=True)}


MOVES = (FoldTable(),)
