"""``kernels``: what can be built."""

from __future__ import annotations

from perfdojo_sdk.cli.console import Json, emit, table


def command(as_json: Json = False) -> None:
    """List the kernels: how to ask for each, its default sizes, and what it computes.

    Sizes go in brackets, by position or by name: matmul[768,1024,1024], softmax[rows=8,cols=16].
    """
    from perfdojo_sdk.kernels.selection import usage
    from perfdojo_sdk.plugins import load_plugins

    operators = load_plugins().operators
    data = [
        {
            "name": o.name,
            "usage": usage(o),
            "parameters": [{"name": p.name, "doc": p.doc} for p in o.parameters],
            "defaults": [list(sizes) for sizes in o.defaults],
            "doc": o.doc,
        }
        for o in sorted(operators.values(), key=lambda o: o.name)
    ]
    rows = [
        (d["usage"], " ".join("x".join(map(str, sizes)) for sizes in d["defaults"]), d["doc"]) for d in data
    ]
    emit(table(("kernel", "default sizes", "what it computes"), rows), {"kernels": data}, as_json)
