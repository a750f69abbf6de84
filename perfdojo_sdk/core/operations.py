"""The meaning of each operation of the language: one row for each, in every domain of values.

``codegen/operations.py`` has the spelling of an operation in C and its cost, under the same
name. Nothing else lists operations by name, so a new one is a row here and a row there.

The domains: IEEE floats and wrapping integers (``domains.py``), intervals (``magnitudes.py``), the random
models of leg 1 (``verify/models.py`` and ``verify/modular_vm.py``), magnitudes of small integers
(``verify/exact_integers.py``), and the wider floats with error bounds of leg 2 (``verify/reference_c.py``),
which are programs in C, so that a row has its value in C as well. Leg 3 compares operations by name alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, NoReturn, TypeAlias

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, bits, integer_bounds, wrap
from perfdojo_sdk.core.errors import ProgramError

Interval: TypeAlias = tuple[float, float]
"""Least and largest value, either of which may be infinite."""

ANY: Interval = (-inf, inf)

#: Error in ulp of a result that is rounded once: of IEEE's operations, and of functions unless a target says.
ROUNDED = 0.5

#: Error in ulp that a target may state for a function that it approximates.
APPROXIMATED = 2.0

#: ``Meaning.moved`` of a non-decreasing function of one operand: its values at the ends of a range bound it.
ENDS = "ends"

#: The same of a monotone function that is NaN outside of an interval; of a range that leaves it nothing is
#: known.
WITHIN = "within"


class Algebra(Enum):
    """The laws of an operation on floats that the random models of leg 1 know."""

    OPAQUE = "equal operands give equal results, and nothing else"
    RING = "addition and multiplication of residues"
    QUOTIENT = "the inverse of a constant is exact, any other quotient opaque"
    EXTREMUM = "commutative and associative, with an infinity as its identity"
    EXPONENTIAL = "turns sums into products where a law says so"
    COMPARISON = "infinities are beyond every number, of two numbers nothing is known"


def _meaningless(*_: Any) -> NoReturn:
    what = "an operation has no meaning for the dtype of its operands"
    raise ProgramError("PD-V003", what, hint="convert to another one first")


@dataclass(frozen=True)
class Meaning:
    """An operation: what it takes, its value in each domain, and what holds of it."""

    arity: int
    dtypes: tuple[str, ...]
    """Dtypes that its operands may have; all operands have the same one, and the result has it too."""
    floats: Callable[..., float] = _meaningless
    """On Python floats, which are IEEE doubles: never an exception where ``dtypes`` has a float."""
    integers: Callable[[str], Callable[..., int]] = _meaningless
    """For a dtype of integers, or bool: the function on Python integers, its result wrapped."""
    interval: Callable[..., Interval] | None = None
    """On intervals of floats, whatever is rounded; None: any value may come out."""
    algebra: Algebra = Algebra.OPAQUE
    wide: str = ""
    """On floats in C, of ``a`` and ``b`` of a type ``W``; ``WIDE_(f)`` is a function of ``math.h`` for that
    type. Empty: the headers of leg 2 define it."""
    moved: str = ""
    """The most that this value moves when ``a`` and ``b`` do by at most ``ea`` and ``eb``, in C, or
    :data:`ENDS` or :data:`WITHIN`. Empty: ``reference_bounded.h`` defines the bound."""
    whole: str = ""
    """On integers in C, of ``a.v`` and ``b.v`` of type ``int64_t``, wrapped later. Empty: as ``wide``."""
    error: float = ROUNDED
    """Largest error in ulp on a target that states none; 0: the result is not rounded."""
    largest_error: float = ROUNDED
    """Largest error in ulp that a target may state."""
    monotone: bool = False
    """For floats: if an operand grows, the result does not fall, unless it is NaN."""
    exact_on_integers: bool = False
    """For integers held in floats, the result is an integer, largest in size at the ends of the operands'
    ranges."""
    total: bool = True
    """Every operand of an integer dtype has a result; else some are an error of the program."""
    compares: bool = False
    """The result is bool, whatever the operands are."""
    chooses: bool = False
    """The first argument is a bool that chooses between the operands."""
    infix: tuple[str, int] | None = None
    """The sign between two arguments, and how strongly it binds."""
    accumulation: str = ""
    """The sign of a statement that combines its value so with the cell that it writes."""
    reserved: bool = True
    """No array has its name. False for operations that are younger than stored programs, whose arrays may
    have it: an opening bracket tells a call."""
    neutral: float = 0.0
    """For an accumulation, the value that changes no other operand; for an integer dtype, the nearest one."""

    def operands(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of one dtype: without the condition of a selection."""
        return arguments[1:] if self.chooses else arguments


# -- floats ----------------------------------------------------------------------------------------


def _quotient(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0.0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _float_remainder(a: float, b: float) -> float:
    if math.isinf(a) or not b or a != a or b != b:
        return math.nan
    return math.fmod(a, b)


def _remainder_of(a: Interval, b: Interval) -> Interval:
    most = min(max(-a[0], a[1]), max(-b[0], b[1]))
    return (-most if a[0] < 0 else 0.0, most if a[1] > 0 else 0.0)


def _exponential(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def _total(function: Callable[..., float]) -> Callable[..., float]:
    """A function of ``math`` with an infinity where it overflows, and NaN outside of its domain."""

    def value(*operands: float) -> float:
        try:
            return function(*operands)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return value


def _odd(function: Callable[[float], float]) -> Callable[[float], float]:
    """The same for an odd function, of the magnitude."""
    value = _total(function)
    return lambda a: math.copysign(value(abs(a)), a)


def _logarithm_of(function: Callable[[float], float], zero: float) -> Callable[[float], float]:
    """A logarithm that is -inf at ``zero`` and NaN below."""
    return lambda a: function(a) if a > zero else -math.inf if a == zero else math.nan


def _sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a)) if a >= 0 else math.exp(a) / (1 + math.exp(a)) if a < 0 else a


def _reciprocal_root(a: float) -> float:
    return 1 / math.sqrt(a) if a > 0 else math.inf if a == 0 else math.nan


def _power(a: float, b: float) -> float:
    """As in C: ``x^0`` and ``1^x`` are 1 for every x, NaN included."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.nan if a else math.copysign(math.inf, a) if b % 2 == 1 else math.inf


def _integral(function: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding function that hands infinities and NaN on and keeps the sign of zero."""
    return lambda a: math.copysign(float(function(a)), a) if math.isfinite(a) else a


def _truth(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], int]:
    return lambda a, b: int(compare(a, b))


def _chosen(condition: Any, one: Any, other: Any) -> Any:
    return one if condition else other


# -- integers --------------------------------------------------------------------------------------


def wrapped(function: Callable[..., int]) -> Callable[[str], Callable[..., int]]:
    """The exact result, wrapped."""
    return lambda dtype: lambda *arguments: wrap(function(*arguments), dtype)


def _truncated_division(a: int, b: int) -> int:
    if b == 0:
        raise ProgramError("PD-V003", "an integer is divided by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _complement(dtype: str) -> Callable[[int], int]:
    return (lambda a: 1 - a) if dtype == "bool" else (lambda a: wrap(~a, dtype))


def _shift(shifted: Callable[[int, int], int]) -> Callable[[str], Callable[[int, int], int]]:
    """A shift by a count within the width; to the right, a signed number keeps its sign."""

    def of_dtype(dtype: str) -> Callable[[int, int], int]:
        def shift(a: int, count: int) -> int:
            if not 0 <= count < bits(dtype):
                raise ProgramError("PD-V003", f"{dtype} is shifted by {count}, it has {bits(dtype)} bits")
            return wrap(shifted(a, count), dtype)

        return shift

    return of_dtype


# -- intervals -------------------------------------------------------------------------------------


def _sum_of(a: Interval, b: Interval) -> Interval:
    """The interval of a sum; in any dtype and order, rounding takes less than a 64th of the operands."""
    low = a[0] + b[0] - (abs(a[0]) + abs(b[0])) / 64
    high = a[1] + b[1] + (abs(a[1]) + abs(b[1])) / 64
    return (low if low == low else -inf), (high if high == high else inf)  # inf - inf is no bound


def _turned(a: Interval) -> Interval:
    return -a[1], -a[0]


def _product_of(a: Interval, b: Interval) -> Interval:
    return (a[0] * b[0] if a[0] > 0 < b[0] else 0.0, inf) if a[0] >= 0 <= b[0] else ANY


def _quotient_of(a: Interval, b: Interval) -> Interval:
    if a[0] < 0 or b[0] <= 0:
        return ANY
    return a[0] / b[1], (a[1] / b[0] if a[1] < inf else inf)


def _positive(*_: Interval) -> Interval:
    return 0.0, inf


# -- the table -------------------------------------------------------------------------------------

_NUMBERS = (*FLOAT_DTYPES, *INTEGER_DTYPES)
_BITS = (*INTEGER_DTYPES, "bool")
_ALL = (*_NUMBERS, "bool")


def _function(floats: Callable[..., float], wide: str, **more: Any) -> Meaning:
    """A function of floats, approximated by targets; of one operand and non-decreasing unless ``more`` says
    otherwise."""
    row = {"arity": 1, "monotone": True, "largest_error": APPROXIMATED, **more}
    return Meaning(dtypes=FLOAT_DTYPES, floats=floats, wide=wide, **row)


def _younger(floats: Callable[..., float], wide: str, **more: Any) -> Meaning:
    """The same, whose name may be that of an array of an older program."""
    return _function(floats, wide, reserved=False, **more)


def _rounding(function: Callable[[float], int], wide: str) -> Meaning:
    """A rounding to an integer, whose result is exact."""
    return Meaning(
        1, FLOAT_DTYPES, _integral(function), wide=wide, moved=ENDS, error=0, largest_error=0, monotone=True
    )


def _bitwise(function: Callable[[int, int], int], whole: str) -> Meaning:
    return Meaning(2, _BITS, integers=wrapped(function), whole=whole)


def _comparison(compare: Callable[[Any, Any], bool], sign: str) -> Meaning:
    truth = _truth(compare)
    return Meaning(
        2, _ALL, truth, lambda dtype: truth, algebra=Algebra.COMPARISON, whole=f"a.v {sign} b.v",
        error=0, largest_error=0, compares=True, infix=(sign, 0),
    )  # fmt: skip


def _extremum(
    better: Callable[[float, float], bool],
    best: Callable[..., Any],
    whole: str,
    accumulation: str,
    neutral: float,
) -> Meaning:
    return Meaning(
        2,
        _ALL,
        lambda a, b: a if better(a, b) or a != a else b,  # NaN wins on either side
        wrapped(best),
        lambda a, b: (best(a[0], b[0]), best(a[1], b[1])),
        Algebra.EXTREMUM,
        whole=whole,
        error=0,
        largest_error=0,
        monotone=True,
        exact_on_integers=True,
        accumulation=accumulation,
        neutral=neutral,
    )


#: The operations of expressions.
OPERATIONS: Mapping[str, Meaning] = {
    "add": Meaning(
        2, _NUMBERS, operator.add, wrapped(operator.add), _sum_of, Algebra.RING,
        whole="(int64_t)((uint64_t)a.v + (uint64_t)b.v)", monotone=True, exact_on_integers=True,
        infix=("+", 1), accumulation="+=",
    ),
    "sub": Meaning(
        2, _NUMBERS, operator.sub, wrapped(operator.sub), lambda a, b: _sum_of(a, _turned(b)), Algebra.RING,
        whole="(int64_t)((uint64_t)a.v - (uint64_t)b.v)", exact_on_integers=True, infix=("-", 1),
    ),
    "mul": Meaning(
        2, _NUMBERS, operator.mul, wrapped(operator.mul), _product_of, Algebra.RING,
        whole="(int64_t)((uint64_t)a.v * (uint64_t)b.v)", exact_on_integers=True,
        infix=("*", 2), accumulation="*=", neutral=1.0,
    ),
    "div": Meaning(
        2, _NUMBERS, _quotient, wrapped(_truncated_division), _quotient_of, Algebra.QUOTIENT,
        total=False, infix=("/", 2),
    ),
    "rem": Meaning(
        2, INTEGER_DTYPES, integers=wrapped(lambda a, b: a - b * _truncated_division(a, b)), total=False,
    ),
    "max": _extremum(operator.ge, max, "a.v > b.v ? a.v : b.v", "max=", -inf),
    "min": _extremum(operator.le, min, "a.v < b.v ? a.v : b.v", "min=", inf),
    "neg": Meaning(
        1, _NUMBERS, operator.neg, wrapped(operator.neg), _turned, Algebra.RING,
        error=0, largest_error=0, exact_on_integers=True,
    ),
    "abs": Meaning(
        1, _NUMBERS, abs, wrapped(abs), lambda a: (max(a[0], -a[1], 0.0), max(a[1], -a[0])),
        wide="WIDE_(fabs)(a)", error=0, largest_error=0, exact_on_integers=True,
    ),
    "sqrt": Meaning(
        1, FLOAT_DTYPES, lambda a: math.sqrt(a) if a >= 0.0 else math.nan,
        interval=lambda a: (math.sqrt(max(a[0], 0.0)), inf), wide="WIDE_(sqrt)(a)", monotone=True,
    ),
    "exp": _function(
        _exponential, "WIDE_(exp)(a)", interval=lambda a: (1.0 if a[0] >= 0 else 0.0, inf),
        algebra=Algebra.EXPONENTIAL,
    ),
    "log": _function(_logarithm_of(math.log, 0.0), "WIDE_(log)(a)"),
    "tanh": _function(math.tanh, "WIDE_(tanh)(a)", moved=ENDS),
    "erf": _function(math.erf, "WIDE_(erf)(a)", moved=ENDS),
    "exp2": _younger(_total(math.exp2), "WIDE_(exp2)(a)", interval=_positive),
    "expm1": _younger(_total(math.expm1), "WIDE_(expm1)(a)", moved=ENDS),
    "log2": _younger(_logarithm_of(math.log2, 0.0), "WIDE_(log2)(a)"),
    "log1p": _younger(_logarithm_of(math.log1p, -1.0), "WIDE_(log1p)(a)"),
    "sigmoid": _younger(
        _sigmoid, "a < 0 ? WIDE_(exp)(a) / (1 + WIDE_(exp)(a)) : 1 / (1 + WIDE_(exp)(-a))",
        moved=ENDS, interval=_positive,
    ),
    "rsqrt": _younger(
        _reciprocal_root, "1 / WIDE_(sqrt)(a)", interval=_positive, monotone=False,
    ),
    "cbrt": _younger(_odd(math.cbrt), "WIDE_(cbrt)(a)", moved=ENDS),
    "sin": _younger(_total(math.sin), "WIDE_(sin)(a)", moved="ea", monotone=False),
    "cos": _younger(_total(math.cos), "WIDE_(cos)(a)", moved="ea", monotone=False),
    # The derivative is 1 / cos^2; within the error of a pole nothing is known.
    "tan": _younger(
        _total(math.tan), "WIDE_(tan)(a)", monotone=False,
        moved="WIDE_(fabs)(WIDE_(cos)(a)) > ea "
        "? ea / ((WIDE_(fabs)(WIDE_(cos)(a)) - ea) * (WIDE_(fabs)(WIDE_(cos)(a)) - ea)) : (W)INFINITY",
    ),
    "asin": _younger(_total(math.asin), "WIDE_(asin)(a)", moved=WITHIN),
    "acos": _younger(_total(math.acos), "WIDE_(acos)(a)", moved=WITHIN, monotone=False),
    "atan": _younger(math.atan, "WIDE_(atan)(a)", moved=ENDS),
    "sinh": _younger(_odd(math.sinh), "WIDE_(sinh)(a)", moved=ENDS),
    "cosh": _younger(
        _total(math.cosh), "WIDE_(cosh)(a)", moved="ea > 0 ? WIDE_(sinh)(WIDE_(fabs)(a) + ea) * ea : 0",
        interval=_positive, monotone=False,
    ),
    "asinh": _younger(math.asinh, "WIDE_(asinh)(a)", moved=ENDS),
    "acosh": _younger(_total(math.acosh), "WIDE_(acosh)(a)", moved=WITHIN),
    "atanh": _younger(
        lambda a: math.copysign(inf, a) if abs(a) == 1 else _total(math.atanh)(a), "WIDE_(atanh)(a)",
        moved=WITHIN,
    ),
    "pow": _younger(_power, "WIDE_(pow)(a, b)", arity=2, monotone=False),
    # The remainder of the truncated quotient, exact however large that is; it jumps where the quotient does.
    "fmod": Meaning(
        2, FLOAT_DTYPES, _float_remainder, interval=_remainder_of, wide="WIDE_(fmod)(a, b)",
        moved="ea > 0 || eb > 0 ? 2 * (WIDE_(fabs)(b) + eb) : 0", error=0, largest_error=0, reserved=False,
    ),
    "floor": _rounding(math.floor, "WIDE_(floor)(a)"),
    "ceil": _rounding(math.ceil, "WIDE_(ceil)(a)"),
    "round": _rounding(round, "WIDE_(rint)(a)"),  # to the nearest, ties to even
    "trunc": _rounding(math.trunc, "WIDE_(trunc)(a)"),
    "and": _bitwise(operator.and_, "a.v & b.v"),
    "or": _bitwise(operator.or_, "a.v | b.v"),
    "xor": _bitwise(operator.xor, "a.v ^ b.v"),
    "not": Meaning(1, _BITS, integers=_complement),
    "shl": Meaning(
        2, INTEGER_DTYPES, integers=_shift(operator.lshift),
        whole="(int64_t)((uint64_t)a.v << (b.v & 63))", total=False,
    ),
    "shr": Meaning(
        2, INTEGER_DTYPES, integers=_shift(operator.rshift), whole="a.v >> (b.v & 63)", total=False,
    ),
    "lt": _comparison(operator.lt, "<"),
    "le": _comparison(operator.le, "<="),
    "gt": _comparison(operator.gt, ">"),
    "ge": _comparison(operator.ge, ">="),
    "eq": _comparison(operator.eq, "=="),
    "ne": _comparison(operator.ne, "!="),
    "select": Meaning(
        3, _ALL, _chosen, lambda dtype: _chosen, lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
        error=0, largest_error=0, chooses=True,
    ),
}  # fmt: skip

#: Binary operations written between their arguments: name -> (sign, precedence).
INFIX: Mapping[str, tuple[str, int]] = {
    name: meaning.infix for name, meaning in OPERATIONS.items() if meaning.infix
}

#: Operations by which a statement may combine its value with the cell it writes -> the sign in text.
ACCUMULATIONS: Mapping[str, str] = {
    name: meaning.accumulation for name, meaning in OPERATIONS.items() if meaning.accumulation
}


def identity(operation: str, dtype: str) -> float | int:
    """The value of ``dtype`` that leaves the other operand of an accumulation as it is."""
    neutral = OPERATIONS[operation].neutral
    if dtype in FLOAT_DTYPES:
        return neutral
    low, high = integer_bounds(dtype)
    return low if neutral < low else high if neutral > high else int(neutral)


def integer_operation(name: str, dtype: str) -> Callable[..., int]:
    """Integers behave alike in every domain: exact, wrapping, division truncates."""
    if dtype not in OPERATIONS[name].dtypes:
        raise ProgramError("PD-V003", f"{name} has no meaning for {dtype}", hint="convert to a float first")
    return OPERATIONS[name].integers(dtype)
