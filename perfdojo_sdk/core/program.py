"""The program: an ordered tree of scopes over scalar statements, as frozen data.

Nothing in this module is ever changed in place. An edit rebuilds the nodes from the edited one
up to the root and shares the rest, so hundreds of candidate programs cost little more than one.

Iterators are named by *level*: ``{0}`` is the outermost scope around a statement, ``{1}`` the
next. A node therefore reads the same wherever it is printed, and caches its lines.

Ids (``s3``, ``c1``) name places for moves. They take no part in equality or in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, NamedTuple, TypeAlias

from perfdojo_sdk.core.frozen import frozen, lazy

FLOAT_DTYPES = ("f64", "f32", "f16", "bf16")
INTEGER_DTYPES = ("i64", "i32", "i16", "i8", "u32", "u16", "u8")
DTYPES = (*FLOAT_DTYPES, *INTEGER_DTYPES, "bool")

#: Most scopes around a statement.
MAX_DEPTH = 64

#: Operations of expressions: name -> number of arguments.
OPERATIONS: Mapping[str, int] = {
    "add": 2,
    "sub": 2,
    "mul": 2,
    "div": 2,
    "max": 2,
    "min": 2,
    "neg": 1,
    "abs": 1,
    "sqrt": 1,
    "exp": 1,
}

#: Binary operations written between their arguments: name -> (sign, precedence).
INFIX: Mapping[str, tuple[str, int]] = {
    "add": ("+", 0),
    "sub": ("-", 0),
    "mul": ("*", 1),
    "div": ("/", 1),
}
_UNARY, _ATOM = 2, 3

#: How a statement may combine its value with the cell it writes: operation -> the sign in text.
ACCUMULATIONS: Mapping[str, str] = {"add": "+=", "mul": "*=", "max": "max=", "min": "min="}

#: The value that leaves the other operand of an accumulation as it is.
IDENTITY: Mapping[str, float] = {
    "add": 0.0,
    "mul": 1.0,
    "max": float("-inf"),
    "min": float("inf"),
}


@frozen
class Index:
    """An affine form ``constant + sum(coefficient * {level})``; terms ascend by level, none is 0."""

    constant: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(coefficients: Mapping[int, int], constant: int = 0) -> Index:
        """The form with these coefficients; equal forms are one object as a rule.

        Moves make the same few forms again and again; what a form has worked out (its text, its
        coefficients) is then there already.
        """
        terms = tuple(sorted([item for item in coefficients.items() if item[1]]))
        known = _FORMS.get((constant, terms))
        if known is None:
            if len(_FORMS) >= _MOST_FORMS:
                _FORMS.clear()
            known = _FORMS[constant, terms] = Index(constant, terms)
        return known

    @staticmethod
    def level(level: int) -> Index:
        return LEVELS[level]

    @lazy
    def coefficients(self) -> Mapping[int, int]:
        return dict(self.terms)

    @lazy
    def text(self) -> str:
        parts = []
        for level, coefficient in self.terms:
            sign = "-" if coefficient < 0 else "+"
            factor = "" if abs(coefficient) == 1 else f"*{abs(coefficient)}"
            parts.append(f"{sign}{{{level}}}{factor}")
        if self.constant or not parts:
            parts.append(f"{self.constant:+d}")
        return "".join(parts).removeprefix("+")

    def substitute(self, levels: Callable[[int], Index]) -> Index:
        """Replace every iterator ``{l}`` by the form ``levels(l)``."""
        if len(self.terms) == 1:
            level, coefficient = self.terms[0]
            if coefficient == 1 and not self.constant:
                return levels(level)
        constant, total = self.constant, dict[int, int]()
        for level, coefficient in self.terms:
            form = levels(level)
            constant += coefficient * form.constant
            for inner, inner_coefficient in form.terms:
                total[inner] = total.get(inner, 0) + coefficient * inner_coefficient
        return Index.of(total, constant)

    def evaluate(self, iterators: list[int] | tuple[int, ...]) -> int:
        return self.constant + sum(c * iterators[l] for l, c in self.terms)

    def bounds(self, sizes: tuple[int, ...]) -> tuple[int, int]:
        """Smallest and largest value when ``{l}`` runs over ``0 .. sizes[l] - 1`` (both are met)."""
        low = high = self.constant
        for level, coefficient in self.terms:
            reach = coefficient * (sizes[level] - 1)
            if reach < 0:
                low += reach
            else:
                high += reach
        return low, high


_FORMS: dict[tuple[int, tuple[tuple[int, int], ...]], Index] = {}
_MOST_FORMS = 100_000

#: ``{0}``, ``{1}`` ...: made once, since every move asks for them.
LEVELS = tuple(Index(0, ((level, 1),)) for level in range(4 * MAX_DEPTH))


@frozen
class Access:
    """One element of an array: ``x[{0},{1}*16+{2}]``."""

    array: str
    subscripts: tuple[Index, ...]

    @lazy
    def text(self) -> str:
        return f"{self.array}[{','.join([s.text for s in self.subscripts])}]"

    def substitute(self, levels: Callable[[int], Index]) -> Access:
        return Access(self.array, tuple([s.substitute(levels) for s in self.subscripts]))

    def renumbered(self, by: Renumbering) -> Access:
        return Access(self.array, tuple([by(s) for s in self.subscripts]))

    @lazy
    def levels(self) -> tuple[int, ...]:
        """The levels whose iterators appear, ascending."""
        return tuple(sorted({level for s in self.subscripts for level, _ in s.terms}))


@frozen
class Literal:
    """A constant. ``value`` is a float for float dtypes, an int for integer ones; never NaN."""

    value: float | int
    dtype: str

    @lazy
    def text(self) -> str:
        if isinstance(self.value, int):
            return str(self.value)
        if self.value.is_integer() and abs(self.value) < 1e15:
            return "-0" if str(self.value) == "-0.0" else str(int(self.value))
        return repr(self.value)

    @property
    def precedence(self) -> int:
        return _UNARY if self.text.startswith("-") else _ATOM

    def renumbered(self, by: Renumbering) -> Literal:
        return self

    reads: ClassVar[tuple[Access, ...]] = ()


@frozen
class IndexValue:
    """An affine form of the iterators used as a value ("index as value" of the paper's Table 2)."""

    index: Index
    dtype: str

    precedence: ClassVar[int] = 3

    @lazy
    def text(self) -> str:
        plain = self.index.constant == 0 and [c for _, c in self.index.terms] == [1]
        return self.index.text if plain else f"index({self.index.text})"

    def renumbered(self, by: Renumbering) -> IndexValue:
        return IndexValue(by(self.index), self.dtype)

    reads: ClassVar[tuple[Access, ...]] = ()


@frozen
class Read:
    """The value of one array element."""

    access: Access
    dtype: str

    precedence: ClassVar[int] = 3

    @property
    def text(self) -> str:
        return self.access.text

    def renumbered(self, by: Renumbering) -> Read:
        return Read(self.access.renumbered(by), self.dtype)

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return (self.access,)


@frozen
class Operation:
    """An operation of :data:`OPERATIONS` on arguments of its own dtype."""

    name: str
    arguments: tuple[Expression, ...]
    dtype: str

    @property
    def precedence(self) -> int:
        return INFIX[self.name][1] if self.name in INFIX else _UNARY if self.name == "neg" else _ATOM

    @lazy
    def text(self) -> str:
        if self.name in INFIX:
            sign, level = INFIX[self.name]
            left, right = self.arguments
            before = left.text if left.precedence >= level else f"({left.text})"
            after = right.text if right.precedence > level else f"({right.text})"
            return f"{before} {sign} {after}"
        if self.name == "neg":
            argument = self.arguments[0]
            # -(2) negates a literal, -2 is one.
            atom = argument.precedence >= _ATOM and not isinstance(argument, Literal)
            return f"-{argument.text}" if atom else f"-({argument.text})"
        return f"{self.name}({', '.join([a.text for a in self.arguments])})"

    def renumbered(self, by: Renumbering) -> Operation:
        return Operation(self.name, tuple([a.renumbered(by) for a in self.arguments]), self.dtype)

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return tuple([r for a in self.arguments for r in a.reads])


@frozen
class Cast:
    """An explicit conversion; the only place where dtypes meet."""

    argument: Expression
    dtype: str

    precedence: ClassVar[int] = 3

    @lazy
    def text(self) -> str:
        return f"{self.dtype}({self.argument.text})"

    def renumbered(self, by: Renumbering) -> Cast:
        return Cast(self.argument.renumbered(by), self.dtype)

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return self.argument.reads


Expression: TypeAlias = Literal | IndexValue | Read | Operation | Cast


def map_expression(value: Expression, leaf: Callable[[Expression], Expression]) -> Expression:
    """Rebuild an expression with every literal, index value and read replaced by ``leaf`` of it."""
    if isinstance(value, Operation):
        return Operation(value.name, tuple([map_expression(a, leaf) for a in value.arguments]), value.dtype)
    if isinstance(value, Cast):
        return Cast(map_expression(value.argument, leaf), value.dtype)
    return leaf(value)


class Renumbering:
    """Levels replaced by forms, for one subtree, which must live as long: each form in it is worked
    out once, and known by its identity."""

    def __init__(self, forms: Sequence[Index], start: int = 0) -> None:
        """``forms[l]`` replaces ``{l}``; below ``start`` every level stays what it is."""
        self.forms, self.start = forms, start
        self.known: dict[int, Index] = {}

    def __call__(self, index: Index) -> Index:
        if not index.terms or index.terms[-1][0] < self.start:
            return index
        found = self.known.get(id(index))
        if found is None:
            found = self.known[id(index)] = index.substitute(self.forms.__getitem__)
        return found


class Leaf(NamedTuple):
    """A statement, as seen from a node above it."""

    statement: Statement
    sizes: tuple[int, ...]
    """Sizes of the scopes from that node (included) down to the statement, outermost first."""


class Touch(NamedTuple):
    """One access of a statement, as seen from a node above it."""

    access: Access
    statement: Statement
    writes: bool
    """True for the target; an accumulation's target counts as a write, which also reads."""
    sizes: tuple[int, ...]
    """Sizes of the scopes from that node (included) down to the statement, outermost first."""


Touches: TypeAlias = Mapping[str, tuple[Touch, ...]]
"""Array -> its touches, in program order (the reads of a statement before its write)."""


@frozen
class Statement:
    """``target = value``, or ``target accumulate= value``. The dtype is the target's."""

    target: Access
    value: Expression
    accumulate: str | None = None
    dtype: str = "f32"
    id: str = field(default="", compare=False)

    @lazy
    def reads(self) -> tuple[Access, ...]:
        """Elements that the value reads; an accumulation's own target is not among them."""
        return self.value.reads

    @lazy
    def text(self) -> str:
        sign = ACCUMULATIONS[self.accumulate] if self.accumulate else "="
        return f"{self.target.text} {sign} {self.value.text}"

    @lazy
    def lines(self) -> tuple[str, ...]:
        return (self.text,)

    @lazy
    def leaves(self) -> tuple[Leaf, ...]:
        return (Leaf(self, ()),)

    @lazy
    def touches(self) -> Touches:
        found: dict[str, tuple[Touch, ...]] = {}
        for read in self.reads:
            found[read.array] = (*found.get(read.array, ()), Touch(read, self, False, ()))
        array = self.target.array
        found[array] = (*found.get(array, ()), Touch(self.target, self, True, ()))
        return found

    def named(self, identifier: str) -> Statement:
        return Statement(self.target, self.value, self.accumulate, self.dtype, identifier)

    def renumbered(self, by: Renumbering) -> Statement:
        return Statement(
            self.target.renumbered(by),
            self.value.renumbered(by),
            self.accumulate,
            self.dtype,
            self.id,
        )


@frozen
class Scope:
    """``size`` iterations over ``body``; ``suffix`` says how they are instantiated."""

    size: int
    body: tuple[Node, ...]
    suffix: str = ""
    id: str = field(default="", compare=False)

    @lazy
    def head(self) -> str:
        return f"{self.size}:{self.suffix}" if self.suffix else str(self.size)

    @lazy
    def lines(self) -> tuple[str, ...]:
        """Printed lines; a chain of single children shares its first line."""
        if len(self.body) == 1:
            inner = self.body[0].lines
            return (f"{self.head} {inner[0]}", *inner[1:])
        return (self.head, *["| " + line for child in self.body for line in child.lines])

    @lazy
    def touches(self) -> Touches:
        found: dict[str, list[Touch]] = {}
        for child in self.body:
            for array, touches in child.touches.items():
                found.setdefault(array, []).extend(
                    Touch(t.access, t.statement, t.writes, (self.size, *t.sizes)) for t in touches
                )
        return {array: tuple(touches) for array, touches in found.items()}

    @lazy
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(
            [Leaf(leaf.statement, (self.size, *leaf.sizes)) for child in self.body for leaf in child.leaves]
        )

    def renumbered(self, by: Renumbering) -> Scope:
        return self.with_body(tuple([child.renumbered(by) for child in self.body]))

    def with_body(self, body: tuple[Node, ...]) -> Scope:
        return Scope(self.size, body, self.suffix, self.id)


Node: TypeAlias = Scope | Statement


@frozen
class Dimension:
    """One dimension of a buffer. The suffix ``N`` means: not materialised."""

    size: int
    suffix: str = ""

    @property
    def materialised(self) -> bool:
        return self.suffix != "N"

    @property
    def text(self) -> str:
        return f"{self.size}:{self.suffix}" if self.suffix else str(self.size)


@frozen
class Buffer:
    """Storage. All ``arrays`` of a buffer have its shape and dtype and alias each other."""

    name: str
    dtype: str
    dimensions: tuple[Dimension, ...]
    location: str
    arrays: tuple[str, ...]

    @lazy
    def text(self) -> str:
        shape = ",".join(d.text for d in self.dimensions)
        names = "" if self.arrays == (self.name,) else f" -> {', '.join(self.arrays)}"
        return f"{self.name} {self.dtype} [{shape}] {self.location}{names}"

    def with_dimensions(self, dimensions: tuple[Dimension, ...]) -> Buffer:
        return Buffer(self.name, self.dtype, dimensions, self.location, self.arrays)

    @lazy
    def shape(self) -> tuple[int, ...]:
        return tuple(d.size for d in self.dimensions)

    @lazy
    def materialised(self) -> tuple[int, ...]:
        """Positions of the dimensions that exist in memory."""
        return tuple(k for k, d in enumerate(self.dimensions) if d.materialised)

    @lazy
    def cells(self) -> int:
        """Number of elements in memory."""
        count = 1
        for k in self.materialised:
            count *= self.dimensions[k].size
        return count


Path: TypeAlias = tuple[int, ...]


class Occurrence(NamedTuple):
    """One access of a statement, with everything that a check asks about it."""

    access: Access
    statement: Statement
    writes: bool
    path: Path
    """Path of the statement."""
    sizes: tuple[int, ...]
    """Sizes of all scopes around the statement, outermost first."""


@frozen
class Program:
    """A kernel: its interface, its storage and its tree."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Node, ...]

    # -- text ------------------------------------------------------------------------------

    @lazy
    def header(self) -> str:
        return f"kernel {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"

    @lazy
    def text(self) -> str:
        """The canonical text: the only serialisation of a program."""
        return f"{self.header}\n{self.storage_lines}\n{self.tree_lines}"

    @lazy
    def storage_lines(self) -> str:
        return "\n".join([b.text for b in self.buffers]) + "\n" if self.buffers else ""

    @lazy
    def tree_lines(self) -> str:
        return "\n".join([line for node in self.body for line in node.lines]) + "\n"

    def __str__(self) -> str:
        return self.text

    # -- storage ---------------------------------------------------------------------------

    @lazy
    def buffer_of(self) -> Mapping[str, Buffer]:
        """Array name -> its buffer."""
        return {array: buffer for buffer in self.buffers for array in buffer.arrays}

    @lazy
    def interface(self) -> frozenset[str]:
        """Arrays that the caller owns."""
        return frozenset(self.inputs) | frozenset(self.outputs)

    def buffer(self, name: str) -> Buffer | None:
        return next((b for b in self.buffers if b.name == name), None)

    @lazy
    def names(self) -> frozenset[str]:
        """Every buffer and array name in use."""
        return frozenset(self.buffer_of) | {b.name for b in self.buffers}

    @lazy
    def occurrences(self) -> Mapping[str, tuple[Occurrence, ...]]:
        """Buffer name -> all its accesses, in program order (reads of a statement first)."""
        found: dict[str, list[Occurrence]] = {b.name: [] for b in self.buffers}
        buffer_of = self.buffer_of

        def visit(nodes: tuple[Node, ...], path: Path, sizes: tuple[int, ...]) -> None:
            for k, node in enumerate(nodes):
                here = (*path, k)
                if isinstance(node, Scope):
                    visit(node.body, here, (*sizes, node.size))
                    continue
                for read in node.reads:
                    found[buffer_of[read.array].name].append(
                        Occurrence(read, node, False, here, sizes)
                    )
                found[buffer_of[node.target.array].name].append(
                    Occurrence(node.target, node, True, here, sizes)
                )

        visit(self.body, (), ())
        return {name: tuple(occurrences) for name, occurrences in found.items()}

    # -- places ----------------------------------------------------------------------------

    @lazy
    def paths(self) -> Mapping[str, Path]:
        """Id -> path (child numbers from the root)."""
        return {node.id: path for path, node in self.walk()}

    def walk(self) -> Iterator[tuple[Path, Node]]:
        """Every node with its path, parents before children, in program order."""
        stack: list[tuple[Path, Node]] = []
        stack += [((k,), node) for k, node in enumerate(self.body)][::-1]
        while stack:
            path, node = stack.pop()
            yield path, node
            if isinstance(node, Scope):
                stack += [((*path, k), child) for k, child in enumerate(node.body)][::-1]

    def node(self, path: Path) -> Node:
        nodes, node = self.body, None
        for k in path:
            node = nodes[k]
            nodes = node.body if isinstance(node, Scope) else ()
        if node is None:
            raise KeyError("the root is not a node")
        return node

    def ancestors(self, path: Path) -> tuple[Scope, ...]:
        """The scopes strictly above ``path``, outermost first."""
        nodes, found = self.body, []
        for k in path[:-1]:
            scope = nodes[k]
            assert isinstance(scope, Scope)
            found.append(scope)
            nodes = scope.body
        return tuple(found)

    def siblings(self, path: Path) -> tuple[Node, ...]:
        """The children of ``path``'s parent, itself included."""
        return self.children(path[:-1])

    def children(self, path: Path) -> tuple[Node, ...]:
        """The children of the scope at ``path``; of the root for the empty path."""
        if not path:
            return self.body
        scope = self.node(path)
        return scope.body if isinstance(scope, Scope) else ()

    def replaced(self, path: Path, nodes: tuple[Node, ...], consumed: int = 1) -> Program:
        """Put ``nodes`` where ``consumed`` siblings, from ``path`` on, stand now."""

        def rebuild(children: tuple[Node, ...], depth: int) -> tuple[Node, ...]:
            k = path[depth]
            if depth == len(path) - 1:
                return children[:k] + nodes + children[k + consumed :]
            scope = children[k]
            assert isinstance(scope, Scope)
            new = scope.with_body(rebuild(scope.body, depth + 1))
            return (*children[:k], new, *children[k + 1 :])

        return self.with_body(rebuild(self.body, 0))

    def with_body(self, body: tuple[Node, ...]) -> Program:
        new = Program(self.name, self.inputs, self.outputs, self.buffers, body)
        # The tree does not change the storage: hand over what is already known about it.
        known = new.__dict__
        known["header"], known["storage_lines"] = self.header, self.storage_lines
        known["buffer_of"] = self.buffer_of
        return new

    def with_buffer(self, old: str, new: Buffer) -> Program:
        """The same tree with buffer ``old`` declared anew (same arrays)."""
        buffers = tuple([new if b.name == old else b for b in self.buffers])
        program = Program(self.name, self.inputs, self.outputs, buffers, self.body)
        program.__dict__["header"], program.__dict__["tree_lines"] = self.header, self.tree_lines
        program.__dict__["occurrences"] = self.occurrences
        return program

    def with_new_buffer(self, buffer: Buffer) -> Program:
        buffers = (*self.buffers, buffer)
        program = Program(self.name, self.inputs, self.outputs, buffers, self.body)
        program.__dict__["header"] = self.header
        program.__dict__["storage_lines"] = f"{self.storage_lines}{buffer.text}\n"
        program.__dict__["buffer_of"] = {**self.buffer_of, **dict.fromkeys(buffer.arrays, buffer)}
        return program


def fresh(base: str, taken: frozenset[str] | Mapping[str, object]) -> str:
    """``base``, or the first of ``base_2``, ``base_3`` ... that nobody uses."""
    if base not in taken:
        return base
    count = 2
    while f"{base}_{count}" in taken:
        count += 1
    return f"{base}_{count}"
