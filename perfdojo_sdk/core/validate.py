"""The rules that make a parsed tree a program: every one of the language that is not syntax.

The parser reports the first violation with its line. Fuzzing runs the same rules after every
move, so a transformation that leaves the language is caught even where no result changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import (
    CODED_DTYPES,
    INTEGER_DTYPES,
    NARROW_DTYPES,
    PACKED_DTYPES,
    UNCOMPUTED_DTYPES,
    converts,
    integer_bounds,
)
from perfdojo_sdk.core.expression import (
    CODE_SOURCE,
    INDEX_DTYPE,
    Access,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
    walk,
)
from perfdojo_sdk.core.geometry import (
    MAX_REACH,
    beyond_reach,
    guarded_bounds,
    index_values,
    is_copy,
    lane_stride,
    most_lanes,
    negative_dividends,
    parallel_users,
)
from perfdojo_sdk.core.lookups import CLAMP, lookups_in, lookups_of, unfit
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import (
    LocatedNode,
    Occurrence,
    Program,
    Scope,
    Statement,
    new_occurrence,
    occurrences_of,
)
from perfdojo_sdk.core.storage import PACKED, Buffer


class Violation(NamedTuple):
    code: str
    what: str
    node: str = ""
    """Id of the scope or statement at fault; empty for the interface and the buffers."""
    name: str = ""
    """The array or buffer at fault."""
    hint: str = ""
    arrays: tuple[str, ...] = ()
    """Arrays of the buffer at fault."""
    access: Access | None = None
    location: str = ""
    iterator: str = ""
    """Id of the scope whose iterator is at fault."""


def violations(program: Program, dialect: Dialect, before: Program | None = None) -> Iterator[Violation]:
    """Every rule that the program breaks, lazily.

    ``before``: a program that breaks none. What stands in a nest that both share, over storage that they
    share, cannot break a rule in one and not in the other.
    """
    yield from _interface(program, dialect)
    kept, settled = _shared(before, program) if before is not None else _NOTHING
    places = [place for place in program.places if place.path[0] not in kept]
    found: dict[str, list[Occurrence]] = {b.name: [] for b in program.buffers}
    of_array = {array: found[buffer.name] for array, buffer in program.buffer_of.items()}
    for place in places:
        for o in _occurrences(place):
            of_array[o.access.array].append(o)
    for buffer in program.buffers:
        if buffer.name not in settled:
            yield from _bounds(buffer, found[buffer.name])
            yield from _order(program, buffer, found[buffer.name])
            yield from _first_write(program, buffer)
            yield from location_violations(program, buffer, found[buffer.name], dialect)
    for place in places:
        yield from _scope(program, place, dialect)
    for place in places:
        yield from _statement(program, place)


_NOTHING: tuple[frozenset[int], frozenset[str]] = (frozenset(), frozenset())


def _shared(before: Program, after: Program) -> tuple[frozenset[int], frozenset[str]]:
    """The parts that ``after`` shares with ``before``: numbers of its outermost nodes that both hold over the
    same storage; names of the buffers that the same nodes use in the same order."""
    if (before.inputs, before.outputs) != (after.inputs, after.outputs):
        return _NOTHING
    mine, theirs = after.buffer_of, before.buffer_of
    old, new = {id(node): node for node in before.body}, {id(node): node for node in after.body}
    nests = [
        k
        for k, node in enumerate(after.body)
        if id(node) in old and (mine is theirs or all(mine[a] is theirs.get(a) for a in node.arrays))
    ]
    same = [b for b in after.buffers if b is theirs.get(b.arrays[0])]
    if [id(n) for n in before.body if id(n) in new] == [id(n) for n in after.body if id(n) in old]:
        apart = [*(n for k, n in old.items() if k not in new), *(n for k, n in new.items() if k not in old)]
        touched = frozenset[str]().union(*[node.arrays for node in apart])
        same = [b for b in same if touched.isdisjoint(b.arrays)]
    else:  # what both hold stands in another order
        used, uses = before.users, after.users
        same = [b for b in same if uses[b.name] == used[b.name]]
    return frozenset(nests), frozenset([b.name for b in same])


def target_violations(
    program: Program, places: Sequence[LocatedNode], dialect: Dialect
) -> Iterator[Violation]:
    """Violations of locations and lanes by the statements at ``places``, which are in program order.

    For moves that put such statements into a program, with plain scopes and buffers: the statements use
    elements that others use, so they can break no other rule.
    """
    found = [o for place in places for o in _occurrences(place)]
    buffer_of = program.buffer_of
    touched = {buffer_of[o.access.array].name for o in found}
    for buffer in program.buffers:
        if buffer.name in touched and not dialect.locations[buffer.location].allows_all:
            here = [o for o in found if o.access.array in buffer.arrays]
            yield from location_violations(program, buffer, here, dialect)
    for place in places:
        around = place.above[-1:]
        if around and dialect.is_lockstep(around[0].suffix):
            lanes = around[0].with_body(program.siblings(place.path))
            yield from _lockstep(program, lanes, len(place.above) - 1, dialect)


def _occurrences(place: LocatedNode) -> Iterator[Occurrence]:
    """The accesses of the statement at a place."""
    node, path, above, sizes = place
    if isinstance(node, Statement):
        for read in node.reads:
            yield new_occurrence((read, node, False, path, above, sizes))
        yield new_occurrence((node.target, node, True, path, above, sizes))


def _interface(program: Program, dialect: Dialect) -> Iterator[Violation]:
    for name in program.tables:
        if name in program.outputs:
            yield Violation("PD-P018", f"the table {name} is an output", name=name)
    yield from _packed(program)
    names = [*program.inputs, *program.outputs]
    for name in names:
        buffer = program.buffer_of.get(name)
        if buffer is None:
            yield Violation("PD-P009", f"{name!r} of the interface has no buffer", name=name)
        elif max(program.inputs.count(name), program.outputs.count(name)) > 1:
            yield Violation("PD-P011", f"{name!r} appears twice in the interface", name=name)
        elif buffer.arrays != (name,):
            yield Violation("PD-P011", f"{name!r} of the interface shares its buffer", name=name)
        elif len(buffer.materialised) < len(buffer.dimensions):
            yield Violation("PD-P011", f"{name!r} of the interface must be materialised", name=name)
        elif buffer.location != dialect.default_location:
            where = dialect.default_location
            yield Violation("PD-P011", f"{name!r} of the interface must live in {where}", name=name)


def _packed(program: Program) -> Iterator[Violation]:
    """Packed arrays are of dtypes of less than a byte, and nothing writes them."""
    for buffer in program.buffers:
        if not buffer.packed:
            continue
        if buffer.dtype not in PACKED_DTYPES:
            what = f"{buffer.name} is packed, and an element of {buffer.dtype} fills its bytes"
            hint = f"leave out {PACKED}; arrays of {', '.join(PACKED_DTYPES)} may be packed"
            yield Violation("PD-P019", what, name=buffer.name, hint=hint)
        elif buffer.values is None and not program.read_only.issuperset(buffer.arrays):
            kind = "changed in place" if program.in_out.intersection(buffer.arrays) else "written"
            what = f"{buffer.name} is packed, and is {kind}"
            hint = f"leave out {PACKED}: where elements share a byte, a write of one changes its neighbours"
            first = next((o for o in program.occurrences[buffer.name] if o.writes), None)
            at = first.statement.id if first else ""
            yield Violation("PD-P019", what, at, buffer.name, hint)


def _bounds(buffer: Buffer, occurrences: Sequence[Occurrence]) -> Iterator[Violation]:
    """Every subscript stays inside its dimension wherever the statement's guard holds."""
    for o in occurrences:
        yield from _beyond(buffer, o.access, o.statement, o.sizes)


def _beyond(
    buffer: Buffer, access: Access, statement: Statement, sizes: tuple[int, ...]
) -> Iterator[Violation]:
    for subscript, size in zip(access.subscripts, buffer.shape, strict=True):
        low, high = subscript.bounds(sizes)
        if low >= 0 and high < size:
            continue
        low, high = guarded_bounds(subscript, statement.guard, sizes)
        if low < 0 or high >= size:
            yield Violation(
                "PD-P012",
                f"{access.text}: subscript {subscript.text} reaches {low} .. {high}, "
                f"the dimension holds 0 .. {size - 1}",
                statement.id,
                access.array,
                f"write {CLAMP}(index, 0, {size - 1})"
                if lookups_in(subscript)
                else "change the subscript, the size of its scope or that of the array",
            )


def _lookups(program: Program, statement: Statement, sizes: tuple[int, ...]) -> Iterator[Violation]:
    """Run-time indices read inputs, and choose elements of inputs to read or of outputs to write."""
    values = [value.index for value in index_values(statement.value)]
    for form in (*statement.guard, *values):
        if lookups_in(form):
            what = f"{form.text}: a run-time index stands in a condition or a number"
            hint = "run-time indices choose elements of arrays"
            yield Violation("PD-P017", what, statement.id, hint=hint)
    if not statement.lookups:
        return
    target = statement.target
    if any(lookups_of((target,))) and target.array not in program.outputs:
        what = f"{target.text}: {target.array} is no output, and a run-time index chooses what is written"
        yield Violation("PD-P017", what, statement.id, target.array, "write an output at run-time indices")
    chosen = [access for access in statement.reads if any(lookups_of((access,)))]
    for access in (*chosen, *statement.index_reads):
        if access.array not in program.read_only:
            what = f"{access.text}: {access.array} is no input that is only read"
            hint = "run-time indices choose among elements of inputs, by elements of inputs"
            yield Violation("PD-P017", what, statement.id, access.array, hint)
    for lookup in statement.lookups:
        for what in _ill_typed(program, lookup.value):
            yield Violation("PD-P010", what, statement.id, hint="write the conversion")
        if reason := unfit(lookup.value):
            yield Violation("PD-P017", f"no run-time index: {reason}", statement.id)
    for access in statement.index_reads:
        yield from _beyond(program.buffer_of[access.array], access, statement, sizes)


def _order(program: Program, buffer: Buffer, occurrences: Sequence[Occurrence]) -> Iterator[Violation]:
    """Inputs that are no outputs are only read."""
    if not program.read_only.isdisjoint(buffer.arrays):
        for o in occurrences:
            if o.writes:
                what = f"input {o.access.array} is written"
                hint = "write into another array, or name it among the outputs as well to change it in place"
                yield Violation("PD-P013", what, o.statement.id, o.access.array, hint)


def _first_write(program: Program, buffer: Buffer) -> Iterator[Violation]:
    """Every buffer that is no input starts with a plain write."""
    if not frozenset(program.inputs).isdisjoint(buffer.arrays):
        return
    first = next(occurrences_of(frozenset(buffer.arrays), program.body), None)
    if first is None:
        if set(buffer.arrays) & set(program.outputs):
            hint = "add a statement that writes it, or take it out of the outputs"
            yield Violation("PD-P013", f"output {buffer.name} is never written", name=buffer.name, hint=hint)
    elif not first.writes or first.statement.accumulate or any(lookups_of((first.access,))):
        yield Violation(
            "PD-P013",
            f"{first.access.array} is read before it is written",
            first.statement.id,
            first.access.array,
            "start with a plain write",
        )


def location_violations(
    program: Program, buffer: Buffer, occurrences: Sequence[Occurrence], dialect: Dialect
) -> Iterator[Violation]:
    """Violations of the buffer's location, by these accesses of it and the scopes around all of them."""
    location = dialect.locations[buffer.location]
    if location.allows_all:
        return
    if location.max_bytes is not None and buffer.bytes > location.max_bytes:
        yield Violation(
            "PD-P014",
            f"{buffer.name} takes {buffer.bytes} bytes, {location.name} holds at most {location.max_bytes}",
            name=buffer.name,
            arrays=buffer.arrays,
            location=location.name,
        )
    for o in occurrences if location.constant_subscripts or location.copy_out_only else ():
        if location.constant_subscripts:
            for k in buffer.materialised:
                for level in sorted(o.access.subscripts[k].levels):
                    if not _is_constant(o.above[level], dialect):
                        yield Violation(
                            "PD-P014",
                            f"{o.access.text}: cells of {location.name} are named, and {{{level}}} is "
                            "neither unrolled nor a lane",
                            o.statement.id,
                            o.access.array,
                            arrays=buffer.arrays,
                            access=o.access,
                            location=location.name,
                            iterator=o.above[level].id,
                        )
        if location.copy_out_only and (o.statement.accumulate if o.writes else not is_copy(o.statement)):
            yield Violation(
                "PD-P014",
                f"{location.name} allows {buffer.name} to be copied out only",
                o.statement.id,
                o.access.array,
                arrays=buffer.arrays,
                access=o.access,
                location=location.name,
            )
    for scope in parallel_users(program, buffer, dialect) if not location.shared else ():
        yield Violation(
            "PD-P014",
            f"iterations of {scope.head} share {buffer.name}, {location.name} cannot be shared",
            scope.id,
            buffer.name,
            arrays=buffer.arrays,
            location=location.name,
            iterator=scope.id,
        )


def _is_constant(scope: Scope, dialect: Dialect) -> bool:
    suffix = dialect.suffixes.get(scope.suffix)
    return scope.size == 1 or (suffix is not None and suffix.known)


def _scope(program: Program, place: LocatedNode, dialect: Dialect) -> Iterator[Violation]:
    scope, above = place.node, place.above
    if not isinstance(scope, Scope) or not scope.suffix:
        return
    if dialect.is_lockstep(scope.suffix):
        yield from _lockstep(program, scope, len(above), dialect)
    if (
        dialect.is_parallel(scope.suffix)
        and not dialect.nested_parallel
        and any(dialect.is_parallel(s.suffix) for s in above)
    ):
        yield Violation("PD-P015", f"{scope.head} stands inside another parallel scope", scope.id)
    suffix = dialect.suffixes.get(scope.suffix)
    if suffix and suffix.unrolled:
        copies = scope.size
        for outer in above:
            around = dialect.suffixes.get(outer.suffix)
            copies *= outer.size if around and around.unrolled else 1
        if copies > dialect.max_unroll:
            yield Violation(
                "PD-P015",
                f"unrolling makes {copies} copies, the target allows {dialect.max_unroll}",
                scope.id,
            )


def _lockstep(program: Program, scope: Scope, level: int, dialect: Dialect) -> Iterator[Violation]:
    statement = scope.body[0]
    if len(scope.body) != 1 or not isinstance(statement, Statement):
        yield Violation("PD-P015", f"{scope.head} must hold exactly one statement", scope.id)
        return
    lanes = most_lanes(statement, dialect)
    if scope.size > max(lanes, dialect.suffixes[scope.suffix].most_products):
        what = f"{scope.head}: the target has {lanes} lanes of {' and '.join(sorted(statement.dtypes))}"
        yield Violation("PD-P015", what, scope.id)
    if any(level in q.levels for i in index_values(statement.value) for q, _ in i.index.quotients):
        what = f"lanes of {scope.head} cannot count by // or %"
        yield Violation("PD-P015", what, statement.id)
    suffix = dialect.suffixes[scope.suffix]
    reads = statement.reads if suffix.neighbours(writes=False) else ()
    for access in (*reads, statement.target) if suffix.neighbours(writes=True) else ():
        if lane_stride(program.buffer_of[access.array], access.subscripts, level) not in (0, 1):
            yield Violation(
                "PD-P015",
                f"{access.text}: neighbouring lanes {{{level}}} are not neighbours in memory",
                statement.id,
                access.array,
                arrays=(access.array,),
                access=access,
                iterator=scope.id,
            )


# -- values ----------------------------------------------------------------------------------------


def _statement(program: Program, place: LocatedNode) -> Iterator[Violation]:
    """Dtypes meet in casts only, and nothing negative is divided in a subscript."""
    statement, sizes = place.node, place.sizes
    if not isinstance(statement, Statement):
        return
    for bad in negative_dividends(statement, sizes):
        what = f"{bad.text} may be negative and is divided"
        yield Violation("PD-P016", what, statement.id, hint="add a multiple of the divisor")
    for form in beyond_reach(program, statement, sizes):
        what = f"{form.text} reaches {form.reach(sizes)} on the way to its value, {MAX_REACH} is the most"
        yield Violation("PD-P003", what, statement.id, hint="compute large numbers as values of i64")
    yield from _lookups(program, statement, sizes)
    dtype, accumulate, target = statement.dtype, statement.accumulate, statement.target.array
    if statement.value.dtype != dtype or program.buffer_of[target].dtype != dtype:
        what = f"{target} is {dtype}, the value is {statement.value.dtype}"
        yield Violation("PD-P010", what, statement.id, hint="write the conversion")
    if accumulate and dtype not in OPERATIONS[accumulate].dtypes:
        hint = (
            f"accumulate in a buffer of f32 or i32, and convert its sums to {dtype}"
            if dtype in UNCOMPUTED_DTYPES
            else ""
        )
        yield Violation("PD-P010", f"{dtype} does not accumulate by {accumulate}", statement.id, hint=hint)
    for what in _ill_typed(program, statement.value):
        yield Violation("PD-P010", what, statement.id, hint="write the conversion")


def beyond_storage(program: Program, dtype: str, full: str = "f32", interface: bool = False) -> Iterator[str]:
    """Uses of a dtype besides keeping ``full`` in temporaries of it, in words; with ``interface``, also in
    arrays of callers."""
    for array in (*program.inputs, *program.outputs) if not interface else ():
        if program.buffer_of[array].dtype == dtype:
            yield f"{array} is part of the kernel's interface"
    if not any(buffer.dtype == dtype for buffer in program.buffers) and not _mentions(program, dtype):
        return
    for place in program.places:
        if isinstance(place.node, Statement):
            if place.node.accumulate and place.node.dtype == dtype:
                yield f"{place.node.text} accumulates in it"
            yield from _computed_in(place.node.value, dtype, full)


def _mentions(program: Program, dtype: str) -> bool:
    """True if a value is converted to a dtype and back, with no buffer in between."""
    return f"{dtype}(" in program.text


def _computed_in(value: Expression, dtype: str, full: str) -> Iterator[str]:
    for node in walk(value):
        match node:
            case IndexValue():
                if node.dtype == dtype:
                    yield f"{node.text} is an iterator in it"
            case Cast():
                pair = {node.dtype, node.argument.dtype}
                if dtype in pair and not pair <= {dtype, full}:
                    yield f"{node.text} converts between it and {(pair - {dtype}).pop()}"
            case Operation():
                if dtype in (node.dtype, node.operand_dtype):
                    yield f"{node.text} is computed in it"
            case Literal() | Read():
                pass
            case _:
                assert_never(node)


def _ill_typed(program: Program, value: Expression) -> Iterator[str]:
    for node in walk(value):
        match node:
            case Read():
                found = program.buffer_of[node.access.array].dtype
                if found != node.dtype:
                    yield f"{node.text} is {found}, not {node.dtype}"
            case Literal():
                if node.dtype in CODED_DTYPES or (node.dtype in INTEGER_RANGES and not _in_range(node)):
                    yield f"{node.text} is no value of {node.dtype}"
            case Cast():
                if not converts(node.argument.dtype, node.dtype):
                    yield f"{node.text}: {node.argument.dtype} and {node.dtype} meet in a float only"
                if takes_no_dtype(node):
                    yield f"{node.text} converts numbers that take no dtype from an array or a conversion"
            case Operation():
                yield from _ill_typed_operation(node)
            case IndexValue():
                if node.dtype in UNCOMPUTED_DTYPES:
                    yield f"{node.text} has no dtype {node.dtype}"
            case _:
                assert_never(node)


def _ill_typed_operation(value: Operation) -> Iterator[str]:
    meaning = OPERATIONS[value.name]
    operands = meaning.operands(value.arguments)
    kinds = {a.dtype for a in operands}
    if meaning.chooses and value.arguments[0].dtype != "bool":
        yield f"{value.text}: the condition is {value.arguments[0].dtype}, not bool"
    if len(kinds) > 1 or not kinds.issubset(meaning.dtypes):
        yield f"{value.text}: {value.name} does not take {' and '.join(sorted(kinds))}"
    if takes_no_dtype(value):
        yield f"{value.text} compares numbers that take no dtype from an array or a conversion"
    result = "bool" if meaning.compares else operands[0].dtype
    if result != value.dtype:
        yield f"{value.text} is {result}, not {value.dtype}"


def takes_no_dtype(value: Expression) -> bool:
    """True if a comparison's or conversion's text leaves the dtype of its operands open.

    Literals and iterators among themselves are read as ``i64``, in a conversion to a coded dtype as ``f32``,
    so of that dtype they may be.
    """
    default = CODE_SOURCE if value.dtype in CODED_DTYPES else INDEX_DTYPE
    if isinstance(value, Cast):
        operands: tuple[Expression, ...] = (value.argument,)
    elif isinstance(value, Operation) and OPERATIONS[value.name].compares:
        operands = value.arguments
    else:
        return False
    return operands[0].dtype != default and not any(map(has_dtype, operands))


def has_dtype(value: Expression) -> bool:
    """True if the text of a value alone says its dtype; a literal or iterator takes its neighbour's."""
    match value:
        case Operation():
            meaning = OPERATIONS[value.name]
            return meaning.compares or any(map(has_dtype, meaning.operands(value.arguments)))
        case Read() | Cast():
            return True
        case Literal() | IndexValue():
            return False
        case _:
            assert_never(value)


def _in_range(value: Literal) -> bool:
    low, high = INTEGER_RANGES[value.dtype]
    return isinstance(value.value, int) and low <= value.value <= high


INTEGER_RANGES = {dtype: integer_bounds(dtype) for dtype in (*INTEGER_DTYPES, *NARROW_DTYPES, "bool")}
