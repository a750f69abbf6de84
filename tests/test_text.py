"""The textual form: what is printed parses to the same program; what is wrong is shown where."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import DIALECT, RULES

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.expression import Access, AffineExpr, Cast, Literal, Operation, Quotient, Read
from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.core.text import MAX_CHARACTERS, MAX_LINES, parse
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk

SOFTMAX = """\
kernel softmax(x) -> y
x f32 [8,16] heap
m f32 [8] heap
e f32 [8,16] heap
s f32 [8] heap
y f32 [8,16] heap

8
| m[{0}] = -inf
| 16 m[{0}] max= x[{0},{1}]
8 16 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
8
| s[{0}] = 0
| 16 s[{0}] += e[{0},{1}]
8:p 16:v y[{0},{1}] = e[{0},{1}] / s[{0}]
"""


def test_canonical_text_is_a_fixed_point() -> None:
    assert parse(SOFTMAX).text == SOFTMAX


@given(st.integers(0, 10**9), st.integers(1, 8), st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_printed_programs_parse_to_themselves(seed: int, statements: int, moves: int) -> None:
    rng = Random(seed)
    program = random_walk(rng, random_program(rng, statements), RULES, moves).program
    again = parse(program.text, DIALECT)
    assert again == program and again.text == program.text


VALUES = st.floats(allow_nan=False).map(lambda v: Literal(v, "f64"))
READS = st.just(Read(Access("x", (AffineExpr(),)), "f64"))


def forms() -> st.SearchStrategy[AffineExpr]:
    """Subscripts that are never negative, with quotients of quotients."""
    term = st.tuples(st.integers(0, 2), st.integers(1, 9)).map(lambda t: AffineExpr.of({t[0]: t[1]}))

    def extend(inner: st.SearchStrategy[AffineExpr]) -> st.SearchStrategy[AffineExpr]:
        total = st.tuples(inner, inner, st.integers(1, 4), st.integers(0, 9))
        quotient = st.tuples(inner, st.integers(1, 9), st.booleans())
        return total.map(lambda t: t[0].plus(t[1], t[2]).plus(AffineExpr(t[3]))) | quotient.map(
            lambda t: Quotient.of(*t)
        )

    return st.recursive(term, extend, max_leaves=6)


def expressions() -> st.SearchStrategy[object]:
    """Values of f64: arithmetic, functions, and selections by comparisons."""

    def extend(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        binary = st.tuples(st.sampled_from(["add", "sub", "mul", "div", "max", "min"]), inner, inner)
        unary = st.tuples(st.sampled_from(["neg", "abs", "sqrt", "exp", "log", "erf", "floor"]), inner)
        sign = st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])
        # One side has a dtype of its own: two literals would be compared as integers.
        compared = st.tuples(sign, READS, inner).map(lambda t: Operation(t[0], (t[1], t[2]), "bool"))
        both = st.tuples(st.sampled_from(["and", "xor", "ne"]), compared, compared)
        condition = compared | both.map(lambda t: Operation(t[0], (t[1], t[2]), "bool"))
        chosen = st.tuples(condition, inner, inner).map(lambda t: Operation("select", t, "f64"))
        return (
            binary.map(lambda t: Operation(t[0], (t[1], t[2]), "f64"))
            | unary.map(lambda t: Operation(t[0], (t[1],), "f64"))
            | chosen
        )

    return st.recursive(VALUES | READS, extend, max_leaves=12)


@given(expressions())
@settings(max_examples=200, deadline=None)
def test_precedence_round_trips(value: object) -> None:
    head = "kernel k(x) -> y\nx f64 [1] heap\ny f64 [1] heap\n\n"
    statement = parse(f"{head}y[0] = {value.text}\n").body[0]  # type: ignore[attr-defined]
    assert isinstance(statement, Statement)
    assert statement.value == value


@given(forms(), st.tuples(*[st.integers(0, 6)] * 3))
@settings(max_examples=300, deadline=None)
def test_subscripts_round_trip_and_keep_their_bounds(form: AffineExpr, point: tuple[int, ...]) -> None:
    size = form.bounds((7, 7, 7))[1] + 1
    head = f"kernel k() -> y\ny i64 [{size}] heap\n\n{size} y[{{0}}] = 0\n"
    program = parse(f"{head}7 7 7 y[{form.text}] = index({form.text}) if {form.text} <= {size}\n")
    assert parse(program.text) == program
    (leaf,) = program.body[1].leaves
    assert leaf.statement.target.subscripts == (form,)
    low, high = form.bounds((7, 7, 7))
    assert low <= form.evaluate(point) <= high


@given(forms(), st.integers(1, 9), st.booleans(), st.tuples(*[st.integers(0, 6)] * 3))
@settings(max_examples=300, deadline=None)
def test_quotients_are_simplified_without_changing_a_value(
    form: AffineExpr, divisor: int, remainder: bool, point: tuple[int, ...]
) -> None:
    value = form.evaluate(point)
    expected = value % divisor if remainder else value // divisor
    assert Quotient.of(form, divisor, remainder).evaluate(point) == expected
    assert Quotient.of(form, divisor, remainder, (7, 7, 7)).evaluate(point) == expected


def test_every_node_carries_its_dtype() -> None:
    program = parse("kernel k(x) -> y\nx f32 [4] heap\ny f64 [4] heap\n\n4 y[{0}] = f64(x[{0}]) + {0} * 2\n")
    scope = program.body[0]
    assert isinstance(scope, Scope)
    statement = scope.body[0]
    assert isinstance(statement, Statement) and isinstance(statement.value, Operation)
    cast, product = statement.value.arguments
    assert (statement.dtype, statement.value.dtype, product.dtype) == ("f64", "f64", "f64")
    assert isinstance(cast, Cast) and (cast.dtype, cast.argument.dtype) == ("f64", "f32")


def test_ids_are_outside_equality_and_text() -> None:
    one, two = parse(SOFTMAX), parse(SOFTMAX.replace("8:p 16:v y", "8:p 16:v  y"))
    assert one == two and "s0" not in one.text
    assert list(one.paths)[:4] == ["s0", "c0", "s1", "c1"]


def test_shared_storage_and_dimension_suffix() -> None:
    text = (
        "kernel k(x) -> y\nx f32 [8] heap\nb f32 [8:N] heap -> t, u\ny f32 [8] heap\n\n"
        "8\n| t[{0}] = x[{0}]\n| u[{0}] = t[{0}] + 1\n| y[{0}] = u[{0}]\n"
    )
    program = parse(text)
    assert program.text == text
    assert program.buffer_of["t"] is program.buffer_of["u"] and program.buffer_of["t"].cells == 1


HEAD = "kernel k(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n"
LONG = "a" * 65

#: (text, code, line, column)
WRONG = [
    ("", "PD-P005", None, None),
    ("8 y[{0}] = 1", "PD-P005", 1, 1),
    ("kernel k(x) -> y", "PD-P005", 1, 1),
    ("kernel k(x) y", "PD-P002", 1, 13),
    ("kernel int8(x) y", "PD-P002", 1, 16),
    ("kernel k(exp) -> y", "PD-P004", 1, 10),
    (f"kernel {LONG}(x) -> y", "PD-P003", 1, 8),
    ("kernel k(x) -> y\nx f33 [8] heap", "PD-P006", 2, 3),
    ("kernel k(x) -> y\nx f32 [0] heap", "PD-P003", 2, 8),
    ("kernel k(x) -> y\nx f32 [8] attic", "PD-P006", 2, 11),
    ("kernel k(x) -> y\nx f32 [8:Q] heap", "PD-P006", 2, 10),
    ("kernel k(x) -> y\nx f32 [99999999999] heap", "PD-P003", 2, 8),
    ("kernel k(x) -> y\nx f32 [2000000000,2000000000] heap", "PD-P003", 2, 1),
    ("kernel k(x) -> y\nx f32 [8] heap\nx f32 [8] heap", "PD-P007", 3, 1),
    (HEAD + "8 y[{0}] = x[{0}] $ 2", "PD-P001", 5, 19),
    (HEAD + "8 y[{0}] = x[{0}] +", "PD-P002", 5, 20),
    (HEAD + "8 y[{0}] = x[{0}] 2", "PD-P002", 5, 19),
    (HEAD + "8 y[{0}] = z[{0}]", "PD-P009", 5, 12),
    (HEAD + "8 y[{0}] = x[{0},{0}]", "PD-P009", 5, 12),
    (HEAD + "8 y[{0}] = x[{1}]", "PD-P009", 5, 15),
    (HEAD + "8 y[{0}] = x[{0}+1]", "PD-P012", 5, 12),
    (HEAD + "8 y[{0}] = exp(x[{0}], 1)", "PD-P002", 5, 12),
    (HEAD + "8 y[{0}] xor= x[{0}]", "PD-P002", 5, 10),
    (HEAD + "8 y[{0}] += x[{0}]", "PD-P013", 5, 3),
    (HEAD + "8 x[{0}] = 1", "PD-P013", 5, 3),
    (HEAD + "8:z y[{0}] = x[{0}]", "PD-P006", 5, 3),
    (HEAD + "0 y[{0}] = x[{0}]", "PD-P003", 5, 1),
    (HEAD + "8", "PD-P008", 5, 2),
    (HEAD + "| y[0] = 1", "PD-P008", 5, 1),
    (HEAD + "8 y[{0}] = 1\n| y[{0}] = 2", "PD-P008", 6, 1),
    (HEAD + "8 y[{0}] = " + "(" * 70 + "1" + ")" * 70, "PD-P003", 5, None),
    (HEAD + "1 " * 65 + "y[0] = 1", "PD-P003", 5, 1),
    ("kernel k(x) -> y\nx f64 [8] heap\ny f32 [8] heap\n8 y[{0}] = x[{0}]", "PD-P010", 4, 12),
    ("kernel k(x) -> y\nx i32 [8] heap\ny i32 [8] heap\n8 y[{0}] = inf", "PD-P010", 4, 12),
    ("kernel k(x) -> y\nx f32 [8:N] heap\ny f32 [8] heap\n8 y[{0}] = x[{0}]", "PD-P011", 1, 10),
    ("kernel k(x) -> y\nx f32 [8] stack\ny f32 [8] heap\n8 y[{0}] = x[{0}]", "PD-P011", 1, 10),
    (HEAD + "32:v y[0] = x[0]", "PD-P015", 5, 1),
    ("kernel k(x) -> y\nx f64 [16] heap\ny f32 [16] heap\n16:v y[{0}] = f32(x[{0}])", "PD-P015", 4, 1),
    ("kernel k(x) -> y\nx i8 [32] heap\ny i8 [32] heap\n32:v y[{0}] = i8(i32(x[{0}]))", "PD-P015", 4, 1),
    (HEAD + "8 y[{0}] = x[{0}] if {0}", "PD-P002", 5, 25),
    (HEAD + "8 y[{0}] = x[{0}+1] if {0} <= 7", "PD-P012", 5, 12),
    (HEAD + "8:v y[{0}] = x[{0}] + index({0}//2)", "PD-P015", 5, 1),
    (HEAD + "8 y[{0}] = index((3-{0})//2)", "PD-P016", 5, 1),
    (HEAD + "8 y[{0}//0] = 1", "PD-P003", 5, 10),
    (HEAD + "8 y[{0}] = x[{0}] < 2", "PD-P010", 5, 19),
    (HEAD + "8 y[{0}] = select(x[{0}], 1, 2)", "PD-P010", 5, 19),
    (HEAD + "8 y[{0}] = shl(x[{0}], 1)", "PD-P010", 5, 12),
    ("kernel k(x) -> y\nx i8 [8] heap\ny i8 [8] heap\n8 y[{0}] = 128", "PD-P010", 4, 12),
    ("kernel k(x) -> y\nx i8 [8] heap\ny i8 [8] heap\n8 y[{0}] = sqrt(x[{0}])", "PD-P010", 4, 12),
    ("a\n" * (MAX_LINES + 1), "PD-P003", None, None),
    (" " * (MAX_CHARACTERS + 1), "PD-P003", None, None),
]


@pytest.mark.parametrize(("text", "code", "line", "column"), WRONG, ids=range(len(WRONG)))
def test_errors_say_where(text: str, code: str, line: int | None, column: int | None) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text, CORE_DIALECT)
    error = caught.value
    assert error.code == code
    if line is not None:
        assert error.place is not None and error.place.line == line
        assert column is None or error.place.column == column
        assert "^" in error.render()


@given(st.text(alphabet="kernl(x)->y 0123456789{}[]|:uvpfheap32+-*/%<!=.,\n#if", max_size=200))
@settings(max_examples=300, deadline=None)
def test_noise_is_refused_not_crashed_on(noise: str) -> None:
    for text in (noise, HEAD + noise):
        try:
            parse(text)
        except ProgramError:
            pass


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("y[{0}] = expp(x[{0}])", "unknown function 'expp'", "did you mean exp"),
        ("y[{0}] = clamp(x[{0}], 0, 1)", "unknown function 'clamp'", "max(min(x, high), low)"),
        ("y[{0}] = x[{0}] if x[{0}] > 0", "a condition after `if` is about iterators, not x", "select("),
        ("y[{0}] = x[{0}] if {0} == 1", "expected a comparison", "{0} >= 1 and {0} <= 1"),
        ("y[{0}] = x[{0}]**2", "expected an array, found '*'", "pow(x, y)"),
        ("y[{0}] = +x[{0}]", "expected an array, found '+'", "no sign"),
        ("y[{0}] = -infinity", "undeclared array 'infinity'", "-inf"),
        ("y[{0}] = max(x[{0}], -INFINITY)", "undeclared array 'INFINITY'", "-inf"),
        ("y[{0}] = INF", "undeclared array 'INF'", "written inf"),
        ("y[{0}] = -math.inf", "unexpected character '.'", "written inf"),
        ("y = x[{0}]", "expected '['", "written t[]"),
        ("y[{0}] = x[{0}].y", "unexpected character '.'", ""),
        ("y[{0}] = -∞", "unexpected character '∞'", "-inf"),
        ("y[{0}] = NaN", "undeclared array 'NaN'", "inf - inf"),
        ("y[{0}] = -FLT_MAX", "undeclared array 'FLT_MAX'", "3.4028235e38"),
    ],
)
def test_a_slip_has_a_hint(text: str, what: str, hint: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"kernel k(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 {text}\n")
    assert what in raised.value.what and hint in raised.value.hint


@pytest.mark.parametrize(
    ("dtype", "value", "end"), [("i32", "-inf", "-2147483648"), ("u8", "inf", "255"), ("i8", "inf", "127")]
)
def test_integers_have_an_end_instead_of_infinity(dtype: str, value: str, end: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"kernel k(x) -> y\nx {dtype} [4] heap\ny {dtype} [4] heap\n\n4 y[{{0}}] = {value}\n")
    assert raised.value.code == "PD-P010" and raised.value.hint.endswith(f"value of {dtype} is {end}")


def test_an_array_may_be_called_infinity() -> None:
    parse("kernel k(infinity) -> y\ninfinity f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = infinity[{0}]\n")


@pytest.mark.parametrize(("declared", "hint"), [("x f32 [4]", "heap"), ("x f32 [n] heap", "fixed sizes")])
def test_a_slip_in_a_declaration_has_a_hint(declared: str, hint: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"kernel k(x) -> y\n{declared}\ny f32 [4] heap\n\n4 y[{{0}}] = x[{{0}}]\n")
    assert hint in raised.value.hint


SQUARE = "kernel k(x, n) -> y, n\nx f32 [8,8] heap\nn i32 [8,8] heap\ny f32 [8,8] heap\n\n"

#: What a programmer of another language writes -> words of the message, of its reason and of its hint.
HABITS = [
    ("for i in 8:\n  y[i,0] = x[i,0]", "no line begins with 'for'", "number of iterations", "8 y[{0}]"),
    ("for (int i = 0; i < 8; i++) y[i][0] = 1;", "'for'", "number of iterations", "8 y[{0}]"),
    ("for i in range(2, 8):", "'for'", "number of iterations", "write 6 y[{0}+2] = x[{0}+2]"),
    ("for (int i = 3; i < 8; ++i)", "'for'", "number of iterations", "write 5 y[{0}+3]"),
    ("for i in range(8, 2):", "'for'", "number of iterations", "for 8 iterations write 8 y[{0}]"),
    ("for i in range(0, 8, 2):", "'for'", "number of iterations", "for 8 iterations write 8 y[{0}]"),
    ("for (int i = 2; i <= 8; i++)", "'for'", "number of iterations", "write 7 y[{0}+2] = x[{0}+2]"),
    ("8 8 y[{0},{1}] = x[{0},{1}] if {0} > 1 ? 1 : 0", "'?'", "an operation", "as the value, without an if"),
    ("8 8 y[{0},{1}] = 1 if not {0} > 1", "'not' has no meaning", "comparisons", "the opposite comparison"),
    ("8 8 n[{0},{1}] -= 2 if {0} > 2", "'-='", "alone", "write n[{0},{1}] += -2 if {0} > 2"),
    ("8 8 n[{0},{1}] = 0xFFu", "'0xFF' is no number", "decimal", "write 255"),
    ("8 8 n[{0},{1}] = 0o17", "'0o17' is no number", "decimal", "write 15"),
    ("8\n  8 y[{0},{1}] = 1", "indented by blanks", "a bar", "write | 8 y[{0},{1}] = 1"),
    ("8\n\ty[{0},0] = 1", "indented by blanks", "a bar", "write | y[{0},0] = 1"),
    ("8\n8 y[{0},0] = 1", "a scope without a statement", "has 1 bar, the one below it 0", "write | 8 y["),
    ("8\n| | y[{0},0] = 1", "this line has 2 bars", "has 1 bar", "write | y[{0},0] = 1"),
    ("| 8 y[{0},0] = 1", "deeper than any scope", "a line of scopes", "leave out bars"),
    ("8 y[{0},0] = 1\n| y[{0},1] = 2", "has no children", "that one alone", "on a line of their own"),
    ("8 {\n8 y[{0},{1}] = 1\n}", "unexpected", "bars, not braces", "leave out the braces"),
    ("8, 8 y[{0},{1}] = 1", "'8, 8' is no scope", "side by side", "blanks between"),
    ("8:\n| y[{0},0] = 1", "'8:' is no scope", "ends without a sign", "leave out the colon"),
    ("N 8 y[{0},{1}] = 1", "a number of iterations, found 'N'", "fixed sizes", "write the number"),
    ("8 8 y[{0},{1}] = 1.0f", "'1.0f' is no number", "no suffix", "write 1.0"),
    ("8 8 y[{0},{1}] = 0x10", "'0x10' is no number", "decimal", "write 16"),
    ("8 8 y[{0},{1}] = .5", "'.5' is no number", "begins with a digit", "write 0.5"),
    ("8 8 y[{0},{1}] = x[{0},{1}] > 0 ? x[{0},{1}] : 0", "'?'", "an operation", "write select("),
    ("8 8 y[{0},{1}] = 1 > 0 ? (1 > 1 ? 1 : 2) : 3", "'?'", "an operation", "write select(condition, a, b)"),
    ("8 8 y[{0},{1}] = x[{0},{1}] if {0} > 1 else 0", "'else'", "no else", "select({0} > 1"),
    ("8 8 if ({0} > 1) y[{0},{1}] = 1", "no statement begins with 'if'", "stands behind", "if {0} > 1"),
    ("8 8 n[{0},{1}] -= 1", "unknown accumulation '-='", "max= or min= alone", "+= -1"),
    ("8 8 n[{0},{1}]++", "'++' has no meaning", "no sign for a step", "n[{0},{1}] += 1"),
    ("8 --n[{0},0]", "'--' has no meaning", "no sign for a step", "n[{0},0] += -1"),
    ("8 8 y[{0},{1}] = 1 if {0} > 1 && {1} > 1", "'&&'", "joined by a word", "> 1 and {1} > 1"),
    ("8 8 y[{0},{1}] = 1 if {0} > 1 || {1} > 1", "'||'", "hold all together", "repeat the statement"),
    ("8 8 y[{0},{1}] = x[{0},{1}] > 0 && x[{0},{1}] < 1", "'&&'", "with brackets", "and(a, b)"),
    ("8 8 y[{0},{1}] = x[{0},{1}] & 1", "'&' is no operation", "have names", "and(a, b)"),
    ("8 8 y[{0},{1}] = !x[{0},{1}]", "'!'", "with brackets", "not(a)"),
    ("8 8 y[{0},{1}] == 1", "expected '=', found '=='", "== compares", "one ="),
    ("8 8 y[{0},{1}] = x[{0},{1}] % 2", "'%'", "for subscripts", "fmod(a, b)"),
    ("8 8 y[{0},{1}] = (float)x[{0},{1}]", "converts nothing", "like a function", "f32(x[...])"),
    ("8 8 y[{0}][{1}] = 1", "2 dimensions", "one pair of brackets", "write y[{0},{1}]"),
    ("8 8 y[i,j] = x[i,j]", "'i' is no subscript", "{0} is that of the outermost", "x[{0},{1}]"),
    ("8 8 y[{0},{1}] = 1 if i > 0", "'i' is no iterator", "{0} is that of the outermost", "if {0} > 1"),
    ("8 8 y[{0},{1}] = x[{0}/2,0]", "found '/'", "a whole number", "{0}//2"),
    ("8 8 y[{0},{1}] = x[{0}*{1},0]", "expected a coefficient", "constant factor", "x[{0},{1}]"),
    ("8 8 y[:,:] = 1", "found ':'", "one element for each iteration", "a scope for each dimension"),
    ("8 8 y[{0},{1}] = math.exp(x[{0},{1}])", "'math.exp' is no operation", "no module", "exp(...)"),
    ("8 8 y[{0},{1}] = 1;", "';'", "a line of its own", "leave out the ;"),
    ("// comment\n8 8 y[{0},{1}] = 1", "another sign", "one sign for comments", "#"),
    ("8 8 y[{0},{1}] = 1 // comment", "no comment", "divides whole numbers", "a comment starts with #"),
    ("8 8 y[{0},{1}] = 1 /* comment */", "no comment", "divides whole numbers", "a comment starts with #"),
    ("8 8 float t = 1", "a declaration begins with the name", "where the array lies", "t f32 [] heap"),
    ("return y", "no line begins with 'return'", "in its first line", "`show KERNEL`"),
]


@pytest.mark.parametrize(("body", "what", "why", "hint"), HABITS, ids=[body for body, *_ in HABITS])
def test_a_habit_of_another_language_is_answered(body: str, what: str, why: str, hint: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"{SQUARE}{body}\n")
    error = raised.value
    assert what in error.what and why in error.why and hint in error.hint, error.render()
    assert error.place is not None and error.place.line >= 6 and "^" in error.render()


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("y[{0},{1}] -= x[{0},{1}] + 1", "y[{0},{1}] += -(x[{0},{1}] + 1)"),
        ("n[{0},{1}] -= 2", "n[{0},{1}] += -2"),
        ("y[{0},{1}] /= 2 + x[{0},{1}]", "y[{0},{1}] = y[{0},{1}] / (2 + x[{0},{1}])"),
        ("n[{0},{1}] <<= 1", "n[{0},{1}] = shl(n[{0},{1}], 1)"),
        ("y[{0},{1}]++", "y[{0},{1}] += 1"),
        ("y[{0},{1}] = x[{0},{1}] > 0 ? x[{0},{1}] : 0;", "select(x[{0},{1}] > 0, x[{0},{1}], 0)"),
        ("y[{0},{1}] = 2 * (x[{0},{1}] > 0 ? x[{0},{1}] : 0)", "select(x[{0},{1}] > 0, x[{0},{1}], 0)"),
        ("y[{0},{1}] = max(1, x[{0},{1}] > 0 ? 2 : 3)", "select(x[{0},{1}] > 0, 2, 3)"),
        ("y[{0},{1}] = x[{0}][{1}]", "x[{0},{1}]"),
    ],
)
def test_what_is_to_be_written_instead_is_a_statement(written: str, instead: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"{SQUARE}8 8 {written}\n")
    assert raised.value.hint.endswith(instead), raised.value.hint
    statement = instead if "= " in instead else f"y[{{0}},{{1}}] = {instead}"
    parse(f"{SQUARE}8 8 y[{{0}},{{1}}] = 0\n8 8 {statement}\n")


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("float x[8]", "write x f32 [8] heap"),
        ("float x[8][4];", "write x f32 [8,4] heap"),
        ("const double *x", "write x f64 [8] heap"),
        ("x float [8] heap", "write f32"),
        ("x uint8_t [8] heap", "write u8"),
        ("x F32 [8] heap", "write f32"),
        ("x f32 8 heap", "as in x f32 [8,4] heap"),
        ("x: f32 [8] heap", "as in x f32 [8,4] heap"),
        ("x[8] f32 heap", "as in x f32 [8,4] heap"),
        ("x f32 [8][4] heap", "write x f32 [8,4]"),
        ("unsigned int x[8]", "write x u32 [8] heap"),
        ("unsigned x[8]", "write x u32 [8] heap"),
        ("unsigned long long x[8]", "write x u64 [8] heap"),
        ("signed char x[8]", "write x i8 [8] heap"),
        ("long long x", "write x i64 [] heap"),
        ("long double x", "write x f64 [] heap"),
        ("float x[8][4] = {0}", "by a statement: 8 4 x[{0},{1}] = 0"),
        ("float x = 0;", "by a statement: x[] = 0"),
        ("x f32 [8] heap = 0", "8 x[{0}] = 0"),
    ],
)
def test_a_declaration_of_another_language_is_answered(declared: str, words: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"kernel k(x) -> y\n{declared}\ny f32 [8] heap\n\n8 y[{{0}}] = 1\n")
    assert words in raised.value.hint and raised.value.place is not None and raised.value.place.line == 2


@pytest.mark.parametrize(
    "first",
    ["void f(float *x)", "kernel f(x)", "kernel f(float x) -> y", "kernel f(x) => y", "kernel f(x) -> y:"],
)
def test_a_first_line_of_another_language_is_answered(first: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"{first}\nx f32 [8] heap\n")
    assert "kernel NAME(x, ...) -> y, ..." in raised.value.hint


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("exp2f(x[{0},{1}])", "write exp2: "),
        ("fmaxf(x[{0},{1}], 0)", "write max(a, b)"),
        ("float(n[{0},{1}])", "f32(x[...])"),
        ("sum(x[{0},{1}])", "an accumulation"),
        ("max(x[{0},{1}])", "s[] max= x[{0}]"),
        ("true", "1 or 0"),
        ("M_PI", "3.14159"),
        ("x[{0},{1}] > 0", "select(a > b, x, y)"),
    ],
)
def test_a_function_of_another_language_is_answered(value: str, words: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(f"{SQUARE}8 8 y[{{0}},{{1}}] = {value}\n")
    assert words in raised.value.hint, raised.value.render()


def test_arrays_may_have_the_names_of_other_languages() -> None:
    names = ("for", "float", "int", "x_for", "true", "math", "sum", "not_a_word", "relu")
    declared = "".join(f"{name} f32 [8] heap\n" for name in names)
    body = "".join(f"8 {b}[{{0}}] = {a}[{{0}}]\n" for a, b in zip(names, names[1:], strict=False))
    parse(f"kernel while({names[0]}) -> {names[-1]}\n{declared}\n{body}")
