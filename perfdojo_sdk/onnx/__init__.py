"""ONNX models: the public names of the front end. Needs the extra ``onnx``.

    import perfdojo_sdk.onnx
    graph = perfdojo_sdk.onnx.lower("model.onnx").graph

:mod:`perfdojo_sdk.onnx.backend` is the standard's own interface of backends.
"""

from __future__ import annotations

from perfdojo_sdk.frontends.onnx.lowering import Lowered, Refusal, Unsupported, lower
from perfdojo_sdk.frontends.onnx.prepared import Prepared

__all__ = ["Lowered", "Prepared", "Refusal", "Unsupported", "lower"]
