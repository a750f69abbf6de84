"""Reading of models for commands: the inputs that users give, and the refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.graph.graph import Graph
    from perfdojo_sdk.models.policy import Policy
    from perfdojo_sdk.models.racing import Offers

_INPUT = re.compile(r"(?P<name>[^=]{1,1000})=(?:(?P<dtype>[a-z0-9]+)?\[(?P<sizes>[0-9, ]*)\])")

#: A module of PyTorch in a file.
MODULE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")

Inputs = dict[str, tuple[str, tuple[int, ...]]]
"""Input -> its dtype, or nothing if that is left out, and its shape."""
Row = tuple[str, str, str, str]
"""Node, operator, what, and why."""


class Read(NamedTuple):
    """A model that was read."""

    graph: Graph | None
    refused: Sequence[Row]
    """The parts that are not supported."""
    operators: Mapping[str, int]
    offers: Offers | None = None
    """The model in its own format, if races were asked for."""


def lowered(
    model: str,
    inputs: Inputs,
    policy: Policy | None = None,
    elsewhere: Mapping[str, str] | None = None,
    weights: Path | None = None,
) -> Read:
    """The graph of a file of ONNX or of ``FILE.py:NAME``, what is not supported, and the operators in it.

    ``policy``: its fallback runs what is not supported, and the nodes of ``elsewhere``, for these reasons.
    ``weights``: a checkpoint for a module."""
    module = MODULE.fullmatch(model)
    peer = policy.fallback if policy is not None else ""
    races = policy is not None and bool(policy.prefer_faster)
    if module is not None and (peer or races):
        option = "--fallback" if peer else "--prefer-faster"
        what = f"{option} is for models of ONNX, and {model} is a PyTorch module"
        hint = 'torch.compile(net, backend="perfdojo") runs there what has no kernel'
        raise UnavailableError("PD-O043", what, hint=hint)
    try:
        if module is not None:
            return _of_torch(Path(module["file"]), module["name"], inputs, weights)
        if weights is not None:
            raise typer.BadParameter("--weights is for modules, FILE.py:NAME; a file of ONNX has its own")
        from perfdojo_sdk.frontends.onnx.lowering import lower
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("onnx", "ml_dtypes", "google", "torch"):
            raise
        kind = "torch" if module is not None else "onnx"
        what = f"models of {'PyTorch' if module is not None else 'ONNX'} need the package {kind}"
        raise UnavailableError("PD-O015", what, hint=f"pip install 'perfdojo-sdk[{kind}]'") from None
    shapes = {name: shape for name, (_, shape) in inputs.items()}
    found = lower(Path(model), shapes, peer=peer, elsewhere=elsewhere, races=races)
    rows = [(r.node, r.operator, r.what, r.reason.value) for r in found.refusals]
    return Read(found.graph, rows, found.operators, found.sources)


def _of_torch(path: Path, name: str, inputs: Inputs, weights: Path | None) -> Read:
    from perfdojo_sdk.frontends.torch.packaging import exported_file

    given = {n: (dtype or "f32", shape) for n, (dtype, shape) in inputs.items()}
    made = exported_file(path, name, given, weights)
    rows = [(e.node, e.operator, e.reason, "it has no kernel") for e in made.elsewhere]
    return Read(made.graph, rows, made.operators)


def unsupported(name: str, rows: Sequence[tuple[str, ...]]) -> Exception:
    """The error for what is not supported; ``rows`` were printed before."""
    from perfdojo_sdk.core.errors import DojoError

    kinds = sorted({row[3] for row in rows})
    what = f"{number_of(len(rows), 'parts')} of {name} are not supported"
    return DojoError("PD-O004", what, why="; ".join(kinds), hint="the table above says where and why")


def inputs_of(given: Sequence[str]) -> Inputs:
    """Dtypes and shapes of inputs, such as ``x=f32[8,3]`` or ``x=[8,3]``."""
    found: Inputs = {}
    for text in given:
        match = _INPUT.fullmatch(text.strip())
        sizes = [s.strip() for s in match["sizes"].split(",")] if match and match["sizes"].strip() else []
        if match is None or not all(s.isdigit() and len(s) <= 12 for s in sizes):
            raise typer.BadParameter(f"{text[:80]!r} is no input; write for example x=f32[8,3,224,224]")
        found[match["name"]] = (match["dtype"] or "", tuple(map(int, sizes)))
    return found
