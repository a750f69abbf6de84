"""PyTorch models: the public names of the front end. Needs the extra ``torch``.

import torch
import perfdojo_sdk.torch

compiled = torch.compile(net, backend="perfdojo")
with torch.no_grad():
    y = compiled(x)
print(perfdojo_sdk.torch.report(compiled).text)

step = perfdojo_sdk.torch.operator(library.step)  # torch.ops.perfdojo.step
"""

from __future__ import annotations

from perfdojo_sdk.frontends.torch.backend import perfdojo
from perfdojo_sdk.frontends.torch.compiling import Choices, Unsupported, compile_graph
from perfdojo_sdk.frontends.torch.registering import operator
from perfdojo_sdk.frontends.torch.report import Report, repack, report

__all__ = ["Choices", "Report", "Unsupported", "compile_graph", "operator", "perfdojo", "repack", "report"]
