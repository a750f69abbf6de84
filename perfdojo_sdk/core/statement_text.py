"""Parse one statement: ``target = value if condition``.

A value is read twice: the first pass gives a tree without dtypes, the second gives each node the
dtype that its place asks for. A literal or an iterator takes it from its neighbours, an array has its
own, and where the two differ the statement is refused: conversions are explicit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from perfdojo_sdk.core.dtypes import (
    CODED_DTYPES,
    DTYPES,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    NARROW_DTYPES,
    UNCOMPUTED_DTYPES,
    integer_bounds,
)
from perfdojo_sdk.core.errors import closest
from perfdojo_sdk.core.expression import (
    CODE_SOURCE,
    INDEX_DTYPE,
    MAX_DEPTH,
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Quotient,
    Read,
)
from perfdojo_sdk.core.lookups import CLAMP, Lookup, Range, clamp, lookups_in, unfit
from perfdojo_sdk.core.operations import ACCUMULATIONS, INFIX, OPERATIONS
from perfdojo_sdk.core.program import Statement
from perfdojo_sdk.core.slips import function_hint
from perfdojo_sdk.core.tokens import INFINITE, RESERVED, Line, Token
from perfdojo_sdk.core.words import number_of

_SIGN_TO_ACCUMULATION = {sign: name for name, sign in ACCUMULATIONS.items()}
_SIGN_TO_INFIX = {sign: (name, level) for name, (sign, level) in INFIX.items()}

#: Most operations one inside the other; a sum of n terms is n - 1 of them. It bounds the recursion of all
#: functions that walk an expression.
MAX_HEIGHT = 128

#: Names that other languages have for numbers without digits, in small letters -> the way to write them.
_SPECIAL = {
    **dict.fromkeys(("infinity", "infty", "oo", "math_inf", "huge_val", "huge_valf"), INFINITE),
    **dict.fromkeys(("inf", "inff"), INFINITE),  # in capitals
    **dict.fromkeys(("nan", "nanf"), "NaN has no name; write inf - inf"),
    "flt_max": "write inf, or the number itself: 3.4028235e38",
    "m_pi": "write the number: 3.141592653589793",
    "m_e": "write the number: 2.718281828459045",
    **dict.fromkeys(("true", "false"), "a value of bool is written 1 or 0"),
    "dbl_max": "write inf, or the number itself: 1.7976931348623157e308",
}

#: Sign in a condition on iterators -> what to write instead.
_CONDITIONS = {
    **dict.fromkeys(("==", "="), "for an equality, {0} >= 1 and {0} <= 1"),
    "!=": "write the statement twice, once with if {0} < 1 and once with if {0} > 1",
}

_NO_TABLES: Mapping[str, Range] = {}

Tree = TypeVar("Tree")

_LOOSEST, _TIGHTEST = 0, max(level for _, level in INFIX.values())


@dataclass(frozen=True)
class _Value:
    """A value without dtypes. ``leaf`` is what an atom holds; a number keeps its token and sign."""

    token: Token
    leaf: Access | AffineExpr | None = None
    sign: int = 0
    """1 or -1 for a number, else 0."""
    name: str = ""
    """An operation, or the dtype of a conversion."""
    arguments: tuple[_Value, ...] = ()


def _operands(value: _Value) -> tuple[_Value, ...]:
    return value.arguments


def _dividends(form: AffineExpr) -> tuple[AffineExpr, ...]:
    return tuple([quotient.dividend for quotient, _ in form.divisions])


def _height(root: Tree, children: Callable[[Tree], tuple[Tree, ...]]) -> int:
    """The number of levels of ``children`` below ``root``, found without recursion."""
    height, level = 0, children(root)
    while level:
        height, level = height + 1, tuple([child for node in level for child in children(node)])
    return height


class StatementParser:
    """Reads the statement of one line that stands inside ``depth`` scopes."""

    def __init__(
        self,
        line: Line,
        depth: int,
        dtype_of: Mapping[str, str],
        rank_of: Mapping[str, int],
        ranges: Mapping[str, Range] = _NO_TABLES,
    ) -> None:
        """``ranges``: the least and the largest element of each table of integers."""
        self.line, self.depth = line, depth
        self.dtype_of, self.rank_of, self.ranges = dtype_of, rank_of, ranges

    def statement(self, identifier: str) -> Statement:
        line = self.line
        target = self.access()
        dtype = self.dtype_of[target.array]
        accumulate = None
        token = line.peek()
        if token and token.kind == "accumulate":
            if token.text not in _SIGN_TO_ACCUMULATION:
                line.fail("PD-P002", f"unknown accumulation {token.text!r}", hint="+=, *=, max= or min=")
            accumulate = _SIGN_TO_ACCUMULATION[token.text]
            line.next += 1
        else:
            line.expect("=")
        read = self.infix(_LOOSEST)
        if _height(read, _operands) > MAX_HEIGHT:
            line.fail("PD-P003", f"more than {MAX_HEIGHT} operations stand one inside the other", 1)
        value = self.typed(read, dtype)
        guard = self.guard() if line.accept("if") else ()
        return Statement(target, value, accumulate, dtype, identifier, guard)

    # -- subscripts and conditions -----------------------------------------------------------------

    def access(self) -> Access:
        line = self.line
        token = line.peek()
        name = line.name("an array")
        if name not in self.dtype_of:
            assert token
            what, hint = f"undeclared array {name!r}", closest(name, list(self.dtype_of))
            if line.at("("):
                what, hint = f"unknown function {name!r}", function_hint(name)
                hint = hint or closest(name, [*OPERATIONS, *DTYPES])
            if name.lower() in _SPECIAL:
                hint = _SPECIAL[name.lower()]
            if name == CLAMP:
                hint = "of a value write max(min(x, high), low); clamp stands in subscripts"
            line.fail("PD-P009", what, token.column, len(name), hint)
        line.expect("[", "every array has subscripts; a scalar, declared with the shape [], is written t[]")
        subscripts: list[AffineExpr] = []
        while not line.accept("]"):
            if subscripts:
                line.expect(",")
            subscripts.append(self.index())
        if len(subscripts) != self.rank_of[name]:
            assert token
            line.fail(
                "PD-P009",
                f"{name} has {self.rank_of[name]} dimensions, {len(subscripts)} subscripts are given",
                token.column,
                len(name),
            )
        return Access(name, tuple(subscripts))

    def index(self) -> AffineExpr:
        """A sum of constants, iterators, quotients and lookups, each with a constant factor."""
        line = self.line
        form = AffineExpr().plus(self._term(), -1) if line.accept("-") else self._term()
        while True:
            if line.accept("+"):
                form = form.plus(self._term())
            elif line.accept("-"):
                form = form.plus(self._term(), -1)
            else:
                return form

    def _term(self) -> AffineExpr:
        line = self.line
        token = line.peek()
        if token and (token.text in ("{", "(") or token.kind == "name"):
            form = self._part()
            return AffineExpr().plus(form, line.integer("a coefficient")) if line.accept("*") else form
        value = line.integer("a subscript")
        return AffineExpr().plus(self._part(), value) if line.accept("*") else AffineExpr(value)

    def _part(self) -> AffineExpr:
        token = self.line.peek()
        return self._lookup(token) if token and token.kind == "name" else self._quotient()

    def _lookup(self, token: Token) -> AffineExpr:
        """An index that is read from memory: ``clamp(value, low, high)``, or a value of a small range."""
        line = self.line
        line.nested()
        if token.text == CLAMP and CLAMP not in self.dtype_of:
            line.next += 1
            line.expect("(")
            read = self.infix(_LOOSEST)
            line.expect(",")
            low = self._bound()
            line.expect(",")
            high = self._bound()
            line.expect(")")
            value = self._whole(read, token)
            if low > high:
                line.fail("PD-P003", f"no index is in {low} .. {high}", token.column, len(token.text))
            bounds = [Literal(bound, value.dtype) for bound in (low, high)]
            value = clamp(value, *bounds)
        else:
            value = self._whole(self._compound(token), token)
        line.depth -= 1
        if reason := unfit(value):
            hint = "compute the index in an input of the kernel"
            line.fail("PD-P017", f"no run-time index: {reason}", token.column, len(token.text), hint)
        tables = sorted({read.array for read in value.reads}.intersection(self.ranges))
        known = tuple([(name, self.ranges[name]) for name in tables])
        return AffineExpr.of({}, 0, ((Lookup(value, known), 1),))

    def _bound(self) -> int:
        sign = -1 if self.line.accept("-") else 1
        return sign * self.line.integer("a bound of an index")

    def _whole(self, read: _Value, token: Token) -> Expression:
        """A value of integers with the dtype that it has by itself."""
        if _height(read, _operands) > MAX_HEIGHT:
            self.line.fail("PD-P003", f"more than {MAX_HEIGHT} operations stand one inside the other", 1)
        dtype = self.dtype(read)
        if dtype not in INTEGER_DTYPES:
            what = f"a run-time index is an integer, this is {dtype or 'a number without a dtype'}"
            hint = "write the conversion, as in i32(...), or the index without clamp where it has no array"
            self.line.fail("PD-P010", what, token.column, len(token.text), hint)
        return self.typed(read, dtype)

    def _quotient(self) -> AffineExpr:
        line = self.line
        if line.accept("("):
            line.nested()
            form = self.index()
            line.depth -= 1
            line.expect(")")
            if lookups_in(form):
                line.next -= 1
                what = "a run-time index stands in brackets"
                line.fail("PD-P017", what, hint="write its factor after it: clamp(...)*16")
        else:
            form = AffineExpr.level(self._level())
        while line.at("//") or line.at("%"):
            remainder = line.accept("%")
            line.next += not remainder
            divisor = line.integer("a divisor")
            if divisor < 1:
                line.next -= 1
                line.fail("PD-P003", "a divisor is at least 1")
            form = Quotient.of(form, divisor, remainder)
            if _height(form, _dividends) > MAX_DEPTH:
                line.fail("PD-P003", f"more than {MAX_DEPTH} quotients stand one inside the other")
        return form

    def _level(self) -> int:
        line = self.line
        line.expect("{")
        level = line.integer("a level")
        if level >= self.depth:
            line.next -= 1
            what = f"iterator {{{level}}} inside {self.depth} scopes"
            line.fail("PD-P009", what, hint="{0} is the outermost")
        line.expect("}")
        return level

    def guard(self) -> tuple[AffineExpr, ...]:
        """Conditions on iterators, joined by ``and``, as forms that must not be negative."""
        forms = list(self._condition())
        while self.line.accept("and"):
            forms += self._condition()
        return tuple(forms)

    def _condition(self) -> tuple[AffineExpr, ...]:
        token = self.line.peek()
        if token and self.dtype_of.get(token.text) in FLOAT_DTYPES:
            hint = "select(condition, a, b) chooses by values"
            self.line.fail(
                "PD-P010", f"a condition after `if` is about iterators, not {token.text}", hint=hint
            )
        left = self.index()
        for sign, factor, offset in ((">=", 1, 0), (">", 1, -1), ("<=", -1, 0), ("<", -1, -1)):
            if self.line.accept(sign):
                difference = left.plus(self.index(), -1)
                return (AffineExpr(offset).plus(difference, factor),)
        hint = _CONDITIONS.get(token.text, "") if (token := self.line.peek()) else ""
        self.line.fail("PD-P002", "expected a comparison: <, <=, > or >=", hint=hint)

    # -- values, first pass: comparison > sum > product > unary > atom -------------------------------

    def infix(self, level: int) -> _Value:
        if level > _TIGHTEST:
            return self._unary()
        value = self.infix(level + 1)
        while (token := self.line.peek()) and _SIGN_TO_INFIX.get(token.text, ("", -1))[1] == level:
            self.line.next += 1
            name = _SIGN_TO_INFIX[token.text][0]
            value = _Value(token, name=name, arguments=(value, self.infix(level + 1)))
            if level == _LOOSEST:
                break
        return value

    def _unary(self) -> _Value:
        line = self.line
        token = line.peek()
        if token is None or token.text != "-":
            return self._atom()
        line.next += 1
        following = line.peek()
        if following and (following.kind == "number" or following.text == "inf"):
            line.next += 1
            return _Value(following, sign=-1)
        line.nested()
        value = _Value(token, name="neg", arguments=(self._unary(),))
        line.depth -= 1
        return value

    def _atom(self) -> _Value:
        line = self.line
        token = line.peek()
        if token is None:
            line.fail("PD-P002", "expected a value, found end of line")
        if token.kind == "number" or token.text == "inf":
            line.next += 1
            return _Value(token, sign=1)
        if token.text == "{":
            return _Value(token, AffineExpr.level(self._level()))
        line.nested()
        value = self._compound(token)
        line.depth -= 1
        return value

    def _compound(self, token: Token) -> _Value:
        line = self.line
        if line.accept("("):
            value = self.infix(_LOOSEST)
            line.expect(")")
            return value
        if token.text == "index":
            line.next += 1
            line.expect("(")
            index = self.index()
            line.expect(")")
            return _Value(token, index)
        if token.text in (*DTYPES, *OPERATIONS) and self._is_call(token):
            return self._call(token)
        return _Value(token, self.access())

    def _is_call(self, token: Token) -> bool:
        """True unless the name may be an array's, and no bracket says that it is called."""
        following = self.line.peek(1)
        return token.text in RESERVED or bool(following and following.text == "(")

    def _call(self, token: Token) -> _Value:
        line = self.line
        line.next += 1
        line.expect("(")
        arguments = [self.infix(_LOOSEST)]
        while line.accept(","):
            arguments.append(self.infix(_LOOSEST))
        line.expect(")")
        wanted = 1 if token.text in DTYPES else OPERATIONS[token.text].arity
        if len(arguments) != wanted:
            given = f"{len(arguments)} {'is' if len(arguments) == 1 else 'are'} given"
            what = f"{token.text} takes {number_of(wanted, 'arguments')}, {given}"
            hint = ", ".join("abc"[:wanted])
            hint = f"write {token.text}({hint if not OPERATIONS[token.text].chooses else 'condition, a, b'})"
            if len(arguments) == 1 and token.text in ACCUMULATIONS:
                hint += (
                    f"; {ACCUMULATIONS[token.text]} combines many: s[] {ACCUMULATIONS[token.text]} x[{{0}}]"
                )
            line.fail("PD-P002", what, token.column, len(token.text), hint)
        return _Value(token, name=token.text, arguments=tuple(arguments))

    # -- values, second pass: dtypes -----------------------------------------------------------------

    def dtype(self, value: _Value) -> str | None:
        """The dtype that a value has by itself; None when it takes its neighbours'."""
        if isinstance(value.leaf, Access):
            return self.dtype_of[value.leaf.array]
        if value.name in DTYPES:
            return value.name
        if not value.name:
            return None
        meaning = OPERATIONS[value.name]
        if meaning.compares:
            return "bool"
        operands = meaning.operands(value.arguments)
        return next((found for a in operands if (found := self.dtype(a))), None)

    def typed(self, value: _Value, dtype: str) -> Expression:
        """``value`` where one of ``dtype`` is needed."""
        if value.sign:
            return self._literal(value, dtype)
        if isinstance(value.leaf, AffineExpr):
            return IndexValue(value.leaf, dtype)
        if isinstance(value.leaf, Access):
            self._agree(value, dtype, value.leaf.text)
            return Read(value.leaf, dtype)
        if value.name in DTYPES:
            self._agree(value, dtype, f"{value.name}(...)")
            default = CODE_SOURCE if dtype in CODED_DTYPES else INDEX_DTYPE
            source = self.dtype(value.arguments[0]) or default
            return Cast(self.typed(value.arguments[0], source), dtype)
        return self._operation(value, dtype)

    def _operation(self, value: _Value, dtype: str) -> Operation:
        meaning = OPERATIONS[value.name]
        first: tuple[Expression, ...] = ()
        operands, kind = value.arguments, dtype
        if meaning.compares:
            self._agree(value, dtype, f"a comparison {value.token.text}")
            kind = next((found for a in operands if (found := self.dtype(a))), None) or INDEX_DTYPE
        if meaning.chooses:
            first, operands = (self.typed(operands[0], "bool"),), operands[1:]
        if kind not in meaning.dtypes:
            what = f"{value.name} has no meaning for {kind}"
            other = "i32" if kind in NARROW_DTYPES else "f32"
            hint = f"compute in {other}: {other}(x) reads a value of {kind}, {kind}(x) converts to it"
            hint = hint if kind in UNCOMPUTED_DTYPES else ""
            self.line.fail("PD-P010", what, value.token.column, len(value.token.text), hint)
        typed = tuple([self.typed(a, kind) for a in operands])
        return Operation(value.name, (*first, *typed), dtype)

    def _agree(self, value: _Value, dtype: str, text: str) -> None:
        found = self.dtype(value)
        if found != dtype:
            token, hint = value.token, f"write the conversion: {dtype}({text})"
            if value.name in OPERATIONS and OPERATIONS[value.name].compares:
                says = f"a {token.text} b" if token.text in _SIGN_TO_INFIX else f"{token.text}(a, b)"
                hint = f"select({says}, x, y) chooses, and {dtype}({says}) is 1 or 0"
            what = f"{text} is {found} where {dtype} is needed"
            self.line.fail("PD-P010", what, token.column, len(token.text), hint)

    def _literal(self, value: _Value, dtype: str) -> Literal:
        token, line = value.token, self.line
        if dtype in CODED_DTYPES:
            what = f"a number has no dtype {dtype}: it is converted"
            hint = f"write {dtype}({'-' if value.sign < 0 else ''}{token.text})"
            line.fail("PD-P010", what, token.column, len(token.text), hint)
        if dtype in FLOAT_DTYPES:
            number = value.sign * float(token.text)
            if token.text != "inf" and abs(number) == float("inf"):
                line.fail("PD-P003", "a number beyond the range of floats", token.column, len(token.text))
            return Literal(number, dtype)
        low, high = integer_bounds(dtype)
        if not token.text.isdigit():
            hint = ""
            if token.text == "inf":
                end, word = (low, "smallest") if value.sign < 0 else (high, "largest")
                hint = f"integers have no infinity; the {word} value of {dtype} is {end}"
            line.fail("PD-P010", f"{token.text} is no value of {dtype}", token.column, len(token.text), hint)
        whole = value.sign * int(token.text) if len(token.text) < 30 else high + 1
        if not low <= whole <= high:
            line.fail("PD-P010", f"{token.text} is no value of {dtype}", token.column, len(token.text))
        return Literal(whole, dtype)
