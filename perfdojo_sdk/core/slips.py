"""Words for what a programmer of another language writes by habit: a loop with ``for``, ``1.0f``, ``x -= y``.

A line is looked at only after the parser has refused it, so that no program is read in another way. A row
of :data:`_HABITS` is a pattern that has to cover the place of the error, or else to begin the line, with the
reason and with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from perfdojo_sdk.core.dtypes import DTYPES
from perfdojo_sdk.core.operations import OPERATIONS

#: Most characters of a line that is looked at; patterns take longer for longer ones.
_LONGEST = 500

#: Names of dtypes in other languages -> ours.
OTHER_DTYPES: Mapping[str, str] = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "__half": "f16",
    "_Float16": "f16",
    "__bf16": "bf16",
    "bfloat16": "bf16",
    "char": "i8",
    "short": "i16",
    "int": "i32",
    "long": "i64",
    "unsigned": "u32",
    "size_t": "u64",
    "_Bool": "bool",
    "boolean": "bool",
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"fp{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{
        f"{sign}int{bits}{end}": f"{sign or 'i'}{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
        for end in ("", "_t")
    },
}

#: Functions of other languages that have another name here, or none -> what to write.
OTHER_FUNCTIONS: Mapping[str, str] = {
    "fmax": "write max(a, b)",
    "fmin": "write min(a, b)",
    "maximum": "write max(a, b)",
    "minimum": "write min(a, b)",
    "fabs": "write abs(x)",
    "ln": "write log(x)",
    "lround": "write round(x)",
    "rint": "write round(x)",
    "nearbyint": "write round(x)",
    "mod": "write rem(a, b) of integers, fmod(a, b) of floats",
    "where": "write select(condition, a, b)",
    "fma": "write a * b + c",
    "sum": "a sum is an accumulation: s[] = 0, and after it 8 s[] += x[{0}]",
    "mean": "a mean is an accumulation: s[] = 0, and after it 8 s[] += x[{0}] / 8",
    "range": "a loop is its number of iterations alone: 8 y[{0}] = x[{0}]",
}

#: What a declaration looks like.
DECLARED = "write NAME DTYPE [SIZES] LOCATION, as in x f32 [8,4] heap"
#: What the first line looks like.
INTERFACE = "write kernel NAME(x, ...) -> y, ...: names alone, since lines below declare dtypes and sizes"


class Slip(NamedTuple):
    """The words about a habit, ``what`` only if the parser's own are poor, and its place."""

    what: str
    why: str
    hint: str
    column: int
    length: int


@dataclass(frozen=True)
class _Habit:
    """A pattern of a line, whose group ``at``, or else all of it, is underlined. A hint may depend on it."""

    pattern: re.Pattern[str]
    why: str
    hint: str | Callable[[re.Match[str]], str]
    what: str = ""


def slip(source: str, column: int) -> Slip | None:
    """The habit of another language at ``column`` of a line that was refused, if there is one."""
    if len(source) > _LONGEST:
        return None
    for habit in _HABITS:
        for match in habit.pattern.finditer(source.partition("#")[0]):
            of_line = habit.pattern.pattern.startswith("^")
            if of_line or match.start() < column <= match.end() + 1:
                begin, end = match.span("at") if "at" in match.groupdict() else match.span()
                hint = habit.hint if isinstance(habit.hint, str) else habit.hint(match)
                what = habit.what.format(match["at"] if "at" in match.groupdict() else match[0])
                return Slip(what, habit.why, hint, begin + 1, end - begin)
    return None


def function_hint(name: str) -> str:
    """The advice on a function that C or Python has; empty for an unknown one."""
    for known in (name, name.removesuffix("f"), name.removesuffix("l")):
        if known in OTHER_FUNCTIONS:
            return OTHER_FUNCTIONS[known]
        if known in OPERATIONS:
            return f"write {known}: an operation computes in the dtype of its operands"
    if name in OTHER_DTYPES:
        return f"a conversion is {OTHER_DTYPES[name]}(x[...])"
    return ""


# -- hints that depend on the line -------------------------------------------------------------------------


def _loop(match: re.Match[str]) -> str:
    in_python = r"\bin\s+(?:range\s*\(\s*)?(?:(?P<first>\d+)\s*,\s*)?(?P<end>\d+)\s*[):]"
    in_c = r"=\s*(?P<first>\d+)\s*;[^;<]*<(?P<last>=?)\s*(?P<end>\d+)\s*;[^;+]*\+\+"
    found = re.search(in_python, match.string) or re.search(in_c, match.string)
    first, n, known = 0, 8, "for 8 iterations "
    if found is not None:
        begin = int(found["first"] or 0)
        count = int(found["end"]) - begin + bool(found.groupdict().get("last"))
        if count > 0:
            first, n, known = begin, count, ""
    at = f"{{0}}+{first}" if first else "{0}"
    several = f"{n} alone, and below it each statement after a bar: | y[{at}] = ..."
    return f"{known}write {n} y[{at}] = x[{at}]; or {several}"


def _declaration(match: re.Match[str]) -> str:
    words, name = match["dtype"].split(), match["name"]
    dtype = OTHER_DTYPES.get(words[-1], words[-1])
    if len(words) > 1:  # as unsigned long int
        kinds = [word for word in words if word not in ("int", "signed", "unsigned")]
        dtype = OTHER_DTYPES.get(kinds[-1], kinds[-1]) if kinds else "i32"
        if "unsigned" in words:
            dtype = dtype.replace("i", "u")
    sizes = ",".join(re.findall(r"\[\s*(\w+)\s*\]", match["sizes"])) or ("8" if "*" in match["at"] else "")
    hint = f"write {name} {dtype} [{sizes}] heap; [] is the shape of a scalar, and sizes are numbers"
    if not match["value"]:
        return hint
    scopes = re.sub(r"\D+", " ", sizes).strip()
    places = ",".join(f"{{{k}}}" for k in range(len(scopes.split())))
    return f"{hint}; values come by a statement: {scopes} {name}[{places}] = 0".replace(":  ", ": ")


def _choice(match: re.Match[str]) -> str:
    value = re.split(r"\bif\b", match.string)[0]
    if match.start() >= len(value):  # in a condition behind a statement
        return "write select(condition, a, b) as the value, without an if"
    begin, end = _brackets_around(value, match.start())
    parts = [part.strip() for part in re.split(r"[?:]", value[begin:end])]
    if len(parts) != 3 or not all(parts):  # such as a choice in another
        return "write select(condition, a, b)"
    return f"write select({', '.join(parts)})"


def _brackets_around(line: str, at: int) -> tuple[int, int]:
    """The begin and the end of the argument, or of the brackets, around a place; of the statement's value, if
    there are none."""
    ends = {begin.end() for begin in re.finditer(r"(?<![<>=!])=(?!=)", line)}
    depth, begin = 0, at
    while begin and begin not in ends and (depth or line[begin - 1] not in "([,"):
        begin -= 1
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(line[begin], 0)
    depth, end = 0, at
    while end < len(line) and (depth or line[end] not in ")],;"):
        depth += {")": -1, "]": -1, "(": 1, "[": 1}.get(line[end], 0)
        end += 1
    return begin, end


def _compound(match: re.Match[str]) -> str:
    sign = match["at"].removesuffix("=")
    target, (value, *condition) = match["target"], re.split(r"\bif\b", match["value"].strip(" \t;"))
    value, behind = value.strip(" \t;"), "".join(f" if {part.strip()}" for part in condition)
    factor = f"({value})" if re.search(r"[^\w\[\]{},.]", value) else value
    if sign == "-":
        return f"write {target} += -{factor}{behind}"
    if sign == "%":
        return f"write {target} = fmod({target}, {value}){behind} of floats, and rem of integers"
    names = {"&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr"}
    result = f"{names[sign]}({target}, {value})" if sign in names else f"{target} {sign} {factor}"
    return f"write {target} = {result}{behind}"


def _step(match: re.Match[str]) -> str:
    alone = "=" not in match.string[: match.start()]
    target = (match["before"] or match["after"]) if alone else None
    return f"write a statement: {target or 'y[{0}]'} += {'-1' if '--' in match[0] else '1'}"


def _number(match: re.Match[str]) -> str:
    return f"write {match['digits']}"


def _power_of_two(match: re.Match[str]) -> str:
    try:
        return f"write {float.fromhex(match[0])!r}"
    except OverflowError:
        return ""


def _one_bracket(match: re.Match[str]) -> str:
    return "write " + re.sub(r"\s*\]\s*\[\s*", ",", match[0].strip())


def _bits(match: re.Match[str]) -> str:
    names = {"&": "and(a, b)", "|": "or(a, b)", "~": "not(a)", "<<": "shl(a, n)", ">>": "shr(a, n)"}
    if match[0] == "^":
        return "write xor(a, b) of integers; a power is pow(x, y)"
    return f"write {names[match[0]]}"


def _qualified(match: re.Match[str]) -> str:
    name = match["name"]
    return f"write {name}(...)" if name in OPERATIONS else function_hint(name) or "leave out the module"


def _block(match: re.Match[str]) -> str:
    return "leave out the braces, and write each line inside of a scope after a bar: | y[{0}] = ..."


_TYPES = "|".join(sorted({*OTHER_DTYPES, *DTYPES}, key=len, reverse=True))
_SCOPES = r"^[\s|]*(?:\d+(?::\w+)?\s+)*"
_ELEMENT = r"[A-Za-z_]\w*(?:\[[^\[\]]*\])+"


def _habit(pattern: str, why: str, hint: str | Callable[[re.Match[str]], str], what: str = "") -> _Habit:
    return _Habit(re.compile(pattern, re.ASCII), why, hint, what)


_ITERATORS = (
    "iterators have numbers instead of names: {0} is that of the outermost scope around the statement"
)

#: The first that fits is told. Those of a whole line come before those of one place.
_HABITS = (
    _habit(
        _SCOPES + r"(?P<at>for|while|do)(?=\s*[({]|\s+\w+\s+in\b|\s+\w+\s*=|\s+[^\[=:]*:?\s*$)",
        "a loop is written as its number of iterations, and its iterator is {0}, in the next loop {1}",
        _loop,
        "no line begins with {0!r}",
    ),
    _habit(
        _SCOPES + r"(?P<at>(?://|/\*).*)",
        "there is one sign for comments",
        "a comment starts with #",
        "a comment is written with another sign",
    ),
    _habit(
        _SCOPES + r"(?P<at>if)\b",
        "a condition stands behind the statement that it is about",
        "write y[{0}] = x[{0}] if {0} > 1; by values, select(x[{0}] > 1, a, b) chooses",
        "no statement begins with {0!r}",
    ),
    _habit(
        _SCOPES
        + r"(?:(?:const|static|extern|register|restrict)\s+)*"
        + rf"(?P<at>(?P<dtype>(?:(?:unsigned|signed|long|short)\s+)*(?:{_TYPES}))\b[\s*]*"
        + rf"\b(?P<name>(?!(?:{_TYPES}|signed|table|packed|heap|stack)\b)[A-Za-z_]\w*))"
        + r"(?P<sizes>(?:\s*\[\s*\w*\s*\])*)\s*(?P<value>=(?!=).*)?(?=$|[;,])",
        "a declaration begins with the name, and says where the array lies",
        _declaration,
        "a declaration begins with the name of the array, not with its dtype",
    ),
    _habit(
        r"^\s*(?P<at>[A-Za-z_]\w*\s*:\s*\w+|[A-Za-z_]\w*\s*\[[\d,\s]*\]\s*:?\s*[A-Za-z_]\w*(?!\s*=)\b)",
        "a declaration is a name, a dtype, the sizes and a location, with blanks between them",
        DECLARED,
        "expected a declaration or a statement, found {0!r}",
    ),
    _habit(
        r"^\s*(?P<at>return|import|from|using|namespace|struct|typedef|def|class|let|var|auto|void|print)"
        rf"\s+(?!(?:{_TYPES}|table|packed)\b)",
        "a program is an interface, declarations, scopes and statements; the outputs stand in its first line",
        "`show KERNEL` prints a program; the first line is kernel NAME(x, ...) -> y, ...",
        "no line begins with {0!r}",
    ),
    _habit(
        _SCOPES + r"(?P<at>\{|\}|\d+(?::\w+)?\s*\{)\s*(?:$|;)",
        "bars, not braces, say what a scope holds",
        _block,
        "unexpected {0!r}",
    ),
    _habit(
        _SCOPES + r"(?P<at>\d+\s*[,x*:]\s*\d+)",
        "scopes inside one another stand side by side; a colon is followed by a kind of scope, as in 8:p",
        "write the numbers with blanks between them: 8 4 y[{0},{1}] = ...",
        "{0!r} is no scope",
    ),
    _habit(
        _SCOPES + r"(?P<at>\d+\s*:)\s*$",
        "a scope ends without a sign; a colon is followed by a kind of scope, as in 8:p",
        "leave out the colon",
        "{0!r} is no scope",
    ),
    _habit(
        rf"^\s*\w+\s+(?:table\s+|packed\s+)?(?:{_TYPES})\s*\[[^\]]*?(?<![:\w])(?P<at>[A-Za-z_]\w*)[^\]]*\]",
        "the text has no names for numbers",
        "sizes are numbers: a kernel is for fixed sizes",
    ),
    _habit(
        rf"^\s*\w+\s+(?:{_TYPES})\s*\[.*\]\s*\w+\s*(?P<at>=)",
        "a declaration gives an array no values",
        "write them by a statement: 8 x[{0}] = 0; constants are a table: x table f32 [2] = {0.5, 1}",
    ),
    _habit(
        _SCOPES + rf"(?P<at>[A-Za-z_]\w*)\s+(?:\w+\s+)*{_ELEMENT}\s*(?:[-+*/]?=)",
        "a scope is its number of iterations: a kernel is for fixed sizes",
        "write the number: 8 y[{0}] = ...",
        "expected a number of iterations, found {0!r}",
    ),
    _habit(
        rf"\(\s*(?P<at>{_TYPES})\s*\)",
        "a conversion is written like a function",
        lambda match: f"write {OTHER_DTYPES.get(match['at'], match['at'])}(x[...])",
        "a dtype in brackets converts nothing",
    ),
    _habit(
        r"(?:/\*|//).*",
        "// divides whole numbers, and only in subscripts and conditions",
        "a comment starts with #; of values write floor(a / b)",
        "no comment, and no operation on values",
    ),
    _habit(
        r"(?<![\w.])(?P<at>(?P<digits>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?:[fFlLuUhH]+))\b",
        "a number has no suffix: it takes the dtype of what it is combined with",
        _number,
        "{0!r} is no number",
    ),
    _habit(
        r"(?<![\w.])0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?[pP][+-]?\d{1,4}",
        "numbers are decimal",
        _power_of_two,
        "{0!r} is no number",
    ),
    _habit(
        r"(?<![\w.])0(?:[xX][0-9a-fA-F]+|[bB][01]+|[oO][0-7]+)(?=[uUlL]*\b)",
        "numbers are decimal",
        lambda match: f"write {int(match[0], 0)}",
        "{0!r} is no number",
    ),
    _habit(
        r"(?<![\w.\])}])\.\d+",
        "a number begins with a digit",
        lambda match: f"write 0{match[0]}",
        "{0!r} is no number",
    ),
    _habit(
        r"(?<![\w.])\d+(?:['_]\d+)+(?:\.\d*)?",
        "digits stand side by side",
        lambda match: f"write {re.sub('[^0-9.]', '', match[0])}",
        "{0!r} is no number",
    ),
    _habit(r"\?", "a choice between values is an operation", _choice),
    _habit(
        r"\belse\b",
        "a condition behind a statement says where it runs, and has no else",
        "write select({0} > 1, a, b), or a second statement with the opposite condition",
    ),
    _habit(
        rf"(?P<target>{_ELEMENT})\s*(?P<at>(?:-|/|%|&|\||\^|<<|>>)=)(?!=)(?P<value>[^#]*)",
        "a statement accumulates by +=, *=, max= or min= alone",
        _compound,
        "unknown accumulation {0!r}",
    ),
    _habit(
        rf"(?P<before>{_ELEMENT})?\s*(?P<at>\+\+|--)\s*(?:(?P<after>{_ELEMENT})\s*;?\s*$|(?=;|$|\)))",
        "there is no sign for a step by one",
        _step,
        "{0!r} has no meaning",
    ),
    _habit(
        r"\bif\b.*?(?P<at>\|\||\bor\b)(?!\s*\()",
        "conditions behind a statement hold all together",
        "repeat the statement, once with each condition; or choose by select(or(a, b), x, y)",
        "{0!r} has no meaning in a condition behind a statement",
    ),
    _habit(
        r"\bif\b.*?(?P<at>\bnot\b|!(?!=))\s*",
        "conditions behind a statement are comparisons",
        "write the opposite comparison, as in if {0} <= 1 for if not {0} > 1",
        "{0!r} has no meaning in a condition behind a statement",
    ),
    _habit(
        r"\bif\b.*?(?P<at>&&)",
        "conditions behind a statement are joined by a word",
        "write and: y[{0},{1}] = 1 if {0} > 1 and {1} > 1",
        "{0!r} has no meaning",
    ),
    _habit(
        r"(?:&&|\band\b(?!\s*\())",
        "between values, and is an operation with brackets",
        "write and(a, b)",
        "{0!r} joins no values",
    ),
    _habit(
        r"(?:\|\||\bor\b(?!\s*\())",
        "between values, or is an operation with brackets",
        "write or(a, b)",
        "{0!r} joins no values",
    ),
    _habit(
        r"(?P<at>!(?!=)|\bnot\b(?!\s*\())\s*",
        "not is an operation with brackets",
        "write not(a)",
        "{0!r} has no meaning",
    ),
    _habit(
        r"(?:<<|>>|[&~^]|\|(?=\s*[\w({]))(?!=)",
        "operations on bits have names",
        _bits,
        "{0!r} is no operation",
    ),
    _habit(
        r"@",
        "a product of matrices is a sum, written element by element",
        "write 8 8 z[{0},{1}] = 0, and after it 8 8 4 z[{0},{1}] += x[{0},{2}] * y[{2},{1}]",
    ),
    _habit(
        rf"{_ELEMENT}\s*(?P<at>==)",
        "== compares two values, and a statement writes",
        "write one =",
        "expected '=', found {0!r}",
    ),
    _habit(
        rf"{_ELEMENT}\s*(?P<at>:=|<-)",
        "a statement writes by one sign",
        "write =",
        "expected '=', found {0!r}",
    ),
    _habit(
        r"(?:^\s*[A-Za-z_]\w*\s+)?[A-Za-z_]\w*\s*(?:\[[^\[\]]*\]\s*){2,}",
        "all subscripts and sizes stand in one pair of brackets",
        _one_bracket,
    ),
    _habit(
        r"\[\s*:|(?<=,)\s*:|\.\.\.",
        "a statement is about one element for each iteration of its scopes",
        "write a scope for each dimension, and its iterator: 8 4 y[{0},{1}] = x[{0},{1}]",
    ),
    _habit(
        r"\b(?:math|np|numpy|torch|std|tl|jnp)\s*(?:\.|::)\s*(?!inf)(?P<name>\w+)",
        "operations stand in no module",
        _qualified,
        "{0!r} is no operation",
    ),
    _habit(
        r"(?<=\w)\[(?:[^\[\]]*?[^\w\[\]])??(?P<at>[A-Za-z_]\w*)\b(?!\s*[\w\[(])",
        _ITERATORS,
        "write x[{0},{1}]",
        "{0!r} is no subscript",
    ),
    _habit(
        r"\bif\s+(?P<at>[A-Za-z_]\w*)\s*[<>=!]",
        _ITERATORS,
        "write the number of the scope: if {0} > 1",
        "{0!r} is no iterator",
    ),
    _habit(
        r"\{\s*(?P<at>[A-Za-z_]\w*)\s*\}",
        _ITERATORS,
        "write the number of the scope: {0}",
        "{{{0}}} is no iterator",
    ),
    _habit(
        r"\}\s*(?P<at>/)(?!/)",
        "a subscript is a whole number",
        "write {0}//2, which rounds down",
    ),
    _habit(
        r"(?<=\})\s*\*\s*\{|(?<=\])\s*\*\s*\{(?=\d+\}\s*[\],])",
        "a subscript is a sum of iterators, each with a constant factor",
        "write a dimension of the array for each iterator: x[{0},{1}]",
    ),
    _habit(r"%", "% is for subscripts and conditions", "write rem(a, b) of integers, fmod(a, b) of floats"),
    _habit(r";", "each statement has a line of its own, which ends without a sign", "leave out the ;"),
)
