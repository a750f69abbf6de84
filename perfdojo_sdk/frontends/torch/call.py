"""One call of an ATen operator as rows see it: values, plain arguments by name, and the graph to add to.

Nothing here needs PyTorch: tensors are values of the graph by now, dtypes have the language's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.operators.elementwise import cast_text
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import broadcast
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float, levels, number

Row: TypeAlias = "Callable[[Call], Value | Sequence[Value | None]]"
"""Makes the results of an operator; None for one that nobody uses."""
Operand: TypeAlias = "Value | float | int | bool"
#: Dtypes of floats that are computed in f32 and rounded.
HALVES = ("f16", "bf16")


@dataclass(frozen=True)
class Result:
    """An output as PyTorch's fake kernel describes it."""

    shape: Shape
    dtype: str


class Call:
    """A call: ``c["self"]`` is a tensor, the other methods give plain arguments."""

    def __init__(
        self,
        builder: Builder,
        op: str,
        arguments: Mapping[str, Any],
        results: Sequence[Result],
        used: Sequence[bool],
    ) -> None:
        self.b, self.op, self.arguments = builder, op, arguments
        self.results, self._used = tuple(results), tuple(used)

    @property
    def dtype(self) -> str:
        """The dtype of the first result."""
        return self.results[0].dtype

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        return self.results[0].shape

    def uses(self, k: int) -> bool:
        """True if somebody reads result ``k``."""
        return k < len(self._used) and self._used[k]

    # -- tensors

    def __getitem__(self, name: str) -> Value:
        value = self.maybe(name)
        if value is None:
            raise Malformed(f"{self.op} lacks {name}")
        return value

    def maybe(self, name: str) -> Value | None:
        """A tensor, or None."""
        value = self.arguments.get(name)
        if value is not None and not isinstance(value, Value):
            raise Refused(Reason.CHOICE, f"{self.op} with {name} that is no tensor")
        return value

    def values(self, name: str) -> list[Value]:
        """A list of tensors."""
        found = self.arguments.get(name) or []
        if not all(isinstance(each, Value) for each in found):
            raise Refused(Reason.CHOICE, f"{self.op} with {name} of other things than tensors")
        return list(found)

    def operand(self, name: str) -> Operand:
        """A tensor or a number."""
        value = self.arguments.get(name)
        if not isinstance(value, Value | bool | int | float):
            raise Refused(Reason.CHOICE, f"{self.op} with {name} = {ascii(value)[:40]}")
        return value

    # -- plain arguments

    def has(self, name: str) -> bool:
        return self.arguments.get(name) is not None

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.arguments.get(name)
        value = default if value is None else value
        if not isinstance(value, int):
            raise Refused(Reason.CHOICE, f"{self.op} with {name} = {ascii(value)[:40]}")
        return int(value)

    def flag(self, name: str) -> bool:
        return bool(self.whole(name, 0))

    def real(self, name: str, default: float | None = None) -> float:
        value = self.arguments.get(name)
        value = default if value is None else value
        if not isinstance(value, int | float):
            raise Refused(Reason.CHOICE, f"{self.op} with {name} = {ascii(value)[:40]}")
        return float(value)

    def number(self, name: str, default: float | int) -> float | int:
        """As it is given: an integer of 64 bits is no float."""
        value = self.arguments.get(name)
        return value if isinstance(value, int) else self.real(name, default)

    def text(self, name: str, default: str = "") -> str:
        value = self.arguments.get(name)
        return default if value is None else str(value)

    def ints(self, name: str) -> list[int]:
        """Integers; a single one is a list of one, and nothing is empty."""
        value = self.arguments.get(name)
        if value is None:
            return []
        found = [value] if isinstance(value, int) else list(value)
        if not all(isinstance(each, int) for each in found):
            raise Refused(Reason.CHOICE, f"{self.op} with {name} = {ascii(value)[:40]}")
        return [int(each) for each in found]

    def each(self, name: str, rank: int, default: int) -> list[int]:
        """An integer for each of ``rank`` dimensions; one integer counts for all."""
        found = self.ints(name)
        return found if len(found) == rank else (found or [default]) * rank


def pointwise(
    c: Call,
    name: str,
    formula: Callable[..., str],
    *operands: Operand,
    dtype: str = "",
    computed: str = "",
    raw: bool = False,
) -> Value:
    """A function of the elements of operands, broadcast. ``computed``: the dtype to which operands are
    converted, by default that of the result; ``raw``: the formula gives a value of the result's dtype."""
    dtype = dtype or c.dtype
    kind = computed_in(computed or dtype)
    shape = broadcast(*[v.shape for v in operands if isinstance(v, Value)])
    k = Writer(c.b, name)
    names, texts = levels(len(shape)), []
    for each in operands:
        if not isinstance(each, Value):
            texts.append(literal(each, kind))
            continue
        shift, place = len(shape) - each.rank, k.read(each)
        element = place([0 if s == 1 else names[n + shift] for n, s in enumerate(each.shape)])
        texts.append(cast_text(element, each.dtype, kind))
    y, text = k.write(shape, dtype), formula(*texts)
    k.nest(shape, f"{y(names)} = {text if raw else cast_text(text, kind, dtype)}")
    return k.done()[0]


def in_single(row: Row, when: Callable[[Call], bool] = lambda c: True) -> Row:
    """The row with operands and results of f16 and bf16 in f32, which are rounded at the end: PyTorch keeps
    more than such a dtype holds within one of its operators."""

    def made(c: Call) -> Value | Sequence[Value | None]:
        if c.dtype not in HALVES or not when(c):
            return row(c)

        def narrow(value: Value, result: Result) -> Value:
            if value.dtype == result.dtype:
                return value
            return pointwise(c, "narrow", lambda a: a, value, dtype=result.dtype)

        def wide(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [wide(each) for each in value]
            half = isinstance(value, Value) and value.dtype in HALVES
            return pointwise(c, "widen", lambda a: a, value, dtype="f32") if half else value

        arguments = {name: wide(value) for name, value in c.arguments.items()}
        results = [Result(r.shape, "f32" if r.dtype in HALVES else r.dtype) for r in c.results]
        found = row(Call(c.b, c.op, arguments, results, c._used))
        if isinstance(found, Value):
            return narrow(found, c.results[0])
        return [v and narrow(v, result) for v, result in zip(found, c.results, strict=True)]

    return made


def literal(value: float, dtype: str) -> str:
    """A number as text that stands anywhere in a formula."""
    if not is_float(dtype) and value != int(value):
        raise Refused(Reason.CHOICE, f"the number {value} among elements of {dtype}")
    text = number(value, dtype)
    return f"({text})" if text.startswith("-") else text


def promoted(*operands: Operand) -> str:
    """The dtype in which PyTorch combines operands: dimensions count before scalars, floats before integers
    before truth values."""
    ranks: dict[int, str] = {}
    for each in operands:
        if isinstance(each, Value):
            dtype, weight = each.dtype, 2 if each.rank else 1
        else:
            dtype = "bool" if isinstance(each, bool) else "i64" if isinstance(each, int) else "f32"
            weight = 0
        ranks[weight] = _wider(ranks[weight], dtype) if weight in ranks else dtype
    found = ""
    for weight in sorted(ranks, reverse=True):
        if not found or _category(ranks[weight]) > _category(found):
            found = ranks[weight]
    return found


def _category(dtype: str) -> int:
    return 2 if dtype in FLOAT_DTYPES else 0 if dtype == "bool" else 1


_WIDTHS = ("bool", "u8", "i8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64")


def _wider(one: str, other: str) -> str:
    pair = {one, other}
    if pair == {"f16", "bf16"}:
        return "f32"
    if pair == {"u8", "i8"}:
        return "i16"
    return max(one, other, key=_WIDTHS.index)
