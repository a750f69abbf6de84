"""``kernels``: what can be built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, table


def command(
    target: Annotated[
        str, typer.Option(help="List those of this target's plugin too.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """List the kernels: how to ask for each, its default sizes, and what it computes.

    Sizes go in brackets, by position or by name: matmul[768,1024,1024], softmax[rows=8,cols=16].
    A name before default sizes stands for them: layernorm1. A target may have lists of kernels; the name
    of one stands for all of it.
    """
    from perfdojo_sdk.kernels.selection import usage
    from perfdojo_sdk.plugins import load_plugins

    plugins = load_plugins(targets=[target] if target else ())
    operators = plugins.operators_for(plugins.target(target)) if target else plugins.operators
    data: list[dict[str, Any]] = [
        {
            "name": o.name,
            "usage": usage(o),
            "parameters": [{"name": p.name, "doc": p.doc} for p in o.parameters],
            "defaults": [list(sizes) for sizes in o.defaults],
            "names": list(o.names),
            "doc": o.doc,
        }
        for o in sorted(operators.values(), key=lambda o: o.name)
    ]
    rows = [
        (d["usage"], _shown(d["names"] or [""] * len(d["defaults"]), d["defaults"]), d["doc"]) for d in data
    ]
    lists = plugins.target(target).capabilities.selections if target else {}
    lines = [table(("kernel", "default sizes", "what it computes"), rows)]
    lines += [f"{name}: {' '.join(kernels)}" for name, kernels in lists.items()]
    named = {name: list(kernels) for name, kernels in lists.items()}
    emit("\n".join(lines), {"kernels": data, "selections": named}, as_json)


def _shown(names: Sequence[str], defaults: Sequence[Sequence[int]]) -> str:
    """``layernorm1 16384x1024, layernorm2 4096x4096``"""
    sizes = ["x".join(map(str, each)) for each in defaults]
    return ", ".join(f"{name} {size}".strip() for name, size in zip(names, sizes, strict=True))
