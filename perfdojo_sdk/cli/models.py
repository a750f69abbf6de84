"""Reading of models for commands: the shapes that users give, and the refusal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.frontends.onnx.lowering import Refusal
    from perfdojo_sdk.graph.graph import Graph

_INPUT = re.compile(r"(?P<name>[^=]{1,1000})=(?:(?P<dtype>[a-z0-9]+)?\[(?P<sizes>[0-9, ]*)\])")


def lowered(path: Path, shapes: dict[str, tuple[int, ...]]) -> tuple[Graph | None, Sequence[Refusal], Any]:
    try:
        from perfdojo_sdk.frontends.onnx.lowering import lower
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("onnx", "ml_dtypes", "google"):
            raise
        what = "models of ONNX need the package onnx"
        raise UnavailableError("PD-O015", what, hint="pip install 'perfdojo-sdk[onnx]'") from None
    found = lower(path, shapes)
    return found.graph, found.refusals, found.operators


def unsupported(name: str, rows: Sequence[tuple[str, ...]]) -> Exception:
    from perfdojo_sdk.core.errors import DojoError

    kinds = sorted({row[3] for row in rows})
    what = f"{number_of(len(rows), 'parts')} of {name} are not supported"
    return DojoError("PD-O004", what, why="; ".join(kinds), hint="the table above says where and why")


def shapes_of(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes of inputs, such as ``x=f32[8,3]`` or ``x=[8,3]``."""
    found = {}
    for text in given:
        match = _INPUT.fullmatch(text.strip())
        sizes = [s.strip() for s in match["sizes"].split(",")] if match and match["sizes"].strip() else []
        if match is None or not all(s.isdigit() and len(s) <= 12 for s in sizes):
            raise typer.BadParameter(f"{text[:80]!r} is no input; write for example x=f32[8,3,224,224]")
        found[match["name"]] = tuple(map(int, sizes))
    return found
