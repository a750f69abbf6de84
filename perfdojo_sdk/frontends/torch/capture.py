"""PyTorch's graphs as ATen operators before any decomposition, with shapes from its fake kernels.

Layers that ATen knows whole (LSTM, GRU, attention, batch normalisation) stay whole. Changes in place become
ordinary operators: a tensor that is changed is another node from then on, and so are its views.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

import perfdojo_sdk
from perfdojo_sdk.frontends.torch.writing import with_writes

aten = torch.ops.aten


#: Changes of a tensor's own shape -> the view that it is from then on.
RESHAPING: Mapping[Any, Any] = {
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.swapaxes_.default: aten.swapaxes.default,
    aten.swapdims_.default: aten.swapdims.default,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.unsqueeze_.default: aten.unsqueeze.default,
}
#: Views that undo themselves, with the same arguments.
TURNING = (
    aten.transpose.int, aten.t.default, aten.swapaxes.default, aten.swapdims.default, aten.numpy_T.default,
    aten.mT.default,
)  # fmt: skip
#: Operators that make several views, of parts along a dimension, which is their third argument.
SPLITTING = (
    "split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk", "tensor_split",
)  # fmt: skip
#: Views of all elements in their order.
PLAIN = (
    aten.view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.squeeze.default, aten.flatten.using_ints, aten.alias.default, aten.contiguous.default,
    aten.unflatten.int, aten.view_as.default, aten.reshape_as.default, aten.detach.default,
)  # fmt: skip


class Unchangeable(Exception):
    """A change in place that is not turned into an ordinary operator; its text says which."""

    def __init__(self, text: str, changed: Node | None = None) -> None:
        super().__init__(text)
        self.changed = changed
        """The input of the graph that is changed, if it is one."""


class DependsOnData(Exception):
    """A number in a tensor that decides how the rest is computed, such as a float argument that PyTorch hands
    over as a tensor since it varies from call to call; its text says which operator asks for it."""


def captured(function: Callable[..., Any], inputs: Sequence[Any], decompositions: Any = None) -> GraphModule:
    """``function`` as a graph of ATen operators for inputs like these; nothing is computed.
    :class:`DependsOnData` where that cannot be without data.

    ``decompositions``: a table by which operators are taken apart; without one, none is.
    """
    from torch._guards import tracing

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [_fake(mode, value) for value in inputs]

    def call(*values: Any) -> Any:  # whatever parameters the function itself declares
        return function(*values)

    # The mode makes tensors without inputs (``zeros``, constants) fake, too. Real ones would be computed, and
    # no record would say which of them share memory.
    with _quiet(), tracing(None), torch.no_grad(), mode:
        try:
            made = make_fx(
                call,
                decomposition_table=decompositions,
                tracing_mode="real",
                pre_dispatch=decompositions is None,
                _allow_non_fake_inputs=True,
            )(*fakes)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            place = _place_in_code(error)
            asked = f"{error.func}{place}: the rest depends on its value"
            if "_local_scalar_dense" in str(error.func):
                asked += "; a Python number that changes from call to call: give it as a tensor"
            raise DependsOnData(asked) from None
    _write_numbers(made)
    return made


def _place_in_code(error: Exception) -> str:
    """The user's line that an error comes from, in words; nothing if it is of generated code."""
    own = (str(Path(torch.__file__).parent), str(Path(perfdojo_sdk.__file__).parent), "<")
    frames = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(own)]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch from logging the traceback of an operator that fails: the error says what failed."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _write_numbers(module: GraphModule) -> None:
    """Write sizes, which are known by now, in place of the nodes that ask for them."""
    numbers = {
        n: n.meta["val"]
        for n in module.graph.nodes
        if n.op == "call_function" and isinstance(n.meta.get("val"), int | float)
    }
    if not numbers:
        return
    for node in module.graph.nodes:
        node.args, node.kwargs = (
            torch.fx.map_arg(given, lambda n: numbers.get(n, n)) for given in (node.args, node.kwargs)
        )
    for node in reversed(numbers):
        module.graph.erase_node(node)
    module.recompile()


def _fake(mode: FakeTensorMode, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    with mode:
        sizes, strides = [int(s) for s in value.shape], [int(s) for s in value.stride()]
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


# -- changes in place --------------------------------------------------------------------------------


def without_changes(module: GraphModule, inputs_too: bool = False) -> GraphModule:
    """The graph with changes in place as ordinary operators; :class:`Unchangeable` if an input is changed,
    or a view of a kind that has no inverse. ``inputs_too``: inputs may be changed, and are written
    (``writing.py``)."""
    changes = [n for n in module.graph.nodes if _is_change(n)]
    if changes:
        work = _Functional(module, inputs_too)
        work.run()
        with_writes(module, work.changed_inputs)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _is_change(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def share_memory(one: Any, other: Any) -> bool:
    """True if the values of two nodes are tensors over the same memory, by PyTorch's fake kernels."""
    values = [n.meta.get("val") if isinstance(n, Node) else None for n in (one, other)]
    places = [v.untyped_storage()._cdata for v in values if isinstance(v, Tensor)]
    return len(places) == 2 and places[0] == places[1]


class _Functional:
    """One pass over a graph. Each node has a current version; a change of a tensor makes new versions of it
    and of the tensors that share its memory."""

    def __init__(self, module: GraphModule, inputs_too: bool) -> None:
        self.graph: Graph = module.graph
        self.inputs_too = inputs_too
        self.current: dict[Node, Node] = {}
        self.parents: dict[Node, Node] = {}
        """View -> the tensor that it is a view of."""
        self.firsts: dict[Node, Any] = {}
        """Call -> its first argument, before any version."""
        self.made: set[Node] = set()
        self.reshaped: dict[Node, Node] = {}
        """Tensor whose shape was changed -> the view that stands for it from then on."""

    @property
    def changed_inputs(self) -> dict[Node, Node]:
        """Input -> what it is in the end."""
        return {node: version for node, version in self.current.items() if node.op == "placeholder"}

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if node in self.made:
                continue
            node.args = torch.fx.map_arg(node.args, self.shaped)
            node.kwargs = torch.fx.map_arg(node.kwargs, self.shaped)
            first = node.args[0] if node.args else None
            if node.op == "call_function" and not _is_change(node):
                self.note(node, first)
            with self.graph.inserting_before(node):
                node.args = torch.fx.map_arg(node.args, self.latest)
                node.kwargs = torch.fx.map_arg(node.kwargs, self.latest)
                if _is_change(node):
                    self.change(node, first)

    def note(self, node: Node, first: Any) -> None:
        """Remember what a view is a view of; a part of a split is one of the tensor that is split."""
        self.firsts[node] = first
        if node.target is operator.getitem:
            first = self.firsts.get(first)
        if share_memory(node, first):
            self.parents[node] = first

    def shaped(self, node: Node) -> Node:
        """The tensor in its shape of now."""
        while node in self.reshaped:
            node = self.reshaped[node]
        return node

    def reshape(self, node: Node, target: Node) -> None:
        """Put a view in place of an operator that changes the shape of ``target`` itself."""
        view = RESHAPING.get(node.target)
        if view is None:
            raise Unchangeable(f"{node.target} changes a shape in place")
        if target.op in ("placeholder", "get_attr"):
            raise Unchangeable("the shape of an input is changed in place", target)
        made = self.add(view, (self.latest(target), *node.args[1:]), node.kwargs, node)
        made.meta["val"] = node.meta["val"]  # over the memory of the target, in which changes are seen
        self.firsts[made] = self.parents[made] = target
        self.reshaped[target] = made
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)

    def latest(self, node: Node) -> Node:
        """The version of a tensor that later nodes see."""
        return self.current.get(node, node)

    def change(self, node: Node, target: Any) -> None:
        """Put an ordinary operator in place of one that changes ``target``."""
        if node.target is aten.detach_.default:  # of gradients, which are not recorded
            node.replace_all_uses_with(target)
            self.graph.erase_node(node)
            return
        schema = node.target._schema  # type: ignore[union-attr]
        written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if len(written) != 1 or written[0].name != schema.arguments[0].name or not isinstance(target, Node):
            raise Unchangeable(f"{node.target} changes other tensors than its first")
        if torch.Tag.inplace_view in node.target.tags:  # type: ignore[union-attr]
            self.reshape(node, target)
            return
        if not share_memory(node, target):  # then views of the same memory are not known either
            raise Unchangeable(f"{node.target} changes memory that the trace does not follow")
        packet = getattr(aten, schema.name.partition("::")[2].rstrip("_"), None)
        overload = getattr(packet, schema.overload_name or "default", None)
        if overload is None or overload._schema.is_mutable:
            raise Unchangeable(f"{node.target} has no form that changes nothing")
        new = self.add(overload, node.args, node.kwargs, target)
        node.replace_all_uses_with(target)
        self.write(target, new)
        self.graph.erase_node(node)

    def add(self, target: Any, args: Any, kwargs: Mapping[str, Any], like: Node) -> Node:
        node = self.graph.call_function(target, tuple(args), dict(kwargs))
        self.made.add(node)
        value = like.meta["val"]
        node.meta["val"] = value.new_empty(value.shape, dtype=value.dtype)
        return node

    def write(self, node: Node, new: Node) -> None:
        """Make ``new`` the version of a tensor, of what it is a view of, and of other views of that."""
        chain = [node]
        while chain[-1] in self.parents:
            chain.append(self.parents[chain[-1]])
        if chain[-1].op == "get_attr" or (chain[-1].op == "placeholder" and not self.inputs_too):
            raise Unchangeable("an input is changed in place", chain[-1])
        versions = {node: new}
        for view, base in zip(chain, chain[1:], strict=False):
            versions[base] = self.scattered(view, self.latest(base), versions[view])
        for view, base in self.parents.items():
            if view not in versions and base in versions:
                versions[view] = self.again(view, versions[base])
        self.current.update(versions)

    def again(self, view: Node, base: Node) -> Node:
        """A view of a new version of its tensor."""
        node = self._view(view, base)
        node.meta["val"] = view.meta["val"]  # over the memory of the tensor, which may be that of an input
        return node

    def _view(self, view: Node, base: Node) -> Node:
        part = _part(view)
        if part is not None:
            return self.add(aten.slice.Tensor, (base, *part), {}, view)
        place = _place(view)
        if place is not None:
            return self.add(aten.select.int, (base, *place), {}, view)
        if view.target is operator.getitem:
            raise Unchangeable("a change of a tensor that has views of several parts")
        return self.add(view.target, (base, *view.args[1:]), view.kwargs, view)

    def scattered(self, view: Node, base: Node, part: Node) -> Node:
        """``base`` with the elements that ``view`` shows replaced by ``part``."""
        target: Any = view.target
        rest: Any = view.args[1:]
        piece = _part(view)
        if piece is not None:
            return self.add(aten.slice_scatter.default, (base, part, *piece), {}, base)
        place = _place(view)
        if place is not None:
            return self.add(aten.select_scatter.default, (base, part, *place), {}, base)
        sizes = [int(s) for s in base.meta["val"].shape]
        if target in PLAIN or target == aten.expand.default and part.meta["val"].numel() == math.prod(sizes):
            return self.add(aten.reshape.default, (part, sizes), {}, base)
        if view.kwargs:
            raise Unchangeable(f"a change through {target}")
        if target == aten.select.int:
            return self.add(aten.select_scatter.default, (base, part, *rest), {}, base)
        if target == aten.slice.Tensor:
            return self.add(aten.slice_scatter.default, (base, part, *rest), {}, base)
        if target == aten.narrow.default:
            dim, start, length = (int(number) for number in rest)
            start += sizes[dim] if start < 0 else 0
            return self.add(aten.slice_scatter.default, (base, part, dim, start, start + length), {}, base)
        if target in TURNING:
            return self.add(target, (part, *rest), {}, base)
        if target == aten.permute.default:
            order = [int(dim) % len(sizes) for dim in rest[0]]
            back = [order.index(dim) for dim in range(len(sizes))]
            return self.add(target, (part, back), {}, base)
        if target in (aten.movedim.int, aten.movedim.intlist):
            return self.add(target, (part, rest[1], rest[0]), {}, base)
        raise Unchangeable(f"a change through {target}")


def _name(source: Any) -> str:
    """The name of the operator of a node, without its overload."""
    target = source.target if isinstance(source, Node) else None
    return target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""


def _place(view: Node) -> tuple[int, int] | None:
    """Dimension and place of a tensor among those that ``unbind`` makes; None for another kind of view."""
    source: Any = view.args[0]
    if view.target is not operator.getitem or _name(source) != "unbind":
        return None
    dim: Any = source.args[1] if len(source.args) > 1 else source.kwargs.get("dim", 0)
    place: Any = view.args[1]
    return int(dim), int(place)


def _part(view: Node) -> tuple[int, int, int] | None:
    """Dimension, start and end of a part of a tensor that is split; None for another kind of view."""
    source: Any = view.args[0]
    if view.target is not operator.getitem or _name(source) not in SPLITTING:
        return None
    place: Any = view.args[1]
    dim: Any = source.args[2] if len(source.args) > 2 else source.kwargs.get("dim", 0)
    sizes = [int(each.shape[dim]) for each in source.meta["val"]]
    start = sum(sizes[:place])
    return int(dim), start, start + sizes[place]
