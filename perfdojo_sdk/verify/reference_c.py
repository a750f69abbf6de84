"""Reference programs in C: they run a program literally, on a number type that holds more than a float.

The emitter here shares nothing with the one that makes kernels: scopes are plain loops in order,
buffers are flat arrays, every operation is a function of one type for each dtype (``num_f32``,
``num_f64`` ...; ``whole`` for integers and bool). A header of ``include/`` defines that type. ``WIDE`` has
the value in a wider type. ``BOUNDED`` adds a bound on the distance between the exact value and the result of
any legal compilation in the same order, contracted to fused multiply-adds or not.

The bound is the running error bound of the textbooks (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.3): an operation adds ``u |result|``, u = 2^-24 for f32, half of the smallest
denormal where it may underflow, and passes its arguments' errors on. A bound of 0 says that the value
is certain, even if it is an infinity or NaN. An infinite bound says that the computation may
overflow, lose its sign or turn into NaN, so that nothing is known; for an integer, that it was made from
a float whose error may have changed it.

``OUTCOMES`` says more if something may overflow for the given inputs: its bound holds for a computation
in which nothing overflows, and it also has the other possible results: infinities, NaN, and the interval
of the numbers that are computed from these (the maximum of 0 and of -inf is 0). It is interval
arithmetic on the values that may have overflowed, and empty where nothing can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from importlib import resources
from itertools import combinations
from math import prod
from typing import assert_never

from perfdojo_sdk.codegen.loops import nest_needs_no_proof
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import CODED_DTYPES, FLOAT_DTYPES, STORED_DTYPES
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
    walk,
)
from perfdojo_sdk.core.groups import losses_of
from perfdojo_sdk.core.laws import FLUSHED, TO_ODD
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.hookspecs.types import ArraySpec, KernelSource
from perfdojo_sdk.verify.chosen import chosen_buffers, is_chosen
from perfdojo_sdk.verify.independent_rows import Rows
from perfdojo_sdk.verify.reference_operations import rows_in_c
from perfdojo_sdk.verify.reference_types import (
    APART,
    BOUNDS,
    C_TYPES,
    FLOATS,
    WIDER_FLOATS,
    defined,
    formats,
)
from perfdojo_sdk.verify.reference_values import (
    cast,
    condition,
    form_of,
    input_name,
    integer_kind,
    literal,
    number_type,
    output_name,
)

SYMBOL = "pd_reference"
#: Arrays of a reference besides the program's own, under names that no program can have.
ROWS, PEAK = "0rows", "0peak"
WIDE, BOUNDED, OUTCOMES = "wide", "bounded", "outcomes"
#: Bits for other possible results: an infinity, NaN, or a number of an interval; as in the headers.
PLUS, MINUS, NO_NUMBER, BETWEEN = 1, 2, 4, 8
#: Parts of a cell about the terms of a sum or product, which another order may combine.
_OF_TERMS = ("up", "down", "open")


def reference(
    program: Program,
    kind: str,
    accuracy: Mapping[str, float],
    dialect: Dialect,
    *,
    batch: int = 1,
    rows: int = 0,
    split: Rows | None = None,
    any_order: bool = False,
    reciprocals: bool = False,
    nan_may_differ: bool = False,
    large: bool = False,
) -> KernelSource:
    """The program over ``num`` as a C kernel.

    Every array has ``batch`` as its first dimension: so many runs in one call. Inputs are those
    of the program; with ``split`` (of :func:`outermost_rows`) also ``ROWS`` (i32, ``rows`` by
    loops): only these rows are run, and each output holds them only, along its first dimension, in
    front of those of its dimensions that no such loop goes through. Outputs are, for each output ``y``,
    ``y_v`` (f64; i64 for integers), with BOUNDED also the bound ``y_e`` (rounded up), with OUTCOMES also
    ``y_e`` and for floats ``y_lo``, ``y_hi`` (f64) and ``y_far`` (u8, the bits ``PLUS``, ``MINUS``,
    ``NO_NUMBER`` and ``BETWEEN``); and ``PEAK``, the largest finite value ever stored. ``accuracy`` gives a
    function's error in ulp, 0.5 if absent. With ``any_order`` the bound holds for every order of
    every reduction; with ``reciprocals`` also where a quotient is a product by a reciprocal. With
    ``nan_may_differ`` nothing is certain that is made of an infinity or a NaN by a cast to an integer or a
    comparison. Unless it is ``large``, the bound knows which results need no rounding; if it is, gcc may
    vectorise loops for which it has to prove nothing.
    """
    emitter = _Emitter(
        program, kind, accuracy, dialect, batch, rows, split, any_order, reciprocals, nan_may_differ, large
    )
    return emitter.source()


class _Emitter:
    def __init__(
        self,
        program: Program,
        kind: str,
        accuracy: Mapping[str, float],
        dialect: Dialect,
        batch: int,
        rows: int,
        split: Rows | None,
        any_order: bool,
        reciprocals: bool,
        nan_may_differ: bool,
        large: bool,
    ) -> None:
        self.program, self.kind, self.accuracy, self.dialect = program, kind, accuracy, dialect
        self.batch, self.rows, self.split = batch, rows, split
        self.row_loops: Mapping[str, int] = split.scopes if split else {}
        """Loops that stand for rows, with their places in the tuple of a row."""
        self.any_order = any_order and kind != WIDE
        self.floats = WIDER_FLOATS if multiplies(program) else FLOATS
        self.summed = _reduced_buffers(program, "add") if self.any_order else {}
        self.multiplied = _reduced_buffers(program, "mul") if self.any_order and kind == OUTCOMES else {}
        self.reciprocals, self.nan_may_differ, self.large = reciprocals, nan_may_differ, large
        self.functions: list[str] = []
        self.nests = 0
        if unsupported := {b.dtype for b in program.buffers} - C_TYPES.keys():
            known = ", ".join(C_TYPES)
            raise VerificationError(
                "PD-V020",
                f"{program.name} uses {', '.join(sorted(unsupported))}, the numeric check knows {known}",
            )
        for name in (*program.inputs, *program.outputs):
            if program.buffer_of[name].dtype == "tf32":
                what = f"{program.name} uses tf32: {name} is part of the kernel's interface"
                raise VerificationError("PD-V020", what, why="the numeric check knows it in temporaries")

    # -- the interface ---------------------------------------------------------------------

    def source(self) -> KernelSource:
        shapes = {a: b.shape for a, b in self.program.buffer_of.items()}
        dtypes = {a: b.dtype for a, b in self.program.buffer_of.items()}
        inputs = [ArraySpec(name, shapes[name], dtypes[name]) for name in self.program.inputs]
        if self.split:
            inputs.append(ArraySpec(ROWS, (self.rows, len(self.split.sizes)), "i32"))
        outputs = []
        for name in self.program.outputs:
            shape = self.split.shape(name, shapes[name], self.rows) if self.split else shapes[name]
            parts = self.parts(dtypes[name])
            outputs += [ArraySpec(f"{name}_{part}", shape, dtype) for part, dtype in parts]
        outputs.append(ArraySpec(PEAK, (), "f64"))
        code = "\n".join(self.file(inputs, outputs)) + "\n"
        return KernelSource(SYMBOL, self.batched(inputs), self.batched(outputs), code, support=_headers())

    def batched(self, specs: list[ArraySpec]) -> tuple[ArraySpec, ...]:
        return tuple(replace(s, shape=(self.batch, *s.shape)) for s in specs)

    def stored(self, buffer: Buffer) -> list[tuple[str, str]]:
        """Name and C type of the arrays that hold the parts of a buffer's cells.

        Each part has an array of its own, so that a compiler can work on several cells at a time.
        """
        if buffer.dtype not in FLOAT_DTYPES:
            return [("v", "int64_t"), ("u", "int")]
        wide, bound = (self.floats[buffer.dtype][macro] for macro in ("W", "E"))
        parts = [("v", wide)]
        if self.kind == BOUNDED:
            parts.append(("e", bound))
        elif self.kind == OUTCOMES:
            parts += [*((part, wide) for part in ("e", "lo", "hi")), ("far", "uint8_t")]
            if buffer.name in self.tracked:
                parts += [("up", wide), ("down", wide), ("open", "uint8_t")]
        return parts

    @cached_property
    def tracked(self) -> frozenset[str]:
        """Buffers of whose sums and products parts may be added in another order than the program's."""
        lanes = (
            self.program.buffer_of[node.target.array].name
            for path, node in self.program.walk()
            if isinstance(node, Statement) and self.horizontal(node, list(self.program.ancestors(path))) > 1
        )
        return frozenset((*self.summed, *self.multiplied, *(() if self.any_order else lanes)))

    def load(self, buffer: Buffer, at: str) -> str:
        """The number in a cell."""
        parts = [part for part, _ in self.stored(buffer)]
        cell = {part: f"b_{buffer.name}_{part}[{at}]" for part in parts}
        if buffer.dtype not in FLOAT_DTYPES:
            return f"(whole){{{cell['v']}, {cell['u']}}}"
        kept = [cell[part] for part in parts if part not in _OF_TERMS]
        loaded = f"load_{buffer.dtype}({', '.join(kept)})"
        if "up" not in cell:
            return loaded
        return f"partial_{buffer.dtype}({loaded}, {', '.join(cell[part] for part in _OF_TERMS)})"

    def store(self, buffer: Buffer) -> str:
        """Assign the number x to the cell ``at``."""
        value = {part: f"x.{part}" for part, _ in self.stored(buffer)} | {"u": "x.unsure"}
        if self.kind == BOUNDED:
            value["e"] = f"upwards_{buffer.dtype}(x.e)"
        return " ".join(f"b_{buffer.name}_{p}[at] = {value[p]};" for p, _ in self.stored(buffer))

    def parts(self, dtype: str) -> list[tuple[str, str]]:
        """Suffix and dtype of the arrays that stand for one output."""
        floats = dtype in FLOAT_DTYPES
        found = [("v", "f64" if floats else "i64")]
        if self.kind == BOUNDED:
            found.append(("e", BOUNDS.get(dtype, "f32")))
        elif self.kind == OUTCOMES:
            found.append(("e", "f64"))
            found += [("lo", "f64"), ("hi", "f64"), ("far", "u8")] if floats else []
        return found

    def prelude(self) -> Iterator[str]:
        """The number types of the dtypes that the program uses."""
        yield from defined(rows_in_c(self.accuracy))
        yield '#include "reference_whole.h"'
        yield f"#define NAN_MAY_DIFFER {int(self.nan_may_differ)}"
        yield f"#define RECIPROCALS {int(self.reciprocals)}"
        yield f"#define OUTCOMES {int(self.kind == OUTCOMES)}"
        yield f"#define UNROUNDED {int(not self.large)}"
        used = {b.dtype for b in self.program.buffers} | cast_dtypes(self.program)
        used |= set() if used.isdisjoint((*STORED_DTYPES, *CODED_DTYPES)) else {"f32"}
        yield '#include "reference_codes.h"'
        yield from formats(dtype for dtype in CODED_DTYPES if dtype in used)
        floats = [dtype for dtype in FLOATS if dtype in used]
        header = WIDE if self.kind == WIDE else BOUNDED
        for dtype in floats:
            yield from defined({"DTYPE": dtype, **self.floats[dtype]})
            yield f'#include "reference_{header}.h"'
        for dtype, wider in combinations(floats, 2):
            both = (dtype, wider) == APART
            for short, other in ((dtype, wider), (wider, dtype))[: 1 + both]:
                macros = {"DTYPE": short, **self.floats[short], "WIDER": other, "EXACT": str(int(not both))}
                yield from defined(macros)
                yield f'#include "reference_convert_{header}.h"'

    def file(self, inputs: list[ArraySpec], outputs: list[ArraySpec]) -> Iterator[str]:
        # The program's own names may be words of C: everything of the program carries a prefix.
        parameters = [f"const {C_TYPES[s.dtype]} *restrict {input_name(s.name)}" for s in inputs]
        parameters += [f"{C_TYPES[s.dtype]} *restrict {output_name(s.name)}" for s in outputs]
        once = list(self.once(parameters))
        yield from self.prelude()
        yield from self.functions
        yield from once
        yield f"size_t {SYMBOL}_workspace_bytes(int threads) {{ (void)threads; return 0; }}"
        yield f"int {SYMBOL}({', '.join(parameters)}, void *workspace, size_t bytes, int threads)"
        yield "{"
        yield "    (void)workspace; (void)bytes; (void)threads;"
        yield f"    for (long b = 0; b < {self.batch}; b++)"
        names = [*(input_name(s.name) for s in inputs), *(output_name(s.name) for s in outputs)]
        sizes = [prod(s.shape) for s in (*inputs, *outputs)]
        ones = [f"{name} + b * {size}L" for name, size in zip(names, sizes, strict=True)]
        yield f"        if (run_one({', '.join(ones)})) return 1;"
        yield "    return 0;"
        yield "}"

    def once(self, parameters: list[str]) -> Iterator[str]:
        """The function that runs the program once."""
        yield f"static int run_one({', '.join(parameters)})"
        yield "{"
        yield "    int64_t peak = 0;"
        own = [b for b in self.program.buffers if self.program.read_only.isdisjoint(b.arrays)]
        storage = [
            (f"b_{buffer.name}_{part}", kind, f"{buffer.cells}L * sizeof({kind})")
            for buffer in own
            if not self.in_place(buffer)
            for part, kind in self.stored(buffer)
        ]
        for buffer in filter(self.in_place, own):
            for part, kind in self.stored(buffer):
                [output] = buffer.arrays
                yield f"    {kind} *restrict b_{buffer.name}_{part} = {output_name(f'{output}_{part}')};"
        for array, kind, size in storage:
            yield f"    {kind} *restrict {array} = cells({size}, {int(not self.split)});"
            yield f"    if (!{array}) return 1;"
        for buffer in own:
            if not self.program.in_out.isdisjoint(buffer.arrays):
                yield from self.copy_in(buffer)
        for node in self.program.body:
            yield from self.node(node, [], 1, self.large)
        for name in self.program.outputs:
            if not self.in_place(self.program.buffer_of[name]):
                yield from self.copy_out(name)
        for array, _, size in storage:
            yield f"    release({array}, {size});"
        yield f"    *{output_name(PEAK)} = peak_of(peak);"
        yield "    return 0;"
        yield "}"

    def in_place(self, buffer: Buffer) -> bool:
        """True if an output's cells are computed in the caller's array, which has the same type."""
        is_output = not {*self.program.outputs}.isdisjoint(buffer.arrays)
        more = self.kind == OUTCOMES and buffer.name in self.tracked
        same = self.floats is FLOATS and buffer.dtype == "f32"
        return is_output and same and not self.split and not more

    def copy_in(self, buffer: Buffer) -> Iterator[str]:
        """Start the cells of an array that is input and output with the caller's values."""
        yield f"    for (long at = 0; at < {buffer.cells}L; at++) {{"
        yield f"        {number_type(buffer.dtype)} x = {self.given(buffer, 'at')};"
        yield f"        {self.store(buffer)}"
        yield "    }"

    def copy_out(self, name: str) -> Iterator[str]:
        """Unpack the cells; of the rows that were run if there are rows."""
        buffer = self.program.buffer_of[name]
        kept = self.split.within(name, len(buffer.shape)) if self.split else tuple(range(len(buffer.shape)))
        strides = [prod(buffer.shape[k + 1 :]) for k in range(len(buffer.shape))]
        address = [f"k{k} * {strides[k]}L" for k in kept]
        if self.split:
            yield f"    for (long r = 0; r < {self.rows}; r++) {{"
            address += [f"{self.row(j)} * {strides[k]}L" for j, k in enumerate(self.split.dimensions[name])]
        else:
            yield "    {"
        for k in kept:
            yield f"    for (long k{k} = 0; k{k} < {buffer.shape[k]}; k{k}++)"
        to = "r" if self.split else "0L"
        for k in kept:
            to = f"({to}) * {buffer.shape[k]}L + k{k}"
        yield "    {"
        yield f"        const long at = {' + '.join([*address, '0L'])};"
        for part, _ in self.parts(buffer.dtype):
            wide = self.floats.get(buffer.dtype, {}).get("W") == "long double"
            yield f"        {output_name(f'{name}_{part}')}[{to}] = {_part(part, buffer, wide)};"
        yield "    }"
        yield "    }"

    def row(self, number: int) -> str:
        """The iteration in row r of the loops with this place."""
        assert self.split
        return f"(long){input_name(ROWS)}[r * {len(self.split.sizes)} + {number}]"

    # -- the tree --------------------------------------------------------------------------

    def node(self, node: Node, scopes: list[Scope], depth: int, outlines: bool) -> Iterator[str]:
        """Statements that run the node inside ``scopes``; ``outlines``: nests that a compiler may vectorise
        go into functions of their own."""
        pad = "    " * depth
        if isinstance(node, Statement):
            yield from (pad + line for line in self.statement(node, scopes))
            return
        level, holds_rows = len(scopes), self.holds_rows(node)
        if not holds_rows and (together := self.lanes_that_meet(node, level)):
            yield from (pad + line for line in self.together(node, together, [*scopes, node]))
            return
        if outlines and not holds_rows and nest_needs_no_proof(self.program, node, level):
            yield pad + self.nest(node, scopes)
            return
        yield from self.loop(node, scopes, depth, outlines)

    def holds_rows(self, node: Node) -> bool:
        """True if the node is, or has inside, a loop that stands for rows."""
        if not self.row_loops or not isinstance(node, Scope):
            return False
        return node.id in self.row_loops or any(self.holds_rows(child) for child in node.body)

    def loop(self, node: Scope, scopes: list[Scope], depth: int, outlines: bool) -> Iterator[str]:
        pad, level = "    " * depth, len(scopes)
        if node.id in self.row_loops:
            # The outermost of the loops stands for all of them; those inside only name their iteration.
            inside = any(scope.id in self.row_loops for scope in scopes)
            yield pad + "{" if inside else f"{pad}for (long r = 0; r < {self.rows}; r++) {{"
            yield f"{pad}    const long i{level} = {self.row(self.row_loops[node.id])};"
        else:
            yield f"{pad}for (long i{level} = 0; i{level} < {node.size}; i{level}++) {{"
        for child in node.body:
            yield from self.node(child, [*scopes, node], depth + 1, outlines)
        yield pad + "}"

    def nest(self, node: Scope, scopes: list[Scope]) -> str:
        """A call of a new function that runs the loops of ``node``, inside ``scopes``, by vectors."""
        accesses = [
            access for leaf in node.leaves for access in (leaf.statement.target, *leaf.statement.every_read)
        ]
        inputs = sorted({access.array for access in accesses}.intersection(self.program.read_only))
        buffers = [self.program.buffer_of[access.array] for access in accesses]
        own = {b.name: b for b in buffers if self.program.read_only.isdisjoint(b.arrays)}
        dtypes = {name: self.program.buffer_of[name].dtype for name in inputs}
        arrays = [(input_name(name), f"const {C_TYPES[dtype]}") for name, dtype in dtypes.items()]
        arrays += [
            (f"b_{name}_{part}", kind) for name, b in sorted(own.items()) for part, kind in self.stored(b)
        ]
        iterators = [f"i{level}" for level in range(len(scopes))]
        parameters = [
            "int64_t peak",
            *(f"long {name}" for name in iterators),
            *(f"{kind} *restrict {name}" for name, kind in arrays),
        ]
        function = f"nest{self.nests}"
        self.nests += 1
        self.functions += [
            f"VECTOR_LOOPS static int64_t {function}({', '.join(parameters)})",
            "{",
            *(f"    (void){name};" for name in iterators),
            *self.loop(node, scopes, 1, outlines=False),
            "    return peak;",
            "}",
        ]
        return f"peak = {function}({', '.join(['peak', *iterators, *(name for name, _ in arrays)])});"

    def lanes_that_meet(self, scope: Scope, level: int) -> Statement | None:
        """The statement of a lockstep scope if its lanes may read what others of them write."""
        (statement, *others) = scope.body
        if others or not isinstance(statement, Statement) or not self.dialect.is_lockstep(scope.suffix):
            return None
        target = self.program.buffer_of[statement.target.array]
        written = target.address(statement.target.subscripts)
        read = [r for r in statement.reads if self.program.buffer_of[r.array] is target]
        meet = level in written.levels and any(target.address(r.subscripts) != written for r in read)
        return statement if meet else None

    def together(self, scope: Scope, statement: Statement, scopes: list[Scope]) -> Iterator[str]:
        """All lanes load before any of them stores."""
        i, kind = f"i{len(scopes) - 1}", number_type(statement.dtype)
        loop = f"    for (long {i} = 0; {i} < {scope.size}; {i}++) "
        guarded = f"if ({condition(statement)}) {{" if statement.guard else "{"
        yield f"{{ {kind} lanes[{scope.size}];"
        yield loop + guarded
        yield from self.computed(statement, scopes)
        yield f"    lanes[{i}] = x;"
        yield "    }"
        yield loop + guarded
        yield f"    const long at = {self.cell(statement.target)};"
        yield f"    const {kind} x = lanes[{i}];"
        yield from self.put(statement)
        yield "    }"
        yield "}"

    def statement(self, statement: Statement, scopes: list[Scope]) -> Iterator[str]:
        yield f"if ({condition(statement)}) {{" if statement.guard else "{"
        yield from self.computed(statement, scopes)
        yield from self.put(statement)
        yield "}"

    def computed(self, statement: Statement, scopes: list[Scope]) -> Iterator[str]:
        """The value ``x`` of the cell ``at`` afterwards."""
        buffer, dtype = self.program.buffer_of[statement.target.array], statement.dtype
        yield f"    const long at = {self.cell(statement.target)};"
        lost = self.losses(statement, scopes)
        flushed = FLUSHED in lost
        value = self.flushed_product(statement, lost) if flushed else self.expression(statement.value)
        yield f"    {number_type(dtype)} x = {value};"
        if statement.accumulate:
            yield f"    {number_type(dtype)} a = {self.load(buffer, 'at')};{self.anchor(statement, scopes)}"
            if flushed:
                yield f"    a = flushed_{dtype}(a);"
            yield f"    x = {self.accumulation(statement, scopes)};"
            if flushed:
                yield f"    x = flushed_sum_{dtype}(x);"
        if statement.accumulate != "add" and buffer.name in self.summed:
            yield f"    x = num_anchor_{dtype}(x, {self.summed[buffer.name]});"
        elif statement.accumulate != "mul" and buffer.name in self.multiplied:
            yield f"    x = num_first_{dtype}(x);"

    def losses(self, statement: Statement, scopes: list[Scope]) -> frozenset[str]:
        """The laws of what the instruction loses that adds up a statement's products, as far as a bound
        counts that."""
        if self.kind == WIDE or self.any_order:
            return frozenset()
        return losses_of(statement, scopes, self.dialect)

    def flushed_product(self, statement: Statement, lost: frozenset[str]) -> str:
        """The product of two numbers that count as zero where they are small. Where it is rounded before it
        is added, it counts as zero as well."""
        dtype = statement.dtype
        factors = [f"flushed_{dtype}({self.expression(f)})" for f in statement.value.children]
        product = f"num_mul_{dtype}({', '.join(factors)})"
        return f"flushed_{dtype}({product})" if TO_ODD in lost else product

    def put(self, statement: Statement) -> Iterator[str]:
        yield f"    {self.store(self.program.buffer_of[statement.target.array])}"
        yield "    peak = higher(peak, magnitude((double)x.v));"

    def accumulation(self, statement: Statement, scopes: list[Scope]) -> str:
        if statement.dtype not in FLOAT_DTYPES:
            kind = integer_kind(statement.dtype)
            return f"wrap_{statement.dtype}({kind}_{statement.accumulate}(a, x))"
        terms = self.terms(statement, scopes)
        if statement.accumulate == "add" and terms > 1:
            return f"num_sum_{statement.dtype}(a, x, {terms})"
        if statement.accumulate == "mul" and terms > 1:
            return f"num_product_{statement.dtype}(a, x, {terms})"
        return f"num_{statement.accumulate}_{statement.dtype}(a, x)"

    def terms(self, statement: Statement, scopes: list[Scope]) -> int:
        """The number of terms that the target machine may combine in any order; 1: in program order."""
        if self.any_order:
            reduced = self.summed if statement.accumulate == "add" else self.multiplied
            return reduced.get(self.program.buffer_of[statement.target.array].name, 1)
        return self.horizontal(statement, scopes)

    def horizontal(self, statement: Statement, scopes: list[Scope]) -> int:
        """The number of lanes that are combined into one sum, or with OUTCOMES into one product; of sums that
        are rounded to odd numbers twice as many, since such a rounding is as large as two."""
        innermost = scopes[-1] if scopes else None
        known = {BOUNDED: ("add",), OUTCOMES: ("add", "mul")}.get(self.kind, ())
        if statement.accumulate not in known or statement.dtype not in FLOAT_DTYPES:
            return 1
        if innermost is None or not self.dialect.is_lockstep(innermost.suffix):
            return 1
        address = self.program.buffer_of[statement.target.array].address(statement.target.subscripts)
        size = innermost.size * (1 + (TO_ODD in self.losses(statement, scopes)))
        return 1 if len(scopes) - 1 in address.levels else size

    def anchor(self, statement: Statement, scopes: list[Scope]) -> str:
        """C that prepares for lanes that are combined with the old value at any position among them."""
        terms = 1 if self.any_order else self.horizontal(statement, scopes)
        if terms == 1:
            return ""
        first = f"num_anchor_{statement.dtype}(a, {terms + 1})"
        if statement.accumulate == "mul":
            first = f"num_first_{statement.dtype}(a)"
        return f" if (i{len(scopes) - 1} == 0) a = {first};"

    def expression(self, value: Expression) -> str:
        match value:
            case Literal():
                return literal(value)
            case IndexValue():
                form = form_of(value.index)
                floats = value.dtype in FLOAT_DTYPES
                return f"integer_{value.dtype}({form})" if floats else f"wrap_{value.dtype}(whole_of({form}))"
            case Read():
                return self.read(value.access)
            case Cast():
                return cast(value, self.expression(value.argument))
            case Operation():
                return self.operation(value)
            case _:
                assert_never(value)

    def operation(self, value: Operation) -> str:
        dtype, arguments = value.operand_dtype, [self.expression(a) for a in value.arguments]
        listed = ", ".join(arguments)
        if dtype in FLOAT_DTYPES:
            return f"num_{value.name}{self.variant(value)}_{dtype}({listed})"
        name = "flip" if value.name == "not" and dtype == "bool" else value.name
        if OPERATIONS[value.name].chooses:
            return f"whole_{name}({listed})"
        if OPERATIONS[value.name].compares:
            return f"{integer_kind(dtype)}_{name}({listed})"
        return f"wrap_{dtype}({integer_kind(dtype)}_{name}({listed}))"

    def variant(self, value: Operation) -> str:
        """The suffix of an operation on floats whose operands tell more than their numbers."""
        if self.kind != WIDE and value.name == "mul" and all(map(self.exact, value.arguments)):
            return "_exact"
        known = self.kind != WIDE and OPERATIONS[value.name].compares
        return "_chosen" if known and is_chosen(value, self.program, self.chosen) else ""

    @cached_property
    def chosen(self) -> frozenset[str]:
        return chosen_buffers(self.program)

    def exact(self, value: Expression) -> bool:
        return isinstance(value, Literal) or (
            isinstance(value, Read) and value.access.array in self.program.read_only
        )

    def read(self, access: Access) -> str:
        buffer, at = self.program.buffer_of[access.array], self.cell(access)
        return self.given(buffer, at) if access.array in self.program.read_only else self.load(buffer, at)

    def cell(self, access: Access) -> str:
        """The number of the cell that is accessed."""
        address = self.program.buffer_of[access.array].address(access.subscripts)
        return form_of(address, lambda lookup: f"({self.expression(lookup.value)}).v")

    def given(self, buffer: Buffer, at: str) -> str:
        """The caller's number in a cell of an input."""
        (array,) = buffer.arrays
        held = f"{input_name(array)}[{at}]"
        held = f"float_of({held})" if buffer.dtype == "bf16" else held
        return f"literal_{buffer.dtype}({held})" if buffer.dtype in FLOAT_DTYPES else f"whole_of({held})"


def multiplies(program: Program) -> bool:
    """True if there are products of many floats."""
    return bool(_reduced_buffers(program, "mul"))


def _reduced_buffers(program: Program, accumulate: str) -> dict[str, int]:
    """Buffer of floats -> most terms that sums into one of its cells may have together; or factors, for
    ``accumulate`` mul, where it holds no sums."""
    terms: dict[str, int] = {}
    others: set[str] = set()
    for path, node in program.walk():
        if not isinstance(node, Statement) or node.dtype not in FLOAT_DTYPES:
            continue
        buffer = program.buffer_of[node.target.array]
        if node.accumulate != accumulate:
            others |= {buffer.name} if node.accumulate == "add" else set()
            continue
        address = buffer.address(node.target.subscripts)
        # Different iterations may choose one cell by a run-time index.
        carried = AffineExpr.of(address.coefficients, 0, address.divisions).levels
        trips = prod(s.size for level, s in enumerate(program.ancestors(path)) if level not in carried)
        terms[buffer.name] = terms.get(buffer.name, 1) + trips
    return {name: count for name, count in terms.items() if name not in others}


def cast_dtypes(program: Program) -> set[str]:
    """Dtypes of all values, those that stand in no buffer among them."""
    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    return {part.dtype for statement in statements for part in walk(statement.value)}


def _headers() -> Mapping[str, str]:
    folder = resources.files("perfdojo_sdk.verify").joinpath("include")
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}


def _part(part: str, buffer: Buffer, wide: bool) -> str:
    """A part of the cell ``at`` as an output holds it; of f64, rounded to a double, outwards.

    ``wide``: the cell may hold a number that is too large for a double. Then the result is an infinity, for
    sure if its bound allows nothing else.
    """
    cell = f"b_{buffer.name}_%s[at]"
    if buffer.dtype not in FLOAT_DTYPES:
        return f"{cell % 'u'} ? INFINITY : 0" if part == "e" else cell % "v"
    signs = {"e": "+", "lo": "-", "hi": "+"}
    held = cell % part
    if buffer.dtype == "f64" and part in signs:
        rounded = cell % ("v" if part == "e" else part)
        held = f"{held} {signs[part]} 0x1.01p-53 * fabs((double){rounded})"
    if wide and part == "e":
        held = f"fabsl({cell % 'v'}) - {cell % 'e'} > DBL_MAX ? 0 : {held}"
    return held
