"""Random algebraic models: number domains in which only the declared laws of arithmetic hold.

Floats become random elements of the field of residues modulo a 62-bit prime. There + - * are the
ring's and division by a constant is the field's inverse, so every re-association agrees to the
last bit. Everything else is a pseudo-random function, so nothing agrees by accident: a program
that differs by one dropped, doubled or misplaced term shows with probability 1 - 2**-50 or so.

max and min are commutative and associative with an identity, but *not* idempotent: in a model
where max(a, a) = a, a transformation that drops or repeats an iteration would often go unseen.
A declared law is satisfied by the model of both programs, and by no model without it.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NoReturn, TypeAlias, assert_never

from perfdojo_sdk.core.dtypes import CODED_DTYPES, FLOAT_DTYPES, integer_bounds, rounding_law, shorter, wrap
from perfdojo_sdk.core.errors import ProgramError, VerificationError, closest
from perfdojo_sdk.core.laws import EXPONENT, RECIPROCAL
from perfdojo_sdk.core.laws import LAWS as DECLARED
from perfdojo_sdk.core.operations import OPERATIONS, Algebra, identity, integer_operation
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.verify import modular_vm
from perfdojo_sdk.verify.mixing import EXPONENTS, FIELDS, GOLDEN, PRIME, WORD, mix, name_key
from perfdojo_sdk.verify.modular_vm import Cells

IDEMPOTENT_MAX = "max(x,x) = x"
IDEMPOTENT_MIN = "min(x,x) = x"

#: Laws that rounding breaks and every model has.
RING_LAWS = tuple(law.text for law in DECLARED.values() if law.of_rings)

#: In the order of their flags in ``modular_vm.c``.
_FLAGGED = (EXPONENT, RECIPROCAL, IDEMPOTENT_MAX, IDEMPOTENT_MIN, *map(rounding_law, modular_vm.ROUNDINGS))

#: The laws that a model can be asked to satisfy beyond those that always hold.
LAWS = (*_FLAGGED, *RING_LAWS)


class OutsideModel(ProgramError):
    """PD-V005: an infinity is used in a way that the models give no value to."""


class Infinity(Enum):
    """A symbol beside the field: the identity of max (negative) or of min (positive)."""

    NEGATIVE = "-inf"
    POSITIVE = "inf"


class Constant(int):
    """A residue that no input took part in; closed under the ring's operations.

    Dividing by one is exact, however it was computed and wherever it was stored in between.
    """

    def __add__(self, other: int) -> int:
        return _like(other, int.__add__(self, other))

    def __sub__(self, other: int) -> int:
        return _like(other, int.__sub__(self, other))

    def __mul__(self, other: int) -> int:
        return _like(other, int.__mul__(self, other))

    def __mod__(self, modulus: int) -> int:
        return Constant(int.__mod__(self, modulus))


def _like(other: int, result: int) -> int:
    return Constant(result) if type(other) is Constant else result


Element: TypeAlias = int | Infinity

_RANK: Mapping[object, int] = {Infinity.NEGATIVE: -1, Infinity.POSITIVE: 1}
"""Order of the infinities relative to numbers, which have rank 0."""


def _significant(value: int) -> int:
    """The part of a number that is equal for equal float results."""
    return value if value < PRIME else value % PRIME


def _outside(name: str, *operands: Element) -> NoReturn:
    shown = ", ".join(o.value if isinstance(o, Infinity) else "x" for o in operands)
    what = f"{name}({shown}) has no value in the random models"
    hint = "an infinity may start a max or min, be compared, lose a number, or be the argument of exp"
    raise OutsideModel("PD-V005", what, hint=hint)


def _ring(modulus: int) -> Mapping[str, Callable[..., Element]]:
    """The ring operations on residues. Operands are almost always residues; infinities take the slow path."""

    def add(a: Any, b: Any) -> Element:
        try:
            return (a + b) % modulus  # type: ignore[no-any-return]
        except TypeError:
            _outside("add", a, b)

    def sub(a: Any, b: Any) -> Element:
        try:
            return (a - b) % modulus  # type: ignore[no-any-return]
        except TypeError:
            return a if isinstance(a, Infinity) and not isinstance(b, Infinity) else _outside("sub", a, b)

    def mul(a: Any, b: Any) -> Element:
        try:
            return (a * b) % modulus  # type: ignore[no-any-return]
        except TypeError:
            _outside("mul", a, b)

    def neg(a: Any) -> Element:
        return _outside("neg", a) if isinstance(a, Infinity) else sub(Constant(0), a)

    return {"add": add, "sub": sub, "mul": mul, "neg": neg}


@lru_cache(maxsize=1024)
def _inverse(a: int, modulus: int) -> Constant:
    return Constant(pow(a, -1, modulus))


def _joined(parts: Sequence[int]) -> int:
    """The number that is congruent to each of ``parts`` modulo its entry of FIELDS (Chinese remainder
    theorem)."""
    value, modulus = parts[0] % PRIME, PRIME
    for part, field in zip(parts[1:], FIELDS[1:], strict=False):
        value += modulus * ((part - value) * _inverse(modulus % field, field) % field)
        modulus *= field
    return value


_NO_INDICES: Mapping[str, tuple[int, int]] = {}


class RandomModel:
    """One random algebraic model: a domain of the interpreter, fixed by seed and laws.

    Elements are residues modulo PRIME. Where exp turns sums into products, they are residues modulo
    PRIME * EXPONENTS, that is pairs: exp takes the second part to a power modulo PRIME, and only the
    first part of a result counts. The second part of an exponential obeys no law, so an exponential of
    exponentials takes a third one, and so on: ``nested`` says how many of them stand in each other.
    Inputs that run-time indices are read from are drawn for the ranges ``indices``.
    """

    def __init__(
        self,
        seed: int,
        laws: Iterable[str] = (),
        nested: int = 1,
        indices: Mapping[str, tuple[int, int]] = _NO_INDICES,
    ) -> None:
        """:class:`VerificationError` (PD-V006) for a law that no model is known for."""
        self.seed, self.laws = seed, frozenset(laws)
        for law in sorted(self.laws.difference(LAWS)):
            what = f"no random model for the law {law!r}"
            raise VerificationError("PD-V006", what, hint=closest(law, list(LAWS)))
        self.nested, self.indices = nested, indices
        self.fields = FIELDS[: nested + 1] if EXPONENT in self.laws else FIELDS[:1]
        self.modulus = prod(self.fields)
        self.ring = _ring(self.modulus)

    def significant(self, value: Element) -> Element:
        """The part of a float that two equal results agree in."""
        return value if isinstance(value, Infinity) else _significant(value)

    # -- the domain

    def literal(self, value: float | int, dtype: str) -> Element:
        if dtype not in FLOAT_DTYPES:
            return wrap(int(value), dtype)
        if value in (float("-inf"), float("inf")):
            return Infinity.NEGATIVE if value < 0 else Infinity.POSITIVE
        exact = Fraction(value)
        return Constant(exact.numerator * _inverse(exact.denominator, self.modulus) % self.modulus)

    def index_value(self, dtype: str) -> Callable[[int], Element]:
        if dtype in FLOAT_DTYPES:
            return lambda value: Constant(value % self.modulus)
        return lambda value: wrap(value, dtype)

    def operation(self, name: str, dtype: str) -> Callable[..., Element]:
        if dtype not in FLOAT_DTYPES:
            return integer_operation(name, dtype)
        match OPERATIONS[name].algebra:
            case Algebra.COMPARISON:
                return self._comparison(name, dtype)
            case Algebra.RING:
                return self.ring[name]
            case Algebra.QUOTIENT:
                return self._division(dtype)
            case Algebra.EXTREMUM:
                return self._extremum(name)
            case Algebra.EXPONENTIAL:
                return self._exp(dtype)
            case Algebra.OPAQUE:
                return self.opaque(f"{name} {dtype}")
            case other:
                assert_never(other)

    def cast(self, source: str, target: str) -> Callable[[Any], Element]:
        """The conversion: from a float it rounds, by an opaque function, unless the rounding is declared."""
        if source == target or self._unseen(source, target):
            return lambda value: value
        if source in CODED_DTYPES:
            return self.opaque(f"cast {source} {target}")
        if source in FLOAT_DTYPES:
            rounding = self.opaque(f"cast {source} {target}")
            if target == "bool":
                return lambda value: rounding(value) % PRIME & 1
            if target in FLOAT_DTYPES:  # an infinity stays one
                return lambda value: value if isinstance(value, Infinity) else rounding(value)
            return lambda value: wrap(rounding(value) % PRIME, target)
        if target in FLOAT_DTYPES:
            return lambda value: value % self.modulus
        return lambda value: wrap(value, target)

    def _unseen(self, source: str, target: str) -> bool:
        """True if a conversion between two floats is a rounding that a move declared."""
        if source not in FLOAT_DTYPES or target not in FLOAT_DTYPES:
            return False
        return rounding_law(shorter(source, target)) in self.laws

    # -- functions

    def opaque(self, name: str) -> Callable[..., int]:
        """A function of which nothing is known but that equal arguments give equal results."""
        start = mix(mix((self.seed + GOLDEN) & WORD) ^ name_key(name))

        def function(*arguments: Element) -> int:
            state, constant = start, True
            for argument in arguments:
                if isinstance(argument, Infinity):
                    _outside(name.split()[0], *arguments)
                state = mix((state + GOLDEN & WORD) ^ argument % PRIME)
                constant &= type(argument) is Constant
            value = state % PRIME
            if self.modulus != PRIME:
                parts = [state]
                for field in self.fields[1:]:
                    state = mix(state ^ GOLDEN)
                    parts.append(state % field)
                value = _joined(parts)
            return Constant(value) if constant else value

        return function

    def _comparison(self, name: str, dtype: str) -> Callable[[Element, Element], int]:
        """A comparison: an infinity is beyond every number; the result for two numbers is pseudo-random."""
        compared, compare = self.opaque(f"{name} {dtype}"), OPERATIONS[name].floats

        def ranked(a: Element, b: Element) -> int:
            if isinstance(a, Infinity) or isinstance(b, Infinity):
                return int(compare(_RANK.get(a, 0), _RANK.get(b, 0)))
            return compared(a, b) % PRIME & 1

        return ranked

    def _division(self, dtype: str) -> Callable[[Element, Element], Element]:
        opaque = self.opaque(f"div {dtype}")
        reciprocal = self.opaque(f"reciprocal {dtype}")
        by_reciprocal, mul, modulus = RECIPROCAL in self.laws, self.ring["mul"], self.modulus

        def divide(a: Element, b: Element) -> Element:
            if type(b) is Constant and b:
                return mul(a, _inverse(b, modulus))
            return mul(a, reciprocal(b)) if by_reciprocal else opaque(a, b)

        return divide

    def _exp(self, dtype: str) -> Callable[[Element], Element]:
        opaque = self.opaque(f"exp {dtype}")

        def exp(a: Element) -> Element:
            return Constant(0) if a is Infinity.NEGATIVE else opaque(a)

        def power(a: Element) -> Element:
            """A power of ``a`` modulo each field but the last, and anything modulo the last."""
            if isinstance(a, Infinity):
                return exp(a)
            parts = [pow(base, int(a) % n, p) for base, (p, n) in zip(bases, steps, strict=True)]
            value = _joined([*parts, int(opaque(a)) % self.fields[-1]])
            return Constant(value) if type(a) is Constant else value

        steps = list(pairwise(self.fields))
        start = int(opaque(Constant(1)))
        bases = [pow(start, (p - 1) // n, p) for p, n in steps]
        return power if EXPONENT in self.laws else exp

    def _extremum(self, name: str) -> Callable[[Element, Element], Element]:
        """``e + u + v + k*u*v`` with u = a - e, v = b - e: multiplication in disguise."""
        neutral = Infinity.NEGATIVE if identity(name, "f64") < 0 else Infinity.POSITIVE
        opaque, modulus = self.opaque(name), self.modulus
        extreme = max if neutral is Infinity.NEGATIVE else min
        e, k = opaque(Constant(0)), opaque(Constant(1)) or Constant(1)

        def other(a: Element, b: Element) -> Element:
            return b if a is neutral else a if b is neutral else _outside(name, a, b)

        def combine(a: Any, b: Any) -> Element:
            try:
                u, v = a - e, b - e
            except TypeError:
                return other(a, b)
            return (u + v + u * v * k + e) % modulus  # type: ignore[no-any-return]

        def choose(a: Element, b: Element) -> Element:
            if isinstance(a, Infinity) or isinstance(b, Infinity):
                return other(a, b)
            chosen = extreme(a, b, key=_significant)
            return Constant(chosen) if type(a) is type(b) is Constant else int(chosen)

        return choose if f"{name}(x,x) = x" in self.laws else combine

    # -- inputs

    def inputs(self, program: Program) -> Mapping[str, list[Element]]:
        """Random values for every input, the same for each program with this interface."""
        given: dict[str, list[Element]] = {}
        for name in program.inputs:
            buffer = program.buffer_of[name]
            if buffer.values is not None:
                given[name] = [self.literal(value, buffer.dtype) for value in buffer.values]
                continue
            drawn = _drawn(self.seed, name, buffer.cells, buffer.dtype, self.indices.get(name))
            floats = buffer.dtype in FLOAT_DTYPES
            given[name] = [value % self.modulus for value in drawn] if floats else list(drawn)
        return given

    # -- results and the engine in C

    @property
    def flags(self) -> int:
        """The laws as ``modular_vm.c`` takes them."""
        return sum(1 << k for k, law in enumerate(_FLAGGED) if law in self.laws)

    def packed(self, program: Program) -> bytes:
        """:meth:`inputs` as ``modular_vm.c`` takes them."""
        buffers = [program.buffer_of[name] for name in program.inputs]
        given = [(b.arrays[0], b.cells, b.dtype, self.indices.get(b.arrays[0]), b.values) for b in buffers]
        return b"".join([_packed(self.seed, each) for each in given])

    def cells(self, values: Sequence[Element], dtype: str) -> Cells:
        """Cells in the form in which equal results are equal."""
        words, kinds = array("Q"), bytearray()
        for value in values:
            if isinstance(value, Infinity):
                words.append(0)
                kinds.append(_KINDS[value])
            else:
                words.append(value % PRIME if dtype in FLOAT_DTYPES else value & WORD)
                kinds.append(0)
        return Cells(words.tobytes(), bytes(kinds))


_KINDS = {Infinity.NEGATIVE: modular_vm.NEGATIVE, Infinity.POSITIVE: modular_vm.POSITIVE}


#: The share of the elements read as run-time indices that are in range.
_INSIDE = 7 / 8


@lru_cache(256)
def _drawn(
    seed: int, name: str, cells: int, dtype: str, indices: tuple[int, int] | None = None
) -> tuple[int, ...]:
    """Values of an input; of a float, 128 bits to take residues of. Those that choose ``indices`` of a range
    are mostly in it."""
    source = random.Random(f"{seed} {name}")
    if dtype in FLOAT_DTYPES:
        return tuple([source.getrandbits(128) for _ in range(cells)])
    low, high = least, most = integer_bounds(dtype)
    if indices and max(low, indices[0]) <= min(high, indices[1]):
        least, most = max(low, indices[0]), min(high, indices[1])
    inside = [source.random() < _INSIDE for _ in range(cells)] if indices else [True] * cells
    return tuple([source.randint(least, most) if each else source.randint(low, high) for each in inside])


_Input: TypeAlias = tuple[str, int, str, tuple[int, int] | None, tuple[float | int, ...] | None]
"""Name, number of cells and dtype of an input; the range of indices read from it; the elements of a table."""


@lru_cache(256)
def _packed(seed: int, given: _Input) -> bytes:
    """The elements of an input as ``modular_vm.c`` takes them: two words each."""
    name, cells, dtype, indices, values = given
    floats = dtype in FLOAT_DTYPES
    if values is not None:
        pairs = [_table_words(value, floats) for value in values]
        return array("Q", [word for pair in pairs for word in pair]).tobytes()
    drawn = _drawn(seed, name, cells, dtype, indices)
    if floats:
        return array("Q", [word for value in drawn for word in (value % PRIME, value % EXPONENTS)]).tobytes()
    return array("Q", [word for value in drawn for word in (value & WORD, 0)]).tobytes()


def _table_words(value: float | int, floats: bool) -> tuple[int, int]:
    if not floats:
        return int(value) & WORD, 0
    exact = Fraction(value)
    first, second = (exact.numerator * pow(exact.denominator, -1, m) % m for m in (PRIME, EXPONENTS))
    return first, second | modular_vm.CONSTANT
