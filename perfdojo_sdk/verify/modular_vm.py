"""The modular VM: runs programs in the exact leg's random models, compiled to words for ``modular_vm.c``.

The interpreter is the reference, and is used where there is no C compiler. The VM implements the same models
and schedules and computes the same cells, some hundred times as fast. It reports no errors: an operation
without a value ends the run, and the interpreter then finds the reason.

An :class:`Encoder` caches the words of nests. A move changes one or two nests of a program; the words of the
others are reused.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from math import isinf
from pathlib import Path as FilePath
from typing import NamedTuple, assert_never

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import CODED_DTYPES, FLOAT_DTYPES, bits, carrier, shorter, wrap
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.expression import (
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
from perfdojo_sdk.core.interpreter import LOOPS, Schedule, owner
from perfdojo_sdk.core.lookups import Lookup, lookups_of
from perfdojo_sdk.core.operations import OPERATIONS, Algebra
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.measure.guarded_files import private_folder
from perfdojo_sdk.measure.toolchain import Compiled, find_toolchain
from perfdojo_sdk.verify.mixing import EXPONENTS, PRIME, name_key

#: Of the compiler, for the machine.
FLAGS: tuple[str, ...] = ("-O2",)

#: Bytes that the cells and tasks of one run may take.
MEMORY = 1 << 30

#: What a run gives that came to its end.
_DONE = 0
_ORDERS = {"forward": 0, "reversed": 1, "lockstep": 2, "random": 3}
_CONSTANT, NEGATIVE, POSITIVE = 2, 3, 4

#: The bit of an input's second word that makes it a constant.
CONSTANT = 1 << 63

(
    _END, _STEP, _LOOP, _NEXT, _PAR, _END_PAR, _GUARD, _LOAD, _STORE, _FIND, _CONST, _INDEX_FLOAT,
    _INDEX_WHOLE, _SWAP, _LANE_PUT, _LANE_GET, _REDUCE, _SELECT, _ADD, _SUB, _MUL, _NEG, _DIV, _EXTREMUM,
    _EXP, _OPAQUE, _COMPARE, _ROUND, _TO_FLOAT, _WRAP, _BINARY, _UNARY, _CONVERT, _NO_LANES, _ADD_LANE,
    _REDUCE_SOME, _UNSIGNED_TO_FLOAT,
) = range(37)  # fmt: skip
#: Operations on integers that the machine knows; the interpreter does any other.
_WHOLE = {
    name: number
    for number, name in enumerate(
        ("add", "sub", "mul", "div", "rem", "max", "min", "and", "or", "xor", "shl", "shr",
         "lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "not")
    )
}  # fmt: skip
_NOTHING_FOUND: Mapping[Lookup, int] = {}
_RING = {"add": _ADD, "sub": _SUB, "mul": _MUL, "neg": _NEG}
_EXTREMA = {"max": 0, "min": 1}


#: Dtypes to which a move may declare to round; each has a flag among the laws, from this one on.
ROUNDINGS = ("bf16", "f16", "tf32")
_FIRST_ROUNDING = 16


class Cells(NamedTuple):
    """An array of results in a form to compare: residues modulo PRIME (or bits of integers), and
    infinities."""

    values: bytes
    """Eight bytes for each cell."""
    kinds: bytes
    """One byte for each cell: 0, or which infinity it is."""

    @property
    def numbers(self) -> Iterator[tuple[int, int]]:
        """Word and kind of each cell."""
        return zip(array("Q", self.values), self.kinds, strict=True)


class Unsupported(Exception):
    """The machine does not run this program; the interpreter does, or says why it cannot."""


@dataclass(frozen=True)
class Encoded:
    """A program as the machine reads it."""

    words: array[int]
    slots: array[int]
    sizes: array[int]
    outputs: tuple[tuple[str, int], ...]
    """Names and cells, as their values follow each other."""


class _Nest(NamedTuple):
    """A node at the outermost level with everything that its words depend on."""

    node: Node
    buffers: tuple[Buffer, ...]
    alone: frozenset[str]
    """Buffers that no other nest touches, where a scope is parallel: its iterations may own them."""
    words: array[int]
    levels: int
    stack: int
    lanes: int


class Encoder:
    """An encoder of programs as words. It reuses the words of nests that did not change."""

    #: Nests to remember.
    MOST = 2000

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.nests: dict[int, _Nest] = {}
        self.slots: dict[str, int] = {}

    def encode(self, program: Program) -> Encoded:
        """The program as words; :class:`Unsupported` where only the interpreter can run it."""
        words, levels, stack, lanes = array("q"), 1, 1, 1
        touching = self._touching(program)
        for k, node in enumerate(program.body):
            nest = self._nest(program, node, k, touching)
            words.extend(nest.words)
            levels, stack, lanes = max(levels, nest.levels), max(stack, nest.stack), max(lanes, nest.lanes)
        words.append(_END)
        layout = array("q", (0, -1, -1)) * len(self.slots)
        read = written = 0
        outputs: dict[str, int] = {}
        for buffer in program.buffers:
            slot = 3 * self._slot(buffer.name)
            if slot >= len(layout):
                layout.extend((0, -1, -1))
            layout[slot] = buffer.cells
            array_ = buffer.arrays[0]
            if array_ in program.inputs:
                layout[slot + 1] = -2  # set below, once all inputs have their places
            outputs |= {name: slot for name in buffer.arrays if name in program.outputs}
        for name in program.inputs:
            slot = 3 * self.slots[program.buffer_of[name].name]
            layout[slot + 1] = read
            read += layout[slot]
        found = []
        for name in program.outputs:
            slot = outputs[name]
            layout[slot + 2] = written
            written += layout[slot]
            found.append((name, layout[slot]))
        sizes = array("q", (len(layout) // 3, levels, stack, lanes, MEMORY))
        return Encoded(words, layout, sizes, tuple(found))

    def _touching(self, program: Program) -> Mapping[str, list[int]]:
        """Buffer -> the outermost nodes that touch it. Empty where no scope is parallel."""
        dialect, buffer_of = self.dialect, program.buffer_of
        if not any(isinstance(n, Scope) and dialect.any_parallel(n.suffixes) for n in program.body):
            return {}
        found: dict[str, list[int]] = {b.name: [] for b in program.buffers}
        for k, node in enumerate(program.body):
            for name in {buffer_of[a].name for a in node.arrays}:
                found[name].append(k)
        return found

    def _nest(self, program: Program, node: Node, k: int, touching: Mapping[str, list[int]]) -> _Nest:
        buffer_of, alone = program.buffer_of, frozenset[str]()
        buffers = tuple([buffer_of[a] for a in node.arrays])
        if touching and isinstance(node, Scope) and self.dialect.any_parallel(node.suffixes):
            alone = frozenset([b.name for b in buffers if touching[b.name] == [k]])
        known = self.nests.get(id(node))
        if known is None or known.buffers != buffers or known.alone != alone:
            if len(self.nests) >= self.MOST:
                self.nests.clear()
            named = {b.name: b for b in buffers if b.name in alone}
            owners = {name: owner(program, b, self.dialect) for name, b in sorted(named.items())}
            owned = {name: path[1:] for name, path in owners.items() if path is not None}
            writer = _Writer(program, self.dialect, self._slot, owned)
            writer.node(node, (), frozenset())
            words = array("q", writer.words)
            known = _Nest(node, buffers, alone, words, writer.levels, writer.deepest, writer.lanes)
            self.nests[id(node)] = known
        return known

    def _slot(self, buffer: str) -> int:
        return self.slots.setdefault(buffer, len(self.slots))


class _Writer:
    """Writes the words of one nest, step for step what the interpreter's emitter writes in Python."""

    def __init__(
        self, program: Program, dialect: Dialect, slot: Callable[[str], int], owned: Mapping[str, Path]
    ) -> None:
        self.program, self.dialect, self.slot, self.owned = program, dialect, slot, owned
        self.words: list[int] = []
        self.levels = self.lanes = 1
        self.height = self.deepest = 0
        self.loops = 0
        self.around = 0
        """Scopes around the statement that is written."""

    # -- scopes

    def node(self, node: Node, path: Path, exposed: frozenset[str]) -> None:
        if isinstance(node, Statement):
            self.around = len(path)
            self.statement(node, exposed)
        elif self.loops >= LOOPS:
            outside, self.loops = self.loops, 0
            self.words.append(_STEP)
            self.scope(node, path, exposed)
            self.loops = outside
        else:
            self.scope(node, path, exposed)

    def scope(self, scope: Scope, path: Path, exposed: frozenset[str]) -> None:
        """``path`` is that of the scope within its nest, without the nest's own number."""
        level, order, words = len(path), self.dialect.order(scope.suffix), self.words
        self.levels = max(self.levels, level + 1)
        if scope.size < 1:
            raise Unsupported
        if order == "lockstep":
            statement = scope.body[0]
            assert isinstance(statement, Statement), "the language's rules were checked"
            self.lockstep(statement, level, scope.size, exposed)
            return
        if order == "parallel":
            self.parallel(scope, path, exposed)
            return
        words += (_LOOP, level, scope.size, 0)
        start = len(words)
        self.loops += 1
        for k, child in enumerate(scope.body):
            self.node(child, (*path, k), exposed)
        self.loops -= 1
        words += (_NEXT, level, scope.size, 0, len(words) - start)

    def parallel(self, scope: Scope, path: Path, exposed: frozenset[str]) -> None:
        level, words, start = len(path), self.words, len(self.words)
        mine = [name for name, owned in self.owned.items() if owned == path]
        words += (_PAR, level, scope.size, 0, len(mine), *map(self.slot, mine), _STEP)
        written = {self.buffer(leaf.statement.target).name for leaf in scope.leaves}
        inside = (exposed | written).difference(mine)
        outside, self.loops = self.loops, 0
        for k, child in enumerate(scope.body):
            self.node(child, (*path, k), inside)
        self.loops = outside
        words += (_END_PAR, level, scope.size, len(words) - start)
        words[start + 3] = len(words) - start

    # -- statements

    def statement(self, statement: Statement, exposed: frozenset[str]) -> None:
        start = self.guard(statement.guard)
        self.step_before_load(statement, exposed)
        self.value(statement.value)
        if statement.accumulate:
            self.combine(statement)
        self.step_before_store(statement, exposed)
        self.store(statement.target)
        self.end_guard(start)

    def guard(self, forms: Sequence[AffineExpr]) -> int:
        """Emit the guard of what follows; its position in the words, or -1 without a guard."""
        if not forms:
            return -1
        start = len(self.words)
        self.words += (_GUARD, 0, len(forms))
        for condition in forms:
            _form(self.words, ((condition, 1),))
        self.words[start + 1] = -len(self.words)
        return start

    def end_guard(self, start: int) -> None:
        if start >= 0:
            self.words[start + 1] += len(self.words)

    def lockstep(self, statement: Statement, level: int, size: int, exposed: frozenset[str]) -> None:
        words, target, self.around = self.words, statement.target, level + 1
        self.lanes = max(self.lanes, size)
        buffer = self.buffer(target)
        across = any(level in target.subscripts[k].levels for k in buffer.materialised)
        if across and any(form.quotients for form in target.subscripts):
            across = level in buffer.address(target.subscripts).levels
        horizontal = statement.accumulate is not None and not across
        some = [form for form in statement.guard if level in form.levels]
        start = self.guard([form for form in statement.guard if level not in form.levels])
        self.step_before_load(statement, exposed)
        if some and horizontal:
            words.append(_NO_LANES)
        words += (_LOOP, level, size, 0)
        body = len(words)
        lane = self.guard(some)
        self.value(statement.value)
        if statement.accumulate and not horizontal:
            self.combine(statement)
        words += (_ADD_LANE,) if some and horizontal else (_LANE_PUT, level)
        self.pop()
        self.end_guard(lane)
        words += (_NEXT, level, size, 0, len(words) - body)
        if horizontal:
            self.push(2)
            reduce = len(words)
            words += (_REDUCE_SOME if some else _REDUCE, size)
            self.operation(str(statement.accumulate), statement.dtype, 2)
            self.combine(statement)
            self.step_before_store(statement, exposed)
            self.store(target)
            if some:
                words[reduce + 1] = len(words) - reduce
        else:
            self.step_before_store(statement, exposed)
            words += (_LOOP, level, size, 1)
            body = len(words)
            lane = self.guard(some)
            self.push()
            words += (_LANE_GET, level)
            self.store(target)
            self.end_guard(lane)
            words += (_NEXT, level, size, 1, len(words) - body)
        self.end_guard(start)

    def step_before_load(self, statement: Statement, exposed: frozenset[str]) -> None:
        if exposed:
            loads = [*statement.reads, *([statement.target] if statement.accumulate else [])]
            if any(self.buffer(a).name in exposed for a in loads):
                self.words.append(_STEP)

    def step_before_store(self, statement: Statement, exposed: frozenset[str]) -> None:
        if self.buffer(statement.target).name in exposed:
            self.words.append(_STEP)

    def combine(self, statement: Statement) -> None:
        """Emit the accumulation of the value on the stack into the target cell."""
        self.load(statement.target)
        self.words.append(_SWAP)
        self.operation(str(statement.accumulate), statement.dtype, 2)

    def load(self, access: Access) -> None:
        found = self.indices(access)
        self.push()
        self.words.append(_LOAD)
        self.cell(access, found)

    def store(self, access: Access) -> None:
        found = self.indices(access)
        self.pop()
        self.words.append(_STORE)
        self.cell(access, found)

    def indices(self, access: Access) -> Mapping[Lookup, int]:
        """Emit what finds the run-time indices of an access; the levels that hold them, which are further in
        than the statement's."""
        found = dict[Lookup, int]()
        for lookup in lookups_of((access,)):
            if lookup in found:
                continue
            self.value(lookup.value)
            found[lookup] = self.around + len(found)
            self.words += (_FIND, found[lookup])
            self.pop()
        self.levels = max(self.levels, self.around + len(found))
        return found

    def cell(self, access: Access, found: Mapping[Lookup, int] = _NOTHING_FOUND) -> None:
        buffer = self.buffer(access)
        self.words.append(self.slot(buffer.name))
        _form(self.words, [(access.subscripts[k], buffer.strides[k]) for k in buffer.materialised], found)

    def buffer(self, access: Access) -> Buffer:
        return self.program.buffer_of[access.array]

    # -- values

    def push(self, count: int = 1) -> None:
        self.height += count
        self.deepest = max(self.deepest, self.height)

    def pop(self, count: int = 1) -> None:
        self.height -= count

    def value(self, value: Expression) -> None:
        words = self.words
        match value:
            case Read():
                self.load(value.access)
            case Literal():
                self.push()
                words += _literal(value.value, value.dtype)
            case IndexValue():
                self.push()
                floats = value.dtype in FLOAT_DTYPES
                words += (_INDEX_FLOAT,) if floats else (_INDEX_WHOLE, _width(value.dtype))
                _form(words, ((value.index, 1),))
            case Cast():
                self.value(value.argument)
                words += _cast(value.argument.dtype, value.dtype)
            case Operation():
                for argument in value.arguments:
                    self.value(argument)
                if OPERATIONS[value.name].chooses:
                    words.append(_SELECT)
                    self.pop(2)
                else:
                    self.operation(value.name, value.operand_dtype, len(value.arguments))
            case _:
                assert_never(value)

    def operation(self, name: str, dtype: str, operands: int) -> None:
        self.words += _operation(name, dtype, operands)
        self.pop(operands - 1)


# -- pieces of words -------------------------------------------------------------------------------


def _form(
    words: list[int], parts: Sequence[tuple[AffineExpr, int]], found: Mapping[Lookup, int] = _NOTHING_FOUND
) -> None:
    """The sum of some forms, each with a factor. ``found``: the levels that hold run-time indices."""
    if len(parts) == 1 and parts[0][1] == 1 and not parts[0][0].quotients:
        index = parts[0][0]
        words += (index.constant, len(index.terms))
        for term in index.terms:
            words += term
        words.append(0)
        return
    constant, terms = 0, dict[int, int]()
    quotients = []
    for index, factor in parts:
        constant += factor * index.constant
        for level, c in index.terms:
            terms[level] = terms.get(level, 0) + factor * c
        for part, c in index.quotients:
            if isinstance(part, Lookup):
                terms[found[part]] = terms.get(found[part], 0) + factor * c
            else:
                assert isinstance(part, Quotient)
                quotients.append((part, factor * c))
    words += (constant, len(terms))
    for term in terms.items():
        words += term
    words.append(len(quotients))
    for quotient, c in quotients:
        words += (int(quotient.remainder), quotient.divisor, c)
        _form(words, ((quotient.dividend, 1),))


def _signed(word: int) -> int:
    """A word of 64 bits as the signed number that the array holds."""
    return word - (1 << 64) if word >> 63 else word


def _key(name: str) -> int:
    return _signed(name_key(name))


def _width(dtype: str) -> int:
    """Bits of an integer dtype, below 0 where it is signed; 1 for bool."""
    if dtype == "bool":
        return 1
    return bits(dtype) if carrier(dtype).startswith("u") else -bits(dtype)


@lru_cache(4096)
def _literal(value: float | int, dtype: str) -> tuple[int, ...]:
    if dtype not in FLOAT_DTYPES:
        return (_CONST, _signed(wrap(int(value), dtype) & 2**64 - 1), 0, 1)
    if isinf(value):
        return (_CONST, 0, 0, NEGATIVE if value < 0 else POSITIVE)
    exact = Fraction(value)
    r, e = (exact.numerator * pow(exact.denominator, -1, m) % m for m in (PRIME, EXPONENTS))
    return (_CONST, r, e, _CONSTANT)


@lru_cache
def _cast(source: str, target: str) -> tuple[int, ...]:
    if source == target:
        return ()
    if source in CODED_DTYPES:
        return (_OPAQUE, _key(f"cast {source} {target}"), 1)
    if source in FLOAT_DTYPES:
        key = _key(f"cast {source} {target}")
        if target not in FLOAT_DTYPES:
            return (_ROUND, key, _width(target))
        less = shorter(source, target)
        return (_CONVERT, key, _FIRST_ROUNDING << ROUNDINGS.index(less) if less in ROUNDINGS else 0)
    if target in FLOAT_DTYPES:
        return (_UNSIGNED_TO_FLOAT if source == "u64" else _TO_FLOAT,)
    return (_WRAP, _width(target))


@lru_cache
def _operation(name: str, dtype: str, operands: int) -> tuple[int, ...]:
    if dtype not in FLOAT_DTYPES:
        if dtype not in OPERATIONS[name].dtypes or name not in _WHOLE:
            raise Unsupported
        return (_BINARY if operands == 2 else _UNARY, _WHOLE[name], _width(dtype))
    key = _key(f"{name} {dtype}")
    match OPERATIONS[name].algebra:
        case Algebra.COMPARISON:
            return (_COMPARE, key, operands, _WHOLE[name])
        case Algebra.RING:
            return (_RING[name],)
        case Algebra.QUOTIENT:
            return (_DIV, key, _key(f"reciprocal {dtype}"))
        case Algebra.EXTREMUM:
            return (_EXTREMUM, _EXTREMA[name])
        case Algebra.EXPONENTIAL:
            return (_EXP, key)
        case Algebra.OPAQUE:
            return (_OPAQUE, key, operands)
        case other:
            assert_never(other)


# -- running ---------------------------------------------------------------------------------------


def run(
    program: Encoded, inputs: bytes, seed: int, laws: int, schedule: Schedule
) -> Mapping[str, Cells] | None:
    """The outputs; None where the interpreter has to say what is wrong.

    ``inputs``: for each cell of each input, its residues modulo PRIME and modulo EXPONENTS, the second one
    with :data:`CONSTANT` for an element of a table of floats. ``laws``: 1 where exp turns sums into
    products, 2 where quotients are products with reciprocals, 4 and 8 where max and min are idempotent,
    16 and more where roundings to one of ROUNDINGS are not seen.
    """
    machine = _machine()
    if machine is None:
        return None
    count = sum(cells for _, cells in program.outputs)
    values, kinds = ctypes.create_string_buffer(8 * count), ctypes.create_string_buffer(count)
    ended = machine(
        program.words.buffer_info()[0],
        program.slots.buffer_info()[0],
        program.sizes.buffer_info()[0],
        inputs,
        values,
        kinds,
        seed,
        laws,
        _ORDERS[schedule.order],
        schedule.state,
        _EXTREMA_KEYS.buffer_info()[0],
    )
    if ended != _DONE:
        return None
    found, at, raw_values, raw_kinds = {}, 0, values.raw, kinds.raw
    for name, cells in program.outputs:
        found[name] = Cells(raw_values[8 * at : 8 * (at + cells)], raw_kinds[at : at + cells])
        at += cells
    return found


_EXTREMA_KEYS = array("Q", [name_key(name) for name in _EXTREMA])


def available() -> bool:
    """True if this machine has a compiler for ``modular_vm.c``."""
    return _machine() is not None


@lru_cache
def _machine() -> Callable[..., int] | None:
    """The compiled machine, made once for a process; None without a compiler."""
    source = resources.files("perfdojo_sdk.verify").joinpath("modular_vm.c").read_text(encoding="utf-8")
    try:
        made = find_toolchain().compile({"modular_vm.c": source}, FLAGS)
    except UnavailableError:
        return None
    if not isinstance(made, Compiled):
        return None
    with private_folder("modular-vm") as folder:
        path = FilePath(folder, "modular_vm.so")
        path.write_bytes(made.content)
        function = ctypes.CDLL(str(path)).pd_run
    pointer = ctypes.c_void_p
    function.restype = ctypes.c_int
    function.argtypes = [pointer, pointer, pointer, ctypes.c_char_p, pointer, pointer,
                         ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, pointer]  # fmt: skip
    found: Callable[..., int] = function
    return found
