"""A program as mathematics: its equations in Unicode, for a terminal, or in LaTeX, for a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.dtypes import CODED_DTYPES, FLOAT_DTYPES
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.views.equations import Equation, Item, Loop, equations, shared_dimensions
from perfdojo_sdk.views.notation import LATEX, PRODUCT, SUM, UNICODE, Writer, elements

_NEEDS = {"add": (SUM, PRODUCT), "mul": (PRODUCT, PRODUCT), "max": (0, PRODUCT), "min": (0, PRODUCT)}
"""Accumulation -> the precedences that its start and its value need beside the operator."""


_Ranges: TypeAlias = Callable[[Writer, Sequence[Loop], Sequence[AffineExpr]], str]


class Right(NamedTuple):
    """The right-hand side of an equation, around its big operator, if it has one."""

    before: str
    operator: str
    over: str
    """The operator's range."""
    after: str
    closing: str = ""


def unicode_math(program: Program, dialect: Dialect = CORE_DIALECT) -> str:
    """The equations as lines of text; the range of a big operator stands below it."""
    writer = Writer.of(program, UNICODE)
    arrays = [", ".join(_shape(program, a, " \u00d7 ") for a in g) for g in (program.given, program.outputs)]
    lines = [f"{program.name}: {arrays[0]} \u2192 {arrays[1]}".replace(":  ", ": "), ""]
    lines += _unicode_block(writer, equations(program, dialect), "")
    remarks = list(_remarks(program))
    return "\n".join([*lines, *([""] if remarks else []), *remarks]) + "\n"


def latex_math(program: Program, dialect: Dialect = CORE_DIALECT) -> str:
    """The equations as an ``align*`` environment of amsmath."""
    writer = Writer.of(program, LATEX)
    rows = [row for item in equations(program, dialect) for row in _latex_rows(writer, item, 0)]
    comments = [f"% {program.header}", *(f"% {remark}" for remark in _remarks(program))]
    return "\n".join([*comments, r"\begin{align*}", *(f"{row} \\\\" for row in rows), r"\end{align*}"]) + "\n"


def _shape(program: Program, array: str, times: str) -> str:
    buffer = program.buffer_of[array]
    real = buffer.dtype in (*FLOAT_DTYPES, *CODED_DTYPES)
    kind = "\u211d" if real else "\U0001d539" if buffer.dtype == "bool" else "\u2124"
    dtype = "" if buffer.dtype in ("f32", "bool") else f" ({buffer.kind})"
    return f"{array} \u2208 {kind}[{times.join(map(str, buffer.shape))}]{dtype}"


def _remarks(program: Program) -> Iterator[str]:
    """Remarks on what the equations do not show: elements of tables, names that share memory."""
    for buffer in program.buffers:
        if buffer.values is not None:
            yield f"{buffer.name} = {elements(buffer)}"
    for buffer in program.buffers:
        if len(buffer.arrays) > 1:
            yield f"{', '.join(buffer.arrays)} are names of one array"
    for array, dimension in shared_dimensions(program):
        yield f"all indices of dimension {dimension} of {array} share one element"


def _right(writer: Writer, equation: Equation, ranges: _Ranges) -> Right:
    """Take an equation's right-hand side apart."""
    operation, start = equation.operation, equation.start
    if operation is None:
        return Right("", "", "", writer.expression(equation.value))
    start_needs, value_needs = _NEEDS.get(operation, (PRODUCT, PRODUCT))
    bracketed = operation not in writer.notation.signs
    operator = writer.notation.big.get(operation, operation) if equation.over else ""
    over = ranges(writer, equation.over, equation.terms) if equation.over else ""
    value = writer.expression(equation.value, 0 if bracketed and not operator else value_needs)
    if start is None:
        return Right("", operator, over, value)
    first = writer.expression(start, start_needs)
    if bracketed:
        name = writer.notation.big.get(operation, operation)
        left, right = writer.notation.brackets.split("{0}")
        return Right(f"{name}{left}{first}, ", operator, over, value, right)
    sign = writer.notation.forms[operation].text.format(first, "")
    return Right(sign, operator, over, value)


# -- Unicode -----------------------------------------------------------------------------------------


def _unicode_block(writer: Writer, items: Sequence[Item], indent: str) -> Iterator[str]:
    """The lines of some items; equations that follow each other align."""
    group: list[Equation] = []
    for item in items:
        if isinstance(item, Equation):
            group.append(item)
            continue
        yield from _unicode_equations(writer, group, indent)
        group = []
        yield f"{indent}for {_ranges(writer, item.loops)}:"
        yield from _unicode_block(writer, item.body, indent + "    ")
    yield from _unicode_equations(writer, group, indent)


def _unicode_equations(writer: Writer, group: list[Equation], indent: str) -> Iterator[str]:
    lefts = [writer.access(e.target) for e in group]
    rights = [_stacked(_right(writer, e, _ranges)) for e in group]
    left_width = max(map(len, lefts), default=0)
    right_width = max((len(top) for top, _ in rights), default=0)
    for equation, left, (top, below) in zip(group, lefts, rights):
        sign = "=" if equation.defines else "\u2190"
        ranges = _ranges(writer, equation.loops, equation.guard)
        ranges += ", at once" if equation.together else ""
        yield f"{indent}{left:{left_width}} {sign} {top:{right_width}}   {ranges}".rstrip()
        if below:
            yield f"{indent}{'':{left_width}}   {below}"


def _stacked(right: Right) -> tuple[str, str]:
    """A right-hand side on two lines, the second for the range of its big operator."""
    if not right.operator:
        return right.before + right.after + right.closing, ""
    ranges = right.over.replace(" ", "")
    width = max(len(right.operator), len(ranges))
    top = f"{right.before}{right.operator:^{width}} {right.after}{right.closing}"
    return top, " " * len(right.before) + f"{ranges:^{width}}".rstrip()


def _ranges(writer: Writer, loops: Sequence[Loop], guard: Sequence[AffineExpr] = ()) -> str:
    ranges = [f"{writer.letter(loop.level)} < {loop.size}" for loop in loops]
    return ", ".join([*ranges, *writer.conditions(guard)])


# -- LaTeX -------------------------------------------------------------------------------------------


def _latex_rows(writer: Writer, item: Item, depth: int) -> Iterator[str]:
    indent = r"\quad " * depth
    if isinstance(item, Equation):
        sign = "=" if item.defines else r"\leftarrow"
        right = _right(writer, item, _latex_ranges)
        operator = f"{right.operator}_{{{right.over}}} " if right.operator else ""
        ranges = _latex_ranges(writer, item.loops, item.guard)
        where = f" && {ranges}" if ranges else ""
        where += r"\text{, at once}" if item.together else ""
        value = f"{right.before}{operator}{right.after}{right.closing}"
        yield f"{indent}{writer.access(item.target)} &{sign} {value}{where}"
    else:
        yield rf"{indent}&\text{{for }} {_latex_ranges(writer, item.loops)}\text{{:}}"
        for inner in item.body:
            yield from _latex_rows(writer, inner, depth + 1)


def _latex_ranges(writer: Writer, loops: Sequence[Loop], guard: Sequence[AffineExpr] = ()) -> str:
    ranges = [rf"0 \le {writer.letter(loop.level)} < {loop.size}" for loop in loops]
    return r",\ ".join([*ranges, *writer.conditions(guard)])
