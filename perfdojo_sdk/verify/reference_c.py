"""A second opinion in C: programs run literally, in a number type that knows more than a float.

The emitter here shares nothing with the one that makes kernels: scopes are plain loops in order,
buffers are flat arrays, every operation is a function of one type ``num``. What a ``num`` is
comes from a prelude. ``WIDE`` computes the meaning: the value in double, and beside it what plain
single precision gives. ``BOUNDED`` adds a bound on the distance between the exact value and what
any legal compilation of the same order may compute, contracted to fused multiply-adds or not.

The bound is the running error bound of the textbooks (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.3): an operation adds ``u |result|``, u = 2^-24, half of the smallest
denormal where it may underflow, and passes its arguments' errors on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.expression import Access, Expression, Index, IndexValue, Literal, Operation, Read
from perfdojo_sdk.core.program import Buffer, Node, Program, Scope, Statement
from perfdojo_sdk.hookspecs.types import ArraySpec, KernelSource
from perfdojo_sdk.verify.reference_types import BOUNDED, PRELUDES, WIDE

__all__ = ["BOUNDED", "WIDE", "Rows", "outermost_rows", "reference"]

SYMBOL = "pd_reference"


@dataclass(frozen=True)
class Rows:
    """Every output row is computed by one iteration of the outermost scopes, from inputs alone."""

    size: int
    dimension: Mapping[str, int]
    """Array -> the dimension whose subscript is the outermost iterator."""


def outermost_rows(program: Program) -> Rows | None:
    """How the program falls into independent rows, or None.

    Holds when all outermost scopes have one size and every array that is written uses their
    iterator, alone, in one and the same dimension wherever it appears.
    """
    tops = {node.size for node in program.body if isinstance(node, Scope)}
    if len(tops) != 1 or any(isinstance(node, Statement) for node in program.body):
        return None
    first = Index.level(0)
    dimension: dict[str, int] = {}
    for buffer in program.buffers:
        occurrences = program.occurrences[buffer.name]
        if not any(o.writes for o in occurrences):
            continue
        shared = [k for k in buffer.materialised if all(o.access.subscripts[k] == first for o in occurrences)]
        if not shared:
            return None
        dimension |= dict.fromkeys(buffer.arrays, shared[0])
    return Rows(tops.pop(), dimension)


def reference(
    program: Program,
    kind: str,
    accuracy: Mapping[str, float],
    dialect: Dialect,
    *,
    batch: int = 1,
    rows: int = 0,
    any_order: bool = False,
) -> KernelSource:
    """The program over ``num`` as a C kernel.

    Every array has ``batch`` as its first dimension: so many runs in one call. Inputs are those
    of the program; with ``rows`` also ``pd_rows`` (i32): so many of the outermost iterations,
    ascending, are run, and outputs hold these rows only (ValueError if rows depend on each
    other). Outputs are, for each output ``y``, ``y_v`` (f64) and ``y_f`` (f32, plain single
    precision), with BOUNDED also ``y_e`` (f32, rounded up); and ``pd_peak``, the largest finite
    value ever stored. ``accuracy`` gives a function's error in ulp, 0.5 if absent. With
    ``any_order`` the bound holds for every order of every reduction.
    """
    return _Emitter(program, kind, accuracy, dialect, batch, rows, any_order).source()


class _Emitter:
    def __init__(
        self,
        program: Program,
        kind: str,
        accuracy: Mapping[str, float],
        dialect: Dialect,
        batch: int,
        rows: int,
        any_order: bool,
    ) -> None:
        self.program, self.kind, self.accuracy, self.dialect = program, kind, accuracy, dialect
        self.batch, self.rows, self.any_order = batch, rows, any_order
        self.split = outermost_rows(program) if rows else None
        if rows and not self.split:
            raise ValueError(f"the rows of {program.name} depend on each other")
        self.summed = _summed_buffers(program) if any_order else {}
        if unsupported := {b.dtype for b in program.buffers} - {"f32"}:
            raise VerificationError(
                "PD-V020",
                f"{program.name} uses {', '.join(sorted(unsupported))}, the numeric check knows f32",
            )

    # -- the interface ---------------------------------------------------------------------

    def source(self) -> KernelSource:
        shapes = {a: b.shape for a, b in self.program.buffer_of.items()}
        inputs = [ArraySpec(name, shapes[name], "f32") for name in self.program.inputs]
        if self.rows:
            inputs.append(ArraySpec("pd_rows", (self.rows,), "i32"))
        outputs = []
        for name in self.program.outputs:
            shape = list(shapes[name])
            if self.split:
                shape[self.split.dimension[name]] = self.rows
            outputs += [ArraySpec(f"{name}_{part}", tuple(shape), dtype) for part, dtype in self.parts()]
        outputs.append(ArraySpec("pd_peak", (), "f64"))
        code = "\n".join(self.file(inputs, outputs)) + "\n"
        return KernelSource(SYMBOL, self.batched(inputs), self.batched(outputs), code)

    def batched(self, specs: list[ArraySpec]) -> tuple[ArraySpec, ...]:
        return tuple(replace(s, shape=(self.batch, *s.shape)) for s in specs)

    def parts(self) -> list[tuple[str, str]]:
        return [("v", "f64"), ("f", "f32")] + ([("e", "f32")] if self.kind == BOUNDED else [])

    def file(self, inputs: list[ArraySpec], outputs: list[ArraySpec]) -> Iterator[str]:
        yield PRELUDES[self.kind].replace("@EXP_ULP@", repr(float(self.accuracy.get("exp", 0.5))))
        c_type = {"f32": "float", "f64": "double", "i32": "int"}
        # The program's own names may be words of C: everything of the program carries a prefix.
        parameters = [f"const {c_type[s.dtype]} *restrict {_name(s.name)}" for s in inputs]
        parameters += [f"{c_type[s.dtype]} *restrict {_name(s.name)}" for s in outputs]
        yield f"static int run_one({', '.join(parameters)})"
        yield "{"
        yield "    double peak = 0;"
        own = [b for b in self.program.buffers if not set(b.arrays) & set(self.program.inputs)]
        for buffer in own:
            yield f"    cell *restrict b_{buffer.name} = cells({buffer.cells}L);"
            yield f"    if (!b_{buffer.name}) return 1;"
        for node in self.program.body:
            yield from self.node(node, [], 1)
        for name in self.program.outputs:
            yield from self.copy_out(name)
        for buffer in own:
            yield f"    release(b_{buffer.name}, {buffer.cells}L);"
        yield f"    *{_name('pd_peak')} = peak;"
        yield "    return 0;"
        yield "}"
        yield f"size_t {SYMBOL}_workspace_bytes(int threads) {{ (void)threads; return 0; }}"
        yield f"int {SYMBOL}({', '.join(parameters)}, void *workspace, size_t bytes, int threads)"
        yield "{"
        yield "    (void)workspace; (void)bytes; (void)threads;"
        yield f"    for (long b = 0; b < {self.batch}; b++)"
        ones = [f"{_name(s.name)} + b * {prod(s.shape)}L" for s in (*inputs, *outputs)]
        yield f"        if (run_one({', '.join(ones)})) return 1;"
        yield "    return 0;"
        yield "}"

    def copy_out(self, name: str) -> Iterator[str]:
        """Unpack the cells; of the rows that were run if there are rows."""
        buffer = self.program.buffer_of[name]
        axis = self.split.dimension[name] if self.split else 0
        size, inner = buffer.shape[axis], prod(buffer.shape[axis + 1 :])
        rows, row = (self.rows, f"{_name('pd_rows')}[r]") if self.split else (size, "r")
        yield f"    for (long o = 0; o < {prod(buffer.shape[:axis])}; o++)"
        yield f"    for (long r = 0; r < {rows}; r++)"
        yield f"    for (long k = 0; k < {inner}; k++) {{"
        yield f"        const cell *c = &b_{buffer.name}[(o * {size} + {row}) * {inner} + k];"
        for part, _ in self.parts():
            yield f"        {_name(f'{name}_{part}')}[(o * {rows} + r) * {inner} + k] = c->{part};"
        yield "    }"

    # -- the tree --------------------------------------------------------------------------

    def node(self, node: Node, scopes: list[Scope], depth: int) -> Iterator[str]:
        pad = "    " * depth
        if isinstance(node, Statement):
            yield from (pad + line for line in self.statement(node, scopes))
            return
        level = len(scopes)
        if self.split and level == 0:
            yield f"{pad}for (long r = 0; r < {self.rows}; r++) {{"
            yield f"{pad}    long i0 = {_name('pd_rows')}[r];"
        else:
            yield f"{pad}for (long i{level} = 0; i{level} < {node.size}; i{level}++) {{"
        for child in node.body:
            yield from self.node(child, [*scopes, node], depth + 1)
        yield pad + "}"

    def statement(self, statement: Statement, scopes: list[Scope]) -> Iterator[str]:
        buffer = self.program.buffer_of[statement.target.array]
        value = self.expression(statement.value)
        yield "{"
        yield f"    cell *c = &b_{buffer.name}[{_address(buffer, statement.target)}];"
        yield f"    num x = {value};"
        if statement.accumulate:
            yield f"    num a = load(*c);{self.anchor(statement, scopes)}"
            yield f"    x = {self.accumulation(statement, scopes)};"
        elif buffer.name in self.summed:
            yield f"    x = num_anchor(x, {self.summed[buffer.name]});"
        yield "    *c = store(x);"
        yield "    if (fabs(x.v) > peak && finite_(x.v)) peak = fabs(x.v);"
        yield "}"

    def accumulation(self, statement: Statement, scopes: list[Scope]) -> str:
        terms = self.terms(statement, scopes)
        if statement.accumulate == "add" and terms > 1:
            return f"num_sum(a, x, {terms})"
        return f"num_{statement.accumulate}(a, x)"

    def terms(self, statement: Statement, scopes: list[Scope]) -> int:
        """How many terms the target machine may add in an order of its own; 1: in program order."""
        if self.any_order:
            return self.summed.get(self.program.buffer_of[statement.target.array].name, 1)
        innermost = scopes[-1] if scopes else None
        if innermost is None or not self.dialect.is_lockstep(innermost.suffix):
            return 1
        carried, _ = _flat(self.program.buffer_of[statement.target.array], statement.target)
        return 1 if carried.get(len(scopes) - 1) else innermost.size

    def anchor(self, statement: Statement, scopes: list[Scope]) -> str:
        """A horizontal sum may add the old value anywhere among its lanes."""
        terms = self.terms(statement, scopes)
        if self.any_order or statement.accumulate != "add" or terms == 1:
            return ""
        return f" if (i{len(scopes) - 1} == 0) a = num_anchor(a, {terms + 1});"

    def expression(self, value: Expression) -> str:
        if isinstance(value, Literal):
            return f"literal({_literal(value)})"
        if isinstance(value, IndexValue):
            return f"integer({_affine(dict(value.index.terms), value.index.constant)})"
        if isinstance(value, Read):
            return self.read(value.access)
        if isinstance(value, Operation):
            name = (
                "mul_exact" if value.name == "mul" and all(map(self.exact, value.arguments)) else value.name
            )
            return f"num_{name}({', '.join(self.expression(a) for a in value.arguments)})"
        # f32 is the only dtype here, and a cast to one's own dtype changes nothing.
        return self.expression(value.argument)

    def exact(self, value: Expression) -> bool:
        return isinstance(value, Literal) or (
            isinstance(value, Read) and value.access.array in self.program.inputs
        )

    def read(self, access: Access) -> str:
        buffer = self.program.buffer_of[access.array]
        at = _address(buffer, access)
        if access.array in self.program.inputs:
            return f"literal({_name(access.array)}[{at}])"
        return f"load(b_{buffer.name}[{at}])"


def _summed_buffers(program: Program) -> dict[str, int]:
    """Buffer -> most terms that sums into one of its cells may have together."""
    terms: dict[str, int] = {}
    for path, node in program.walk():
        if not isinstance(node, Statement) or node.accumulate != "add":
            continue
        buffer = program.buffer_of[node.target.array]
        carried, _ = _flat(buffer, node.target)
        trips = prod(s.size for level, s in enumerate(program.ancestors(path)) if not carried.get(level))
        terms[buffer.name] = terms.get(buffer.name, 1) + trips
    return terms


def _flat(buffer: Buffer, access: Access) -> tuple[dict[int, int], int]:
    """The address in cells as an affine form: level -> coefficient, and the constant."""
    terms, constant, stride = dict[int, int](), 0, 1
    for k in reversed(buffer.materialised):
        subscript = access.subscripts[k]
        constant += stride * subscript.constant
        for level, coefficient in subscript.terms:
            terms[level] = terms.get(level, 0) + stride * coefficient
        stride *= buffer.dimensions[k].size
    return terms, constant


def _address(buffer: Buffer, access: Access) -> str:
    return _affine(*_flat(buffer, access))


def _affine(terms: Mapping[int, int], constant: int) -> str:
    parts = [f"i{level} * {coefficient}L" for level, coefficient in sorted(terms.items()) if coefficient]
    return " + ".join([*parts, f"{constant}L"])


def _literal(literal: Literal) -> str:
    value = float(literal.value)
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"(float){value!r}"


def _name(array: str) -> str:
    return f"a_{array}"
