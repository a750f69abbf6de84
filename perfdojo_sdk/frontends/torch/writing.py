"""Changes that a graph makes in its inputs: a cache that gets a row, statistics that run on.

The memory is the caller's, so PyTorch writes it; kernels compute what is written. Elements that are replaced
(``cache[:, i] = v``, ``index_copy_``) are written where they lie, if all that reads the older ones comes
before. Any other change is a new tensor, which is copied to the input when everything else has been computed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import has_side_effect

aten = torch.ops.aten


@has_side_effect
def write_all(tensor: Tensor, values: Tensor) -> Tensor:
    return tensor.copy_(values)


@has_side_effect
def write_last(tensor: Tensor, values: Tensor) -> Tensor:
    """The same, when everything else has been computed."""
    return tensor.copy_(values)


@has_side_effect
def write_slice(
    tensor: Tensor, values: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    slice_of(tensor, dim, start, end, step).copy_(values)
    return tensor


@has_side_effect
def write_place(tensor: Tensor, values: Tensor, dim: int, index: int) -> Tensor:
    tensor.select(dim, index).copy_(values)
    return tensor


@has_side_effect
def write_rows(tensor: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor:
    return tensor.index_copy_(dim, index, values)


@has_side_effect
def write_elements(
    tensor: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False
) -> Tensor:
    made: Tensor = aten.index_put_.default(tensor, indices, values, accumulate)
    return made


def slice_of(tensor: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """A view of a part that is written."""
    part: Tensor = aten.slice.Tensor(tensor, dim, start, end, step)
    return part


def place_of(tensor: Tensor, dim: int, index: int) -> Tensor:
    """A view of one place along a dimension that is written."""
    return tensor.select(dim, index)


def written_in(tensor: Tensor, part: Tensor) -> Tensor:
    """A tensor, once a part of it has been written."""
    return tensor


#: Operators that make a tensor with some elements replaced -> the function that replaces them where they lie.
WRITERS: Mapping[Any, Callable[..., Tensor]] = {
    aten.copy.default: write_all,
    aten.slice_scatter.default: write_slice,
    aten.select_scatter.default: write_place,
    aten.index_copy.default: write_rows,
    aten.index_put.default: write_elements,
}
#: Operators that replace the elements of a view -> the operator that makes the view, and ours.
_VIEWS: Mapping[Any, tuple[Any, Callable[..., Tensor]]] = {
    aten.slice_scatter.default: (aten.slice.Tensor, slice_of),
    aten.select_scatter.default: (aten.select.int, place_of),
}
#: Calls that write to the caller's memory, or make views of what is written.
WRITES = frozenset({*WRITERS.values(), write_last, slice_of, place_of, written_in})


def is_write(node: Node) -> bool:
    """True for a call of this module: PyTorch runs it, and it computes nothing."""
    return node.op == "call_function" and node.target in WRITES


def written_inputs(module: GraphModule) -> tuple[int, ...]:
    """Numbers of the inputs that a graph writes."""
    places = [n for n in module.graph.nodes if n.op == "placeholder"]
    return tuple([k for k, place in enumerate(places) if any(map(is_write, place.users))])


def with_writes(module: GraphModule, changed: Mapping[Node, Node]) -> GraphModule:
    """The graph with its changes of inputs as calls of this module. ``changed``: input -> what it is in the
    end, as another tensor."""
    [output] = [n for n in module.graph.nodes if n.op == "output"]
    for tensor, final in changed.items():
        work = _InPlace(module.graph, tensor)
        if work.fits(final, tensor):
            work.write(final, tensor, tensor)
            continue
        with module.graph.inserting_before(output):
            node = module.graph.call_function(write_last, (tensor, _copied(final, tensor)))
        node.meta.update(val=tensor.meta["val"], version=final)
        final.meta["val"] = tensor.meta["val"]  # views of it that are returned are views of the input
    return module


def written_at_last(module: GraphModule) -> dict[Node, Node]:
    """Tensors that inputs become at last -> the calls that write them there; callers get the inputs."""
    return {n.meta["version"]: n for n in module.graph.nodes if n.target is write_last}


def _copied(final: Node, tensor: Node) -> Any:
    """The source of a copy of a whole tensor, of the same shape and dtype."""
    while final.target is aten.copy.default:
        source, mine = final.args[1], tensor.meta["val"]
        other = source.meta.get("val") if isinstance(source, Node) else None
        if not isinstance(other, Tensor) or (other.shape, other.dtype) != (mine.shape, mine.dtype):
            break
        assert isinstance(source, Node)
        final = source
    return final


class _InPlace:
    """Versions of an input in which only some elements are others, written one after the other."""

    def __init__(self, graph: Graph, tensor: Node) -> None:
        self.graph, self.tensor = graph, tensor

    def fits(self, version: Node, tensor: Node) -> bool:
        """True if a version is made of ``tensor`` by replacing elements, each time when all that reads the
        older ones has been computed."""
        if version is tensor:
            return True
        if version.target not in WRITERS or _argument(version, 3, "accumulate") is True:
            return False
        older = version.args[0]
        assert isinstance(older, Node)
        before = _ancestors(version)
        return all(user in before for user in _readers(older, version)) and self.fits(older, tensor)

    def write(self, version: Node, tensor: Node, place: Node) -> Node:
        """``place`` once it holds a version of ``tensor``, which it holds before; what reads that version
        reads ``place``."""
        if version is tensor:
            return place
        older = version.args[0]
        assert isinstance(older, Node)
        view = self._view(version, older)
        place = self.write(older, tensor, place)
        if view is None:
            node = self._add(
                WRITERS[version.target], (place, *version.args[1:]), version.kwargs, tensor, version
            )
        else:
            source, kind = version.args[1], _VIEWS[version.target][1]
            assert isinstance(source, Node)
            part = self._add(kind, (place, *view.args[1:]), view.kwargs, view, view)
            node = self._add(written_in, (place, self.write(source, view, part)), {}, tensor, version)
        version.replace_all_uses_with(node)
        return node

    def _add(self, target: Any, args: Any, kwargs: Any, like: Node, before: Node) -> Node:
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target, tuple(args), dict(kwargs))
        node.meta["val"] = like.meta["val"]
        return node

    def _view(self, version: Node, older: Node) -> Node | None:
        """The part of the older tensor that a version replaces, if elements of the part are replaced in turn
        and nothing else reads it."""
        if version.target not in _VIEWS:
            return None
        first = last = version.args[1]
        while isinstance(first, Node) and first.target in WRITERS:
            first = first.args[0]
        if first is last or not isinstance(first, Node) or not isinstance(last, Node):
            return None
        kind, rest = _VIEWS[version.target][0], version.args[2:]
        same = first.target is kind and first.args == (older, *rest) and first.kwargs == version.kwargs
        return first if same and self.fits(last, first) else None


def _argument(node: Node, place: int, name: str) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def _readers(tensor: Node, but: Node) -> Iterator[Node]:
    """Readers of a tensor, also through views, other than one node."""
    for user in tensor.users:
        if user is not but:
            yield user
            if _may_share(user):
                yield from _readers(user, but)


def _may_share(node: Node) -> bool:
    """True if the results of a call may be views of its operands."""
    if node.target is operator.getitem or not isinstance(node.target, torch._ops.OpOverload):
        return True
    return any(each.alias_info is not None for each in node.target._schema.returns)


def _ancestors(node: Node) -> set[Node]:
    found: set[Node] = set()
    left = [node]
    while left:
        for each in left.pop().all_input_nodes:
            if each not in found:
                found.add(each)
                left.append(each)
    return found
