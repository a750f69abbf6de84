"""A second opinion in C: programs run literally, in a number type that knows more than a float.

The emitter here shares nothing with the one that makes kernels: scopes are plain loops in order,
buffers are flat arrays, every operation is a function of one type for each dtype (``num_f32``,
``num_f64`` ...; ``whole`` for integers and bool). What such a number is comes from a header of
``include/``. ``WIDE`` computes the meaning: the value in a wider type, and beside it what plain
arithmetic of the dtype gives. ``BOUNDED`` adds a bound on the distance between the exact value and
what any legal compilation of the same order may compute, contracted to fused multiply-adds or not.

The bound is the running error bound of the textbooks (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.3): an operation adds ``u |result|``, u = 2^-24 for f32, half of the smallest
denormal where it may underflow, and passes its arguments' errors on. A bound of 0 says that the value
is certain, which an infinity or a NaN can be, too. An infinite bound says that the computation may
overflow, lose its sign or turn into a NaN, so that only classes can be compared; for an integer, that
it was made from a float whose error may have changed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from itertools import combinations
from math import prod

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, STORED_DTYPES, integer_bounds
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.expression import (
    OPERATIONS,
    Access,
    Cast,
    Expression,
    Index,
    IndexValue,
    Literal,
    Operation,
    Read,
)
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.validate import beyond_storage
from perfdojo_sdk.hookspecs.types import ArraySpec, KernelSource
from perfdojo_sdk.verify.reference_types import BOUNDS, C_TYPES, FLOATS, FUNCTIONS, defined

SYMBOL = "pd_reference"
#: What a reference is given and gives beside the program's own arrays, under names that no program has.
ROWS, PEAK = "0rows", "0peak"
WIDE, BOUNDED = "wide", "bounded"


@dataclass(frozen=True)
class Rows:
    """Each tuple of iterations of the outermost levels computes output cells of its own, from inputs alone.

    All cells of one tuple are a row, however many dimensions they have.
    """

    sizes: tuple[int, ...]
    """Iterations of each level."""
    dimensions: Mapping[str, tuple[int, ...]]
    """Array -> for each level the dimension whose subscript is that level's iterator."""

    @property
    def count(self) -> int:
        return prod(self.sizes)

    def shape(self, array: str, whole: tuple[int, ...], rows: int) -> tuple[int, ...]:
        """The shape of so many rows of an array."""
        return (rows, *(whole[k] for k in self.within(array, len(whole))))

    def within(self, array: str, rank: int) -> tuple[int, ...]:
        """The dimensions that a row has."""
        return tuple(k for k in range(rank) if k not in self.dimensions[array])


def outermost_rows(program: Program, row_instances: int = 0) -> Rows | None:
    """How the program falls into independent rows of at most so many statement instances, or None.

    As many of the outermost levels as that takes, or as there are: level k qualifies when all scopes
    down to it are perfectly nested, those of one level have one size, and every array that is written
    uses the level's iterator, alone, in one and the same dimension wherever it appears.
    """
    instances = sum(prod(leaf.sizes) for node in program.body for leaf in node.leaves)
    written = [b for b in program.buffers if any(o.writes for o in program.occurrences[b.name])]
    sizes: list[int] = []
    dimensions: dict[str, tuple[int, ...]] = {array: () for b in written for array in b.arrays}
    nodes = program.body
    while nodes and (not sizes or instances > row_instances * prod(sizes)):
        scopes = [node for node in nodes if isinstance(node, Scope)]
        if len(scopes) < len(nodes) or len({scope.size for scope in scopes}) != 1:
            break
        found = {b: _dimension_of(program, b, len(sizes)) for b in written}
        if None in found.values():
            break
        sizes.append(scopes[0].size)
        for buffer, dimension in found.items():
            assert dimension is not None
            dimensions |= {array: (*dimensions[array], dimension) for array in buffer.arrays}
        nested = all(len(scope.body) == 1 for scope in scopes)
        nodes = tuple(scope.body[0] for scope in scopes) if nested else ()
    return Rows(tuple(sizes), dimensions) if sizes else None


def _dimension_of(program: Program, buffer: Buffer, level: int) -> int | None:
    """The dimension in which every access of the buffer has the level's iterator alone."""
    accesses = [o.access for o in program.occurrences[buffer.name]]
    alone = Index.level(level)
    return next((k for k in buffer.materialised if all(a.subscripts[k] == alone for a in accesses)), None)


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
    nan_may_differ: bool = False,
) -> KernelSource:
    """The program over ``num`` as a C kernel.

    Every array has ``batch`` as its first dimension: so many runs in one call. Inputs are those
    of the program; with ``split`` (of :func:`outermost_rows`) also ``ROWS`` (i32, ``rows`` by
    levels): only these rows are run, and each output holds them only, along its first dimension, in
    front of those of its dimensions that are no level's. Outputs are, for each output ``y``, ``y_v``
    (f64; i64 for integers) and ``y_f`` (plain arithmetic of its dtype), with BOUNDED also ``y_e``
    (rounded up); and ``PEAK``, the largest finite value ever stored. ``accuracy`` gives a
    function's error in ulp, 0.5 if absent. With ``any_order`` the bound holds for every order of
    every reduction; with ``nan_may_differ`` nothing is certain that is made of an infinity or a NaN by a cast
    to an integer or a comparison.
    """
    return _Emitter(program, kind, accuracy, dialect, batch, rows, split, any_order, nan_may_differ).source()


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
        nan_may_differ: bool,
    ) -> None:
        self.program, self.kind, self.accuracy, self.dialect = program, kind, accuracy, dialect
        self.batch, self.rows, self.split, self.any_order = batch, rows, split, any_order
        self.summed = _summed_buffers(program) if any_order else {}
        self.nan_may_differ = nan_may_differ
        if unsupported := {b.dtype for b in program.buffers} - C_TYPES.keys():
            known = ", ".join(C_TYPES)
            raise VerificationError(
                "PD-V020",
                f"{program.name} uses {', '.join(sorted(unsupported))}, the numeric check knows {known}",
            )
        for dtype in STORED_DTYPES:
            if use := next(beyond_storage(program, dtype), ""):
                raise VerificationError(
                    "PD-V020",
                    f"{program.name} uses {dtype}: {use}",
                    why="the numeric check knows it in temporaries that f32 is rounded to and read back from",
                )

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

    def stored(self, dtype: str) -> list[tuple[str, str]]:
        """Name and C type of the arrays that hold the parts of a buffer's cells.

        Each part has an array of its own, so that a compiler can work on several cells at a time.
        """
        if dtype not in FLOAT_DTYPES:
            return [("v", "int64_t"), ("u", "int")]
        flat, wide, bound = (FLOATS[dtype][macro] for macro in ("F", "W", "E"))
        return [("v", wide), *([("e", bound)] if self.kind == BOUNDED else []), ("f", flat)]

    def load(self, buffer: Buffer, at: str) -> str:
        """The number in a cell."""
        cells = ", ".join(f"b_{buffer.name}_{part}[{at}]" for part, _ in self.stored(buffer.dtype))
        return f"load_{buffer.dtype}({cells})" if buffer.dtype in FLOAT_DTYPES else f"(whole){{{cells}}}"

    def store(self, buffer: Buffer) -> str:
        """Assign the number x to the cell ``at``."""
        value = {"v": "x.v", "f": "x.f", "e": f"upwards_{buffer.dtype}(x.e)", "u": "x.unsure"}
        return " ".join(f"b_{buffer.name}_{p}[at] = {value[p]};" for p, _ in self.stored(buffer.dtype))

    def parts(self, dtype: str) -> list[tuple[str, str]]:
        """Suffix and dtype of the arrays that stand for one output."""
        plain = dtype if dtype in FLOAT_DTYPES else "i64"
        found = [("v", "f64" if dtype in FLOAT_DTYPES else "i64"), ("f", plain)]
        bound = [("e", BOUNDS.get(dtype, "f32"))]
        return found + (bound if self.kind == BOUNDED else [])

    def prelude(self) -> Iterator[str]:
        """The number types of the dtypes that the program uses."""
        yield '#include "reference_whole.h"'
        yield f"#define NAN_MAY_DIFFER {int(self.nan_may_differ)}"
        used = {b.dtype for b in self.program.buffers} | cast_dtypes(self.program)
        used |= set() if used.isdisjoint(STORED_DTYPES) else {"f32"}
        floats = [dtype for dtype in FLOATS if dtype in used]
        functions = {f"{f.upper()}_ULP": repr(float(self.accuracy.get(f, 0.5))) for f in FUNCTIONS}
        for dtype in floats:
            yield from defined({"DTYPE": dtype, **FLOATS[dtype], **functions})
            yield f'#include "reference_{self.kind}.h"'
        for dtype, wider in combinations(floats, 2):
            yield from defined({"DTYPE": dtype, **FLOATS[dtype], "WIDER": wider})
            yield f'#include "reference_convert_{self.kind}.h"'

    def file(self, inputs: list[ArraySpec], outputs: list[ArraySpec]) -> Iterator[str]:
        yield from self.prelude()
        # The program's own names may be words of C: everything of the program carries a prefix.
        parameters = [f"const {C_TYPES[s.dtype]} *restrict {_name(s.name)}" for s in inputs]
        parameters += [f"{C_TYPES[s.dtype]} *restrict {_result(s.name)}" for s in outputs]
        yield f"static int run_one({', '.join(parameters)})"
        yield "{"
        yield "    int64_t peak = 0;"
        own = [b for b in self.program.buffers if not set(b.arrays) & set(self.program.inputs)]
        storage = [
            (f"b_{buffer.name}_{part}", kind, f"{buffer.cells}L * sizeof({kind})")
            for buffer in own
            if not self.in_place(buffer)
            for part, kind in self.stored(buffer.dtype)
        ]
        for buffer in filter(self.in_place, own):
            for part, kind in self.stored(buffer.dtype):
                [output] = buffer.arrays
                yield f"    {kind} *restrict b_{buffer.name}_{part} = {_result(f'{output}_{part}')};"
        for array, kind, size in storage:
            yield f"    {kind} *restrict {array} = cells({size}, {int(not self.split)});"
            yield f"    if (!{array}) return 1;"
        for node in self.program.body:
            yield from self.node(node, [], 1)
        for name in self.program.outputs:
            if not self.in_place(self.program.buffer_of[name]):
                yield from self.copy_out(name)
        for array, _, size in storage:
            yield f"    release({array}, {size});"
        yield f"    *{_result(PEAK)} = peak_of(peak);"
        yield "    return 0;"
        yield "}"
        yield f"size_t {SYMBOL}_workspace_bytes(int threads) {{ (void)threads; return 0; }}"
        yield f"int {SYMBOL}({', '.join(parameters)}, void *workspace, size_t bytes, int threads)"
        yield "{"
        yield "    (void)workspace; (void)bytes; (void)threads;"
        yield f"    for (long b = 0; b < {self.batch}; b++)"
        names = [*(_name(s.name) for s in inputs), *(_result(s.name) for s in outputs)]
        sizes = [prod(s.shape) for s in (*inputs, *outputs)]
        ones = [f"{name} + b * {size}L" for name, size in zip(names, sizes, strict=True)]
        yield f"        if (run_one({', '.join(ones)})) return 1;"
        yield "    return 0;"
        yield "}"

    def in_place(self, buffer: Buffer) -> bool:
        """Whether an output's cells are kept where the caller wants them: they have the same types there."""
        is_output = not {*self.program.outputs}.isdisjoint(buffer.arrays)
        return is_output and buffer.dtype == "f32" and not self.split

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
            yield f"        {_result(f'{name}_{part}')}[{to}] = {_part(part, buffer)};"
        yield "    }"
        yield "    }"

    def row(self, level: int) -> str:
        """The iteration of a level in row r."""
        assert self.split
        return f"(long){_name(ROWS)}[r * {len(self.split.sizes)} + {level}]"

    # -- the tree --------------------------------------------------------------------------

    def node(self, node: Node, scopes: list[Scope], depth: int) -> Iterator[str]:
        pad = "    " * depth
        if isinstance(node, Statement):
            yield from (pad + line for line in self.statement(node, scopes))
            return
        level = len(scopes)
        levels = len(self.split.sizes) if self.split else 0
        if level >= levels and (together := self.lanes_that_meet(node, level)):
            yield from (pad + line for line in self.together(node, together, [*scopes, node]))
            return
        if level < levels:
            # The first of the levels stands for all of them; those below it only name their iteration.
            yield f"{pad}for (long r = 0; r < {self.rows}; r++) {{" if level == 0 else pad + "{"
            yield f"{pad}    const long i{level} = {self.row(level)};"
        else:
            yield f"{pad}for (long i{level} = 0; i{level} < {node.size}; i{level}++) {{"
        for child in node.body:
            yield from self.node(child, [*scopes, node], depth + 1)
        yield pad + "}"

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
        i, kind = f"i{len(scopes) - 1}", _number(statement.dtype)
        loop = f"    for (long {i} = 0; {i} < {scope.size}; {i}++) "
        guarded = f"if ({_condition(statement)}) {{" if statement.guard else "{"
        address = self.program.buffer_of[statement.target.array].address(statement.target.subscripts)
        yield f"{{ {kind} lanes[{scope.size}];"
        yield loop + guarded
        yield from self.computed(statement, scopes)
        yield f"    lanes[{i}] = x;"
        yield "    }"
        yield loop + guarded
        yield f"    const long at = {_form(address)};"
        yield f"    const {kind} x = lanes[{i}];"
        yield from self.put(statement)
        yield "    }"
        yield "}"

    def statement(self, statement: Statement, scopes: list[Scope]) -> Iterator[str]:
        yield f"if ({_condition(statement)}) {{" if statement.guard else "{"
        yield from self.computed(statement, scopes)
        yield from self.put(statement)
        yield "}"

    def computed(self, statement: Statement, scopes: list[Scope]) -> Iterator[str]:
        """The value ``x`` of the cell ``at`` afterwards."""
        buffer, dtype = self.program.buffer_of[statement.target.array], statement.dtype
        yield f"    const long at = {_form(buffer.address(statement.target.subscripts))};"
        yield f"    {_number(dtype)} x = {self.expression(statement.value)};"
        if statement.accumulate:
            yield f"    {_number(dtype)} a = {self.load(buffer, 'at')};{self.anchor(statement, scopes)}"
            yield f"    x = {self.accumulation(statement, scopes)};"
        elif buffer.name in self.summed and dtype in FLOAT_DTYPES:
            yield f"    x = num_anchor_{dtype}(x, {self.summed[buffer.name]});"

    def put(self, statement: Statement) -> Iterator[str]:
        yield f"    {self.store(self.program.buffer_of[statement.target.array])}"
        yield "    peak = higher(peak, magnitude((double)x.v));"

    def accumulation(self, statement: Statement, scopes: list[Scope]) -> str:
        if statement.dtype not in FLOAT_DTYPES:
            return f"wrap_{statement.dtype}(whole_{statement.accumulate}(a, x))"
        terms = self.terms(statement, scopes)
        if statement.accumulate == "add" and terms > 1:
            return f"num_sum_{statement.dtype}(a, x, {terms})"
        return f"num_{statement.accumulate}_{statement.dtype}(a, x)"

    def terms(self, statement: Statement, scopes: list[Scope]) -> int:
        """How many terms the target machine may add in an order of its own; 1: in program order."""
        if self.any_order:
            return self.summed.get(self.program.buffer_of[statement.target.array].name, 1)
        innermost = scopes[-1] if scopes else None
        if innermost is None or not self.dialect.is_lockstep(innermost.suffix):
            return 1
        address = self.program.buffer_of[statement.target.array].address(statement.target.subscripts)
        return 1 if len(scopes) - 1 in address.levels else innermost.size

    def anchor(self, statement: Statement, scopes: list[Scope]) -> str:
        """A horizontal sum may add the old value anywhere among its lanes."""
        terms = self.terms(statement, scopes)
        sums = statement.accumulate == "add" and statement.dtype in FLOAT_DTYPES
        if self.any_order or not sums or terms == 1:
            return ""
        return f" if (i{len(scopes) - 1} == 0) a = num_anchor_{statement.dtype}(a, {terms + 1});"

    def expression(self, value: Expression) -> str:
        if isinstance(value, Literal):
            return _literal(value)
        if isinstance(value, IndexValue):
            form = _form(value.index)
            if value.dtype in FLOAT_DTYPES:
                return f"integer_{value.dtype}({form})"
            return f"wrap_{value.dtype}(whole_of({form}))"
        if isinstance(value, Read):
            return self.read(value.access)
        if isinstance(value, Cast):
            return _cast(value, self.expression(value.argument))
        return self.operation(value)

    def operation(self, value: Operation) -> str:
        dtype, arguments = value.operand_dtype, [self.expression(a) for a in value.arguments]
        listed = ", ".join(arguments)
        if dtype in FLOAT_DTYPES:
            exact = value.name == "mul" and all(map(self.exact, value.arguments))
            return f"num_{value.name}{'_exact' if exact else ''}_{dtype}({listed})"
        name = "flip" if value.name == "not" and dtype == "bool" else value.name
        if OPERATIONS[value.name].compares or OPERATIONS[value.name].chooses:
            return f"whole_{name}({listed})"
        return f"wrap_{dtype}(whole_{name}({listed}))"

    def exact(self, value: Expression) -> bool:
        return isinstance(value, Literal) or (
            isinstance(value, Read) and value.access.array in self.program.inputs
        )

    def read(self, access: Access) -> str:
        buffer = self.program.buffer_of[access.array]
        at = _form(buffer.address(access.subscripts))
        if access.array not in self.program.inputs:
            return self.load(buffer, at)
        given = f"{_name(access.array)}[{at}]"
        return f"literal_{buffer.dtype}({given})" if buffer.dtype in FLOAT_DTYPES else f"whole_of({given})"


def _summed_buffers(program: Program) -> dict[str, int]:
    """Buffer -> most terms that sums into one of its cells may have together."""
    terms: dict[str, int] = {}
    for path, node in program.walk():
        if not isinstance(node, Statement) or node.accumulate != "add":
            continue
        buffer = program.buffer_of[node.target.array]
        carried = buffer.address(node.target.subscripts).levels
        trips = prod(s.size for level, s in enumerate(program.ancestors(path)) if level not in carried)
        terms[buffer.name] = terms.get(buffer.name, 1) + trips
    return terms


def cast_dtypes(program: Program) -> set[str]:
    """Dtypes of all values, those that stand in no buffer among them."""

    def visit(value: Expression) -> Iterator[str]:
        yield value.dtype
        inside = value.arguments if isinstance(value, Operation) else ()
        for argument in (value.argument,) if isinstance(value, Cast) else inside:
            yield from visit(argument)

    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    return {dtype for statement in statements for dtype in visit(statement.value)}


def _headers() -> Mapping[str, str]:
    folder = resources.files("perfdojo_sdk.verify").joinpath("include")
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}


def _number(dtype: str) -> str:
    return f"num_{dtype}" if dtype in FLOAT_DTYPES else "whole"


def _part(part: str, buffer: Buffer) -> str:
    """A part of the cell ``at`` as an output holds it; the value of f64 is rounded to a double there."""
    cell = f"b_{buffer.name}_%s[at]"
    if buffer.dtype in FLOAT_DTYPES:
        rounded = part == "e" and buffer.dtype == "f64"
        return cell % part + (f" + 0x1.01p-53 * fabs((double){cell % 'v'})" if rounded else "")
    return f"{cell % 'u'} ? INFINITY : 0" if part == "e" else cell % "v"


def _cast(value: Cast, argument: str) -> str:
    source, target = value.argument.dtype, value.dtype
    if source == target:
        return argument
    if target in FLOAT_DTYPES:
        function = f"convert_{source}" if source in FLOAT_DTYPES else "from_whole"
        return f"{function}_{target}({argument})"
    if source not in FLOAT_DTYPES:
        return f"wrap_{target}({argument})"
    if target == "bool":
        return f"to_bool_{source}({argument})"
    least, most = map(_integer, integer_bounds(target))
    return f"to_whole_{source}({argument}, {least}, {most})"


def _condition(statement: Statement) -> str:
    return " && ".join(f"{_form(form)} >= 0" for form in statement.guard)


def _form(index: Index) -> str:
    parts = [f"i{level} * {coefficient}L" for level, coefficient in index.terms]
    for quotient, coefficient in index.quotients:
        sign = "%" if quotient.remainder else "/"
        parts.append(f"({_form(quotient.dividend)}) {sign} {quotient.divisor}L * {coefficient}L")
    return " + ".join([*parts, f"{index.constant}L"])


def _literal(literal: Literal) -> str:
    if literal.dtype not in FLOAT_DTYPES:
        return f"whole_of({_integer(int(literal.value))})"
    value = float(literal.value)
    if value in (float("inf"), float("-inf")):
        return f"literal_{literal.dtype}({'' if value > 0 else '-'}INFINITY)"
    if literal.dtype in STORED_DTYPES:
        # It was f32 before it was rounded, which the bound has to know.
        return f"convert_f32_{literal.dtype}(literal_f32((float){value!r}))"
    return f"literal_{literal.dtype}(({C_TYPES[literal.dtype]}){value!r})"


def _integer(value: int) -> str:
    return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"


def _name(array: str) -> str:
    return f"a_{array}"


def _result(array: str) -> str:
    """An output: an input may be called as one of its parts is."""
    return f"r_{array}"
