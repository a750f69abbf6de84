"""A report on a compiled model: kernels with their legs of verification, and calls that run elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.frontends.torch.backend import Compiled
from perfdojo_sdk.frontends.torch.breaks import Left, innermost, left_of
from perfdojo_sdk.frontends.torch.compiling import GraphReport
from perfdojo_sdk.frontends.torch.lowering import Elsewhere


@dataclass(frozen=True)
class Report:
    """All graphs of a compiled model, in the order in which they were compiled."""

    graphs: tuple[GraphReport, ...]
    breaks: tuple[Elsewhere, ...] = ()
    """Places at which Python runs a part of the model, between graphs or instead of one."""

    @property
    def complete(self) -> bool:
        """True if every call runs in a kernel of ours."""
        return not self.breaks and not any(graph.whole or graph.elsewhere for graph in self.graphs)

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The report for a person."""
        lines = []
        for number, graph in enumerate(self.graphs, 1):
            kernels = number_of(len(graph.kernels), "kernels")
            lines.append(
                f"graph {number}: {kernels}" + (f"; PyTorch runs it: {graph.whole}" if graph.whole else "")
            )
            for kernel in graph.kernels:
                time = f", {_microseconds(kernel.median_s)} measured" if kernel.median_s is not None else ""
                if kernel.packed_bytes:
                    time += f", {number_of(kernel.packed_bytes, 'bytes')} packed once"
                calls = number_of(kernel.calls, "calls")
                lines.append(f"  {kernel.name}: {calls} for {', '.join(kernel.origins)}{time}")
                lines += [f"    {leg}: {result}" for leg, result in kernel.legs.items()]
            lines += [f"  elsewhere: {each.text}" for each in graph.elsewhere]
        lines += [f"ran elsewhere: {each.text}" for each in self.breaks]
        return "\n".join(lines)


def report(compiled: Any) -> Report:
    """The graphs that ``torch.compile(..., backend="perfdojo")`` made of ``compiled`` so far.

    PyTorch keeps them with the code of ``forward``: modules of one class, such as ``Sequential``, that were
    compiled with the same options are listed together.

    :class:`DojoError` if it has not been called yet, or is compiled by another backend.
    """
    if isinstance(compiled, Compiled):
        return Report(tuple(compiled.reports))
    graphs = tuple(graph for each in _graphs(compiled) for graph in each.reports)
    breaks = tuple(_left(compiled).breaks)
    if not graphs and not breaks:
        raise _nothing("ask for the report")
    return Report(graphs, breaks)


def repack(compiled: Any) -> None:
    """Pack the parameters of ``compiled`` again at its next call, after a change that PyTorch does not count,
    such as ``p.data.mul_(2)``. Errors: as of :func:`report`."""
    found = [compiled] if isinstance(compiled, Compiled) else _graphs(compiled)
    if not found:
        raise _nothing("pack again")
    for each in found:
        each.repack()


def _nothing(then: str) -> DojoError:
    what = "nothing was compiled by the backend perfdojo yet"
    hint = f'after compiled = torch.compile(net, backend="perfdojo"), call compiled(x) once, then {then}'
    return DojoError("PD-O022", what, hint=hint)


def _left(compiled: Any) -> Left:
    """The frames and breaks of what ``torch.compile`` returned, those of its own backend and options."""
    # Dynamo wraps the forward of PyTorch's own modules, such as Sequential, in a function of its own.
    forward = getattr(compiled, "forward", None) if hasattr(compiled, "dynamo_ctx") else None
    wrapped = [getattr(each, "_torchdynamo_orig_callable", None) for each in (compiled, forward)]
    functions = [getattr(each, "__func__", each) for each in wrapped]
    codes = [code for each in functions if (code := getattr(each, "__code__", None))]
    return left_of(list(dict.fromkeys(codes)), _backend(compiled))


def _graphs(compiled: Any) -> list[Compiled]:
    """The graphs of a function's frames: its own, those behind graph breaks, and those that Python calls."""
    backend, found = _backend(compiled), dict[Compiled, None]()
    for frame in _left(compiled).frames:
        for entry in reversed(_debug_get_cache_entry_list(frame.code)):
            if backend is not None and entry.backend != backend:
                continue  # of another backend, or of other options
            for name in entry.code.co_names:
                value = frame.names.get(name) if name.startswith("__compiled_fn") else None
                value = getattr(value, "_torchdynamo_orig_callable", value)
                if isinstance(value, Compiled):
                    found[value] = None
    return list(found)


def _backend(compiled: Any) -> Any:
    """The backend of a call of ``torch.compile``, as Dynamo's entries name it; None if it is not found. Calls
    with one backend and equal options share what is compiled of one code."""
    cells = [cell.cell_contents for cell in getattr(compiled, "__closure__", None) or ()]
    contexts = [c for c in (getattr(compiled, "dynamo_ctx", None), *cells) if hasattr(c, "callback")]
    return innermost(contexts[0].callback) if contexts else None


def _microseconds(seconds: float) -> str:
    us = 1e6 * seconds
    return f"{us:.1f} us" if us >= 10 else f"{us:.3g} us"
