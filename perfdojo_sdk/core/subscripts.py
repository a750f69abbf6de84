"""Subscripts and conditions: integer forms of the iterators, affine but for quotients and lookups.

Iterators are named by *level*: ``{0}`` is the outermost scope around a statement, ``{1}`` the next. A part
that is not affine is a :class:`Part`: a quotient, or a lookup of ``lookups.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import ClassVar, Protocol, TypeAlias

from perfdojo_sdk.core.frozen import frozen, lazy

_TEXT = attrgetter("text")

#: Most scopes around a statement.
MAX_DEPTH = 64


class Part(Protocol):
    """A part of a form that is not affine: a function of the iterators, with a range."""

    @property
    def text(self) -> str: ...

    @property
    def levels(self) -> frozenset[int]:
        """The levels whose iterators it depends on."""

    @property
    def weight(self) -> int: ...

    @property
    def least(self) -> float: ...

    @property
    def most(self) -> int | None: ...

    def substitute(
        self, levels: Callable[[int], AffineExpr], sizes: Sequence[int] | None = None
    ) -> AffineExpr: ...

    def bounds(self, sizes: Sequence[int]) -> tuple[int, int]: ...

    def reach(self, sizes: Sequence[int]) -> int: ...


@frozen
class Quotient:
    """``dividend // divisor``, or ``dividend % divisor``; a dividend is never negative."""

    dividend: AffineExpr
    divisor: int
    remainder: bool = False

    @lazy
    def text(self) -> str:
        form = self.dividend
        bare = not form.constant and not form.quotients and [c for _, c in form.terms] == [1]
        dividend = form.text if bare else f"({form.text})"
        return f"{dividend}{'%' if self.remainder else '//'}{self.divisor}"

    @staticmethod
    def of(
        dividend: AffineExpr, divisor: int, remainder: bool, sizes: Sequence[int] | None = None
    ) -> AffineExpr:
        """The form of ``dividend // divisor`` or ``dividend % divisor``, simplified.

        Whole multiples of the divisor leave the dividend as long as what stays is evidently not
        negative. ``sizes`` (of the scopes around) bound what stays more closely, if they are given.
        """
        whole = {l: c for l, c in dividend.terms if c % divisor == 0}
        rest = AffineExpr.of(
            {l: c for l, c in dividend.terms if l not in whole},
            dividend.constant % divisor,
            dividend.quotients,
        )
        if rest.least < 0:
            whole, rest = {}, dividend
        quotient = AffineExpr.of(
            {l: c // divisor for l, c in whole.items()}, (dividend.constant - rest.constant) // divisor
        )
        most = rest.most if sizes is None else rest.bounds(sizes)[1]
        if most is not None and most < divisor and rest.least >= 0:
            return rest if remainder else quotient
        stays = AffineExpr.of({}, 0, ((Quotient(rest, divisor, remainder), 1),))
        return stays if remainder else quotient.plus(stays)

    @property
    def levels(self) -> frozenset[int]:
        return self.dividend.levels

    def substitute(
        self, levels: Callable[[int], AffineExpr], sizes: Sequence[int] | None = None
    ) -> AffineExpr:
        """The form with every iterator ``{l}`` replaced by ``levels(l)``."""
        return Quotient.of(self.dividend.substitute(levels, sizes), self.divisor, self.remainder, sizes)

    @lazy
    def weight(self) -> int:
        return self.dividend.weight + self.divisor

    #: Lower bound whatever the sizes are: no dividend is negative.
    least: ClassVar[float] = 0.0

    @property
    def most(self) -> int | None:
        """Upper bound whatever the sizes are, or None."""
        return self.divisor - 1 if self.remainder else None

    def bounds(self, sizes: Sequence[int]) -> tuple[int, int]:
        """A range that holds every value when ``{l}`` runs over ``0 .. sizes[l] - 1``."""
        low, high = self.dividend.bounds(sizes)
        if not self.remainder:
            return low // self.divisor, high // self.divisor
        if low // self.divisor == high // self.divisor:
            return low % self.divisor, high % self.divisor
        return 0, self.divisor - 1

    def reach(self, sizes: Sequence[int]) -> int:
        """A bound on the size of every number that occurs while a value is computed."""
        return max(self.dividend.reach(sizes), self.divisor)


Quotients: TypeAlias = tuple[tuple[Part, int], ...]
_NO_QUOTIENTS: Quotients = ()


@frozen
class AffineExpr:
    """A form ``constant + sum(coefficient * {level}) + sum(coefficient * part)``.

    Terms ascend by level, ``quotients`` (every part that is not affine) by their text; no coefficient is 0.
    Nearly all forms are affine and have none.
    """

    constant: int = 0
    terms: tuple[tuple[int, int], ...] = ()
    quotients: Quotients = ()

    @staticmethod
    def of(coefficients: Mapping[int, int], constant: int = 0, quotients: Quotients = ()) -> AffineExpr:
        """The form with these coefficients; equal affine forms are one object as a rule.

        Moves make the same few forms many times; sharing one object also shares what it has computed
        (its text, its coefficients).
        """
        if quotients:
            found, whole = _collected(quotients)
            if whole is not None:
                return whole.plus(AffineExpr.of(coefficients, constant, found))
        terms = tuple(sorted(filter(_COEFFICIENT, coefficients.items())))
        return AffineExpr(constant, terms, found) if quotients else AffineExpr.affine(constant, terms)

    @staticmethod
    def affine(constant: int, terms: tuple[tuple[int, int], ...]) -> AffineExpr:
        """The form without quotients that has these terms, which ascend."""
        known = _FORMS.get((constant, terms))
        if known is None:
            if len(_FORMS) >= _MOST_FORMS:
                _FORMS.clear()
            known = _FORMS[constant, terms] = AffineExpr(constant, terms)
        return known

    @staticmethod
    def level(level: int) -> AffineExpr:
        return LEVELS[level]

    @property
    def divisions(self) -> tuple[tuple[Quotient, int], ...]:
        """The quotients among the parts that are not affine, with their coefficients."""
        return tuple([(part, c) for part, c in self.quotients if isinstance(part, Quotient)])

    @lazy
    def coefficients(self) -> Mapping[int, int]:
        """Level -> its coefficient in the affine part."""
        return dict(self.terms)

    @lazy
    def levels(self) -> frozenset[int]:
        """Every level that the form depends on, inside quotients too."""
        inside = [part.levels for part, _ in self.quotients]
        return frozenset(self.coefficients).union(*inside)

    @lazy
    def highest(self) -> int:
        """The innermost of :attr:`levels`; -1 for a constant."""
        return max(self.levels, default=-1) if self.quotients else self.terms[-1][0] if self.terms else -1

    @lazy
    def text(self) -> str:
        parts = [_term(f"{{{level}}}", coefficient) for level, coefficient in self.terms]
        parts += [_term(quotient.text, coefficient) for quotient, coefficient in self.quotients]
        if self.constant or not parts:
            parts.append(f"{self.constant:+d}")
        return "".join(parts).removeprefix("+")

    def plus(self, other: AffineExpr, factor: int = 1) -> AffineExpr:
        """The form plus ``factor`` times another."""
        total = dict(self.terms)
        for level, coefficient in other.terms:
            total[level] = total.get(level, 0) + factor * coefficient
        added = tuple([(q, factor * c) for q, c in other.quotients])
        return AffineExpr.of(total, self.constant + factor * other.constant, self.quotients + added)

    def substitute(
        self, levels: Callable[[int], AffineExpr], sizes: Sequence[int] | None = None
    ) -> AffineExpr:
        """Replace every iterator ``{l}`` by the form ``levels(l)``.

        ``sizes``, of the scopes around the new form, help to simplify its quotients.
        """
        if len(self.terms) == 1 and not self.quotients:
            level, coefficient = self.terms[0]
            if coefficient == 1 and not self.constant:
                return levels(level)
        constant, quotients = self.constant, _NO_QUOTIENTS
        total: dict[int, int] = {}
        for level, coefficient in self.terms:
            form = levels(level)
            constant += coefficient * form.constant
            for inner, inner_coefficient in form.terms:
                total[inner] = total.get(inner, 0) + coefficient * inner_coefficient
            if form.quotients:
                quotients += tuple([(q, coefficient * c) for q, c in form.quotients])
        made = AffineExpr.of(total, constant, quotients)
        for old, coefficient in self.quotients:
            made = made.plus(old.substitute(levels, sizes), coefficient)
        return made

    def shifted(self, level: int, by: int) -> AffineExpr:
        """Replace the iterator ``{level}`` by ``{level} + by``."""
        if self.quotients:
            return self.substitute(lambda l: AffineExpr(by, ((l, 1),)) if l == level else LEVELS[l])
        factor = self.coefficients.get(level)
        return self if factor is None else AffineExpr.affine(self.constant + factor * by, self.terms)

    def evaluate(self, iterators: Sequence[int]) -> int:
        value = self.constant + sum(c * iterators[l] for l, c in self.terms)
        for quotient, coefficient in self.quotients:
            assert isinstance(quotient, Quotient), "the value of a lookup is in memory"
            whole, rest = divmod(quotient.dividend.evaluate(iterators), quotient.divisor)
            value += coefficient * (rest if quotient.remainder else whole)
        return value

    def bounds(self, sizes: Sequence[int]) -> tuple[int, int]:
        """A range that holds every value when ``{l}`` runs over ``0 .. sizes[l] - 1``.

        Both ends are met when the form is affine.
        """
        low = high = self.constant
        for level, coefficient in self.terms:
            reach = coefficient * (sizes[level] - 1)
            if reach < 0:
                low += reach
            else:
                high += reach
        for quotient, coefficient in self.quotients:
            ends = [coefficient * end for end in quotient.bounds(sizes)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def reach(self, sizes: Sequence[int]) -> int:
        """A bound on the size of every number that occurs while a value is computed, in whatever order terms
        are added: products, sums, dividends and divisors."""
        total = abs(self.constant)
        largest = 0
        for level, coefficient in self.terms:
            total += abs(coefficient) * (sizes[level] - 1)
        for quotient, coefficient in self.quotients:
            total += abs(coefficient) * max(map(abs, quotient.bounds(sizes)))
            largest = max(largest, quotient.reach(sizes))
        return max(total, largest)

    @lazy
    def weight(self) -> int:
        """:meth:`reach` is at most this times the largest of the sizes: quick to ask again and again."""
        inside = sum(abs(c) * part.weight for part, c in self.quotients)
        return abs(self.constant) + sum(abs(c) for _, c in self.terms) + inside

    @lazy
    def least(self) -> float:
        """A lower bound whatever the sizes are; -inf where there is none."""
        if any(c < 0 for _, c in self.terms) or any(c < 0 or part.least < 0 for part, c in self.quotients):
            return float("-inf")
        return self.constant

    @lazy
    def most(self) -> int | None:
        """An upper bound whatever the sizes are, or None."""
        if any(c > 0 for _, c in self.terms) or any(part.least < 0 for part, _ in self.quotients):
            return None
        ends = [c * part.most if part.most is not None else None for part, c in self.quotients if c > 0]
        return None if None in ends else self.constant + sum(end for end in ends if end is not None)


def _term(text: str, coefficient: int) -> str:
    factor = "" if abs(coefficient) == 1 else f"*{abs(coefficient)}"
    return f"{'-' if coefficient < 0 else '+'}{text}{factor}"


def _collected(quotients: Quotients) -> tuple[Quotients, AffineExpr | None]:
    """Equal quotients as one, in the order of their text; and the dividends that are whole again, since
    ``e//n*n + e%n`` is ``e``."""
    total: dict[Part, int] = {}
    for quotient, coefficient in quotients:
        total[quotient] = total.get(quotient, 0) + coefficient
    whole = None
    for rest in [q for q in total if isinstance(q, Quotient) and q.remainder]:
        quotient = Quotient(rest.dividend, rest.divisor)
        if total[rest] and total.get(quotient) == total[rest] * rest.divisor:
            whole = (whole or AffineExpr()).plus(rest.dividend, total[rest])
            total[rest] = total[quotient] = 0
    return tuple(sorted([i for i in total.items() if i[1]], key=lambda item: item[0].text)), whole


#: The coefficient of a (level, coefficient) pair.
_COEFFICIENT = itemgetter(1)

_FORMS: dict[tuple[int, tuple[tuple[int, int], ...]], AffineExpr] = {}
_MOST_FORMS = 100_000

#: ``{0}``, ``{1}`` ...: made once, since every move asks for them.
LEVELS = tuple(AffineExpr(0, ((level, 1),)) for level in range(4 * MAX_DEPTH))


@frozen
class Condition:
    """``form >= 0``, written with the iterators on the left and the constant on the right."""

    form: AffineExpr

    @lazy
    def text(self) -> str:
        left, sign, right = self.sides
        return f"{left.text} {sign} {right}"

    @property
    def sides(self) -> tuple[AffineExpr, str, int]:
        """The left side, ``>=`` or ``<=``, and the constant; the left is not made of minus signs alone."""
        form = self.form
        coefficients = [c for _, c in (*form.terms, *form.quotients)]
        if coefficients and max(coefficients) < 0:
            turned = AffineExpr().plus(form, -1)
            return AffineExpr(0, turned.terms, turned.quotients), "<=", form.constant
        return AffineExpr(0, form.terms, form.quotients), ">=", -form.constant

    def substitute(self, levels: Callable[[int], AffineExpr]) -> Condition:
        return Condition(self.form.substitute(levels))

    def shifted(self, level: int, by: int) -> Condition:
        return Condition(self.form.shifted(level, by))

    @property
    def levels(self) -> frozenset[int]:
        return self.form.levels

    @property
    def highest(self) -> int:
        return self.form.highest
