"""Graphs of ATen operators as graphs of kernels, and the parts that stay with PyTorch.

A row turns a call into rules. What has no row, or a row that refuses, is taken apart by PyTorch's own
decompositions into core ATen; if rows take all of that, the call is ours. All other calls are *elsewhere*,
each with its reason. Calls of one kind that do not wait for one of the other kind form one group.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.torch import encoder
from perfdojo_sdk.frontends.torch.call import Call, Result
from perfdojo_sdk.frontends.torch.capture import captured, share_memory, without_changes
from perfdojo_sdk.frontends.torch.rows import row_of
from perfdojo_sdk.frontends.torch.tensors import array_of
from perfdojo_sdk.frontends.torch.writing import is_write, write_last, written_at_last
from perfdojo_sdk.graph.arrays import dtype_of
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Graph, Value
from perfdojo_sdk.graph.refusals import Reason, Refused

#: PyTorch's dtypes that the language has.
DTYPES: Mapping[Any, str] = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
    torch.bool: "bool",
}  # fmt: skip
TORCH_DTYPES = {ours: theirs for theirs, ours in DTYPES.items()}


@dataclass(frozen=True)
class Elsewhere:
    """A call that PyTorch runs, and why."""

    node: str
    operator: str
    reason: str

    @property
    def text(self) -> str:
        return (
            f"{self.node} ({self.operator}): {self.reason}"
            if self.operator
            else f"{self.node}: {self.reason}"
        )


@dataclass(frozen=True)
class Group:
    """Calls that run together: kernels of ours, or PyTorch's."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    """Nodes whose values others need."""
    graph: Graph | None
    """None: PyTorch runs it."""


@dataclass(frozen=True)
class Lowered:
    """A graph in groups, in an order in which they can run."""

    module: GraphModule
    groups: tuple[Group, ...]
    elsewhere: tuple[Elsewhere, ...]
    operators: Mapping[str, int] = field(default_factory=dict)


def lower(module: GraphModule, refused: Mapping[str, str] | None = None) -> Lowered:
    """Lower a graph of ATen. ``refused``: nodes that stay with PyTorch whatever rows say, with reasons."""
    nodes = [n for n in module.graph.nodes if n.op == "call_function"]
    reasons = dict(refused or {})
    trial = _Trial(module, reasons)
    for node in nodes:
        if is_write(node):
            trial.given(node)
        else:
            trial.add(node)
    ours = {n for n in nodes if n.name not in trial.reasons and not is_write(n)}
    views = _returned_views(module, nodes)
    groups = _grouped(module, nodes, ours - views, trial)
    counts: dict[str, int] = {}
    for node in nodes:
        counts[operator_of(node)] = counts.get(operator_of(node), 0) + 1
    elsewhere = tuple(
        Elsewhere(n.name, operator_of(n), trial.reasons[n.name]) for n in nodes if n.name in trial.reasons
    )
    return Lowered(module, tuple(groups), elsewhere, counts)


def operator_of(node: Node) -> str:
    """The name of a call's operator, such as ``max.dim``."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.partition("::")[2] if target.namespace == "aten" else target._schema.name
        return f"{name}.{target._overloadname}" if target._overloadname != "default" else name
    return getattr(target, "__name__", str(target))


def whole_graph(module: GraphModule, weights: Mapping[str, Tensor], names: Sequence[str], name: str) -> Graph:
    """A graph of ATen, all of which has kernels, as one graph of kernels. ``weights``: the data of its first
    inputs, which become constants of these names; ``names``: those of its other inputs."""
    walk = _Walk(module, name)
    places = [n for n in module.graph.nodes if n.op == "placeholder"]
    for place, title in zip(places[len(weights) :], names, strict=True):
        walk.values[place] = _inputs_like(walk.builder, title, place.meta.get("val"))
    for place, (title, weight) in zip(places, weights.items(), strict=False):
        if place.users:
            walk.values[place] = packaged_weight(walk.builder, weight, title)
    for node in module.graph.nodes:
        if node.op == "call_function":
            walk.call(node)
    [output] = [n for n in module.graph.nodes if n.op == "output"]
    found: list[Node] = []
    torch.fx.map_arg(output.args, found.append)
    titles = [f"y{k}" for k in range(len(found))] if len(found) > 1 else ["y"]
    return walk.builder.graph({t: walk.argument(n) for t, n in zip(titles, found, strict=True)})


# -- trying rows -------------------------------------------------------------------------------------


class _Walk:
    """The values of nodes in one graph that is being made."""

    def __init__(self, module: GraphModule, name: str = "torch") -> None:
        self.module, self.builder = module, Builder(name)
        self.values: dict[Node, Any] = {}

    def given(self, node: Node) -> None:
        """Make a node's value an input."""
        self.values[node] = _inputs_like(self.builder, node.name, node.meta.get("val"))

    def call(self, node: Node) -> None:
        """Add the kernels of a call."""
        self.builder.origin = node.name
        self.values[node] = _made(self.builder, node, self.argument, self.module)

    def argument(self, node: Node) -> Any:
        if node not in self.values:
            if node.op == "get_attr":
                self.values[node] = _attribute(self.builder, self.module, node)
            else:
                self.given(node)
        return self.values[node]


class _Trial(_Walk):
    """A walk that collects what is refused, and goes on behind it."""

    def __init__(self, module: GraphModule, reasons: dict[str, str]) -> None:
        super().__init__(module)
        self.reasons = reasons

    def add(self, node: Node) -> None:
        if node.name not in self.reasons:
            try:
                self.call(node)
                return
            except DojoError as error:
                why = f" ({error.why})" if error.why else ""
                self.reasons[node.name] = f"{error.what}{why}"
        try:
            self.given(node)
        except DojoError:
            self.values[node] = _Unusable()


class _Unusable:
    """The value of a node whose dtype the language lacks."""


def _made(
    builder: Builder, node: Node, argument: Callable[[Node], Any], module: GraphModule, inside: bool = False
) -> Any:
    """The values of a call: one, or a list of them."""
    if node.target is operator.getitem:
        found, place = argument(node.args[0]), node.args[1]  # type: ignore[arg-type]
        if isinstance(found, list | tuple) and isinstance(place, int) and found[place] is not None:
            return found[place]
        raise Refused(Reason.CHOICE, "an element of a result that is not computed")
    value = node.meta.get("val")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    op, results = operator_of(node), _results(value)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise Refused(Reason.OPERATOR, f"{op} is no operator of ATen")
    arguments = _arguments(node, argument)
    row = row_of(op) if target.namespace == "aten" else None
    try:
        if row is None:
            raise Refused(Reason.OPERATOR, f"there is no rule for {op}")
        made = row(Call(builder, op, arguments, results, _used(node, len(results))))
    except DojoError as refused:
        if inside:
            raise
        made = _decomposed(builder, node, argument, refused)
    found = [made] if isinstance(made, Value) else list(made)
    _check(op, found, results)
    return found if isinstance(value, list | tuple) else found[0]


def _results(value: Any) -> list[Result]:
    values = value if isinstance(value, list | tuple) else [value]
    found = []
    for each in values:
        if not isinstance(each, Tensor):
            raise Refused(Reason.TYPE, "a result that is no tensor")
        if each.device.type != "cpu":
            raise Refused(Reason.TARGET, f"a tensor on {each.device.type}")
        found.append(Result(tuple(int(s) for s in each.shape), dtype_name(each.dtype)))
    return found


def dtype_name(dtype: Any) -> str:
    """The language's name of a dtype of PyTorch."""
    if dtype not in DTYPES:
        raise Refused(Reason.DTYPE, f"tensors of {str(dtype).removeprefix('torch.')}")
    return DTYPES[dtype]


def _used(node: Node, count: int) -> list[bool]:
    places = {n.args[1] for n in node.users if n.target is operator.getitem}
    other = any(n.target is not operator.getitem for n in node.users)
    # An unpacked result that nobody reads is kept as a node, without users.
    read = {n.args[1] for n in node.users if n.target is operator.getitem and n.users}
    return [count == 1 or other or k in read & places for k in range(count)]


def _check(op: str, found: Sequence[Value | None], results: Sequence[Result]) -> None:
    """Refuse a call whose rule does not give what PyTorch's fake kernel says."""
    if len(found) != len(results):
        raise Refused(Reason.CHOICE, f"{op} gives {len(results)} results, its rule {len(found)}")
    for value, result in zip(found, results, strict=True):
        if value is not None and (value.shape, value.dtype) != (result.shape, result.dtype):
            expected = f"{result.dtype}{list(result.shape)}"
            raise Refused(Reason.CHOICE, f"{op} gives {expected}, its rule {value.text}")


def _arguments(node: Node, argument: Callable[[Node], Any]) -> dict[str, Any]:
    """All arguments by the schema's names, defaults included."""
    schema = node.target._schema  # type: ignore[union-attr]
    found: dict[str, Any] = {}
    for k, declared in enumerate(schema.arguments):
        if declared.name in node.kwargs:
            value = node.kwargs[declared.name]
        elif k < len(node.args) and not declared.kwarg_only:
            value = node.args[k]
        else:
            value = declared.default_value
        found[declared.name] = _plain(value, argument)
    return found


def _plain(value: Any, argument: Callable[[Node], Any]) -> Any:
    if isinstance(value, Node):
        found = argument(value)
        if isinstance(found, _Unusable):
            raise Refused(Reason.DTYPE, f"an operand {value.name} that the language has no dtype for")
        return found
    if isinstance(value, list | tuple):
        return [_plain(each, argument) for each in value]
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, torch.SymInt):
        return int(value)
    return value


def _inputs_like(builder: Builder, name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_inputs_like(builder, f"{name}.{k}", each) for k, each in enumerate(value)]
    if isinstance(value, Tensor):
        [result] = _results(value)
        return builder.input(name, result.shape, result.dtype)
    return value


def _attribute(builder: Builder, module: GraphModule, node: Node) -> Any:
    """The data of a constant that the graph holds."""
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    if not isinstance(value, Tensor):
        raise Refused(Reason.TYPE, f"a constant {node.name} that is no tensor")
    return constant(builder, value)


def constant(builder: Builder, tensor: Tensor, name: str = "") -> Value:
    """A tensor's data as a constant of the graph."""
    _results(tensor)
    data = tensor.detach().contiguous()
    if data.dtype == torch.bfloat16:
        raise Refused(Reason.DTYPE, "a constant of bfloat16")
    array = data.numpy().copy()
    assert dtype_of(array) is not None, "the dtype was checked above"
    return builder.constant(array, name)


def packaged_weight(builder: Builder, tensor: Tensor, name: str) -> Value:
    """A weight as a constant of a package, in its own dtype: the bits of bf16 are read as they are."""
    if tensor.dtype != torch.bfloat16:
        return constant(builder, tensor, name)
    try:
        return builder.constant(array_of(tensor).copy(), name)
    except ImportError:
        raise Refused(Reason.DTYPE, "weights of bfloat16", "pip install ml_dtypes") from None


# -- the second try: PyTorch's decompositions ---------------------------------------------------------


#: Operators whose decomposition in PyTorch gives other numbers than the operator itself: it counts the places
#: behind the last target as targets.
MISTAKEN = (torch.ops.aten.multilabel_margin_loss_forward.default,)


@lru_cache(maxsize=1)
def _decompositions() -> Any:
    """PyTorch's table into core ATen, and ours, without what rows take whole."""
    from torch._decomp import core_aten_decompositions

    table: Any = {**core_aten_decompositions(), **encoder.PARTS}
    return {op: rule for op, rule in table.items() if not _has_row(op) and op not in MISTAKEN}


def _has_row(op: Any) -> bool:
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return False
    name = op._schema.name.partition("::")[2]
    return row_of(f"{name}.{op._overloadname}" if op._overloadname != "default" else name) is not None


#: Most operators that one call is taken apart into.
MOST_PARTS = 256


def _decomposed(
    builder: Builder, node: Node, argument: Callable[[Node], Any], refused: DojoError
) -> list[Value | None]:
    """The results of a call taken apart, or the reason why the call itself is refused."""
    tensors: list[Node] = list(node.all_input_nodes)
    target: Any = node.target
    given = [n.meta.get("val") for n in tensors]
    if not all(isinstance(v, Tensor) for v in given):
        raise refused

    def function(*values: Any) -> Any:
        named = dict(zip(tensors, values, strict=True))
        args: Any = torch.fx.map_arg(node.args, named.__getitem__)
        kwargs: Any = torch.fx.map_arg(node.kwargs, named.__getitem__)
        return target(*args, **kwargs)

    table = dict(_decompositions())
    if _has_row(target):  # its row refused
        from torch._decomp import core_aten_decompositions

        whole: Any = core_aten_decompositions()
        own = whole.get(target)
        if own is not None:
            table[target] = own
    try:
        module = without_changes(captured(function, given, table))
    except Exception:  # PyTorch's own code, on fake tensors
        raise refused from None
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    same = len(calls) == 1 and calls[0].target is target
    if same or len(calls) > MOST_PARTS or any(getattr(n.target, "_schema", None) is not None
                                              and n.target._schema.is_mutable for n in calls):  # fmt: skip
        raise refused
    values: dict[Node, Any] = {}
    places = [n for n in module.graph.nodes if n.op == "placeholder"]
    for place, tensor in zip(places, tensors, strict=True):
        values[place] = argument(tensor)

    def inner(n: Node) -> Any:
        if n not in values:
            values[n] = _attribute(builder, module, n)
        return values[n]

    for call in calls:
        try:
            values[call] = _made(builder, call, inner, module, inside=True)
        except DojoError as error:
            raise Refused(Reason.OPERATOR, f"{refused.what}; of its parts, {error.what}") from None
    [output] = [n for n in module.graph.nodes if n.op == "output"]
    found = output.args[0]
    parts = found if isinstance(found, list | tuple) else [found]
    return [values.get(n) if isinstance(n, Node) else None for n in parts]


# -- groups ------------------------------------------------------------------------------------------


def with_views_apart(module: GraphModule) -> GraphModule:
    """The graph with a copy of each view that it returns, so that nothing else reads the one returned:
    kernels compute what others read of it, and PyTorch makes the view of the tensor that is returned. If that
    is an input which is written at last, the input itself is returned."""
    [output] = [n for n in module.graph.nodes if n.op == "output"]
    copies: dict[Node, Node] = {}
    written = written_at_last(module)

    def copied(node: Node) -> Node:
        source = _source(node)
        if source is None:
            return written.get(node, node)
        if node not in copies:
            base = copied(source)
            with module.graph.inserting_before(output):
                if node.target is operator.getitem:
                    split: Any = node.args[0]
                    if split not in copies:
                        copies[split] = module.graph.node_copy(split, lambda n: base if n is source else n)
                    copies[node] = module.graph.node_copy(node, lambda n: copies[n])
                else:
                    copies[node] = module.graph.node_copy(node, lambda n: base if n is source else n)
        return copies[node]

    output.args = torch.fx.map_arg(output.args, copied)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _returned_views(module: GraphModule, nodes: Sequence[Node]) -> set[Node]:
    """Views that the graph returns, and that nothing else reads (:func:`with_views_apart`): PyTorch makes
    them of the tensor that they are views of, so that results share memory as they would without us."""
    found: set[Node] = set()
    for node in reversed(nodes):
        users = [u for u in node.users if u.op != "output" and u not in found]
        parts = operator_of(node).partition(".")[0] in _PARTS and all(u in found for u in node.users)
        if not users and node.users and (parts or _source(node) is not None):
            found.add(node)
    return found


_VIEWS = frozenset(
    {
        "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "t", "mT",
        "numpy_T", "expand", "expand_as", "select", "slice", "detach", "alias", "swapaxes", "movedim",
        "narrow", "diagonal", "view_as", "to", "contiguous", "dropout", "feature_dropout", "alpha_dropout",
        "positive", "unfold", "broadcast_to", "reshape_as", "swapdims", "moveaxis", "as_strided", "matrix_H",
        "adjoint", "ravel", "type_as",
    }
)  # fmt: skip
_PARTS = frozenset(
    {"split", "split_with_sizes", "chunk", "unbind", "tensor_split", "hsplit", "vsplit", "dsplit"}
)
"""Operators whose results are a list of views."""


def _source(node: Node) -> Node | None:
    """The tensor that a view is a view of, whose memory it shares; None for what is no view."""
    call, known = node, _VIEWS
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        call, known = node.args[0], _PARTS
    source = call.args[0] if call.args else None
    if not isinstance(source, Node) or operator_of(call).partition(".")[0] not in known:
        return None
    return source if share_memory(node, source) else None


def _grouped(module: GraphModule, nodes: Sequence[Node], ours: set[Node], trial: _Trial) -> list[Group]:
    """Groups by level: a call's level is the least of its kind's parity that is not below its operands'."""
    levels: dict[Node, int] = {}
    last = 0
    for node in nodes:
        kind = 0 if node in ours else 1
        least = max((levels[n] for n in node.all_input_nodes if n in levels), default=kind)
        if kind == 1 and _is_ordered(node):  # random numbers are drawn in the order of the program
            least = max(least, last)
        if node.target is write_last:
            least = max(levels.values(), default=kind)
        if node.target is operator.getitem:
            source = node.args[0]
            assert isinstance(source, Node)
            levels[node] = levels[source]
            continue
        levels[node] = least if least % 2 == kind else least + 1
        if kind == 1 and _is_ordered(node):
            last = levels[node]
    groups = []
    for level in sorted(set(levels.values())):
        inside = [n for n in nodes if levels[n] == level]
        groups.append(_group(module, inside, level % 2 == 0))
    return groups


def _is_ordered(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _group(module: GraphModule, inside: Sequence[Node], is_ours: bool) -> Group:
    members = set(inside)
    read = {n for node in inside for n in node.all_input_nodes if n not in members}
    inputs = [n for n in module.graph.nodes if n in read]
    outputs = tuple(
        n
        for n in inside
        if any(u not in members for u in n.users)
        and not isinstance(n.meta.get("val"), list | tuple | int | float)
    )
    kept = tuple(n for n in inputs if n.op != "get_attr" or not is_ours)
    if not is_ours:
        return Group(tuple(inside), kept, outputs, None)
    walk = _Walk(module)
    for node in kept:
        walk.given(node)
    for node in inside:
        walk.call(node)
    graph = walk.builder.graph({n.name: walk.values[n] for n in outputs})
    return Group(tuple(inside), kept, outputs, graph)
