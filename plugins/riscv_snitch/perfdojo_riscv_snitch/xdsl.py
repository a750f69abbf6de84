"""The baseline of the xDSL compiler: micro-kernels as its Snitch pipeline compiles them.

The pipeline takes MLIR and emits assembly with streams and repeated bodies (Lopoukhine et al., CGO 2025),
which our assembler and simulator run like our own. It is an optional extra of this package and takes kernels
of f64 with one loop nest. Where it fails, or is not installed, the reason is reported.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfdojo_riscv_snitch.runner import SnitchRunner
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource

_TIMEOUT_S = 120
_PASSES = "test-lower-linalg-to-snitch"

#: The end of a call: xDSL's code returns while the FPU still works, but here a call ends when all is
#: computed.
_END = "    fmv.x.w t0, ft3\n    mv zero, t0\n    li a0, 0\n    ret\n"


@dataclass(frozen=True)
class _Nest:
    """A kernel as one generic operation of MLIR's dialect linalg, over two loops that remain."""

    operands: Sequence[str]
    """Subscripts of each operand of the body, %0, %1 ..."""
    body: str
    """MLIR that computes %r from the operands, the result so far (%o) and %start; empty: %r is the
    operand."""
    summed: int = 0
    """Number of loops of the sum, which are the last ones."""
    start: str = "0.0"
    """The initial value of the sum."""
    window: str = ""
    """Sizes of the sum's loops if no array has them: an operand that is not read provides them."""
    constant: bool = False
    """True if the input is one number, loaded before the loops."""


_FMA = "%p = arith.mulf %0, %1 fastmath<fast> : f64\n%r = arith.addf %o, %p fastmath<fast> : f64"
_ADD = "%r = arith.addf %o, %0 fastmath<fast> : f64"
_MAXIMUM = "%r = arith.maximumf %o, %0 fastmath<fast> : f64"
_LOWEST = "-1.7976931348623157e308"
_SHIFTED, _IN_WINDOW = "d0 + d2, d1 + d3", "d2, d3"
_KERNELS = {
    "dsum": _Nest(("d0, d1", "d0, d1"), "%r = arith.addf %0, %1 : f64"),
    "dfill": _Nest(("",), "", constant=True),
    "drelu": _Nest(("d0, d1",), "%r = arith.maximumf %0, %start : f64"),
    "dmatmul": _Nest(("d0, d2", "d2, d1"), _FMA, 1),
    "dmatmul_transb": _Nest(("d0, d2", "d1, d2"), _FMA, 1),
    "dconv3x3": _Nest((_SHIFTED, _IN_WINDOW), _FMA, 2),
    "dmaxpool": _Nest((_SHIFTED, _IN_WINDOW), _MAXIMUM, 2, _LOWEST, window="3x3"),
    "dsumpool": _Nest((_SHIFTED, _IN_WINDOW), _ADD, 2, window="3x3"),
}


def compiled_by_xdsl(operator: str, source: KernelSource) -> Artifact | str:
    """The kernel with the arrays and the name of ``source``; or, in words, why there is none."""
    if operator not in _KERNELS:
        return "it is not among those that are handed to xDSL here"
    if importlib.util.find_spec("xdsl") is None:
        return "the package xdsl is not installed: pip install 'perfdojo-riscv-snitch[xdsl]'"
    command = [sys.executable, "-W", "ignore", "-m", "xdsl.tools.xdsl_opt", "-p", _PASSES, "-t", "riscv-asm"]
    text = _module(operator, source)
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"xDSL did not end well: {error}"
    if done.returncode:
        return f"xDSL says: {done.stderr.strip()[-300:]}"
    code = done.stdout.replace("    ret\n", _END)
    code += (
        f".globl {source.symbol}_workspace_bytes\n{source.symbol}_workspace_bytes:\n    li a0, 0\n    ret\n"
    )
    made = SnitchRunner().compile(KernelSource(source.symbol, source.inputs, source.outputs, code, "s"))
    return f"its assembly does not assemble: {made.detail}" if isinstance(made, Failure) else made


def _module(operator: str, source: KernelSource) -> str:
    nest, result = _KERNELS[operator], "d0, d1"
    (output,) = source.outputs
    inputs = {f"%{spec.name}": _type(spec.shape) for spec in source.inputs}
    target = {f"%{output.name}": _type(output.shape)}
    # The window comes after the caller's arguments, since nothing is read from it.
    window = {"%window": f"memref<{nest.window}xf64>"} if nest.window else {}
    arguments = ", ".join(f"{name}: {kind}" for name, kind in {**inputs, **target, **window}.items())
    lines = [f"func.func @{source.symbol}({arguments}) -> () {{"]
    lines.append(f"%start = arith.constant {nest.start} : f64")
    operands = {**inputs, **window}
    if nest.constant:
        ((name, kind),) = inputs.items()
        lines += ["%first = arith.constant 0 : index", f"%number = memref.load {name}[%first] : {kind}"]
        operands = {"%number": "f64"}
    if nest.summed:
        lines += _generic(0, ("", result), {"%start": "f64"}, target, "linalg.yield %0 : f64")
    body = f"{nest.body}\nlinalg.yield {'%r' if nest.body else '%0'} : f64"
    lines += _generic(nest.summed, (*nest.operands, result), operands, target, body)
    return "\n".join([*lines, "func.return", "}", ""])


def _generic(
    summed: int,
    subscripts: Sequence[str],
    inputs: Mapping[str, str],
    output: Mapping[str, str],
    body: str,
) -> list[str]:
    """A nest of two loops that remain and ``summed`` more, and the operands with their types."""
    names = ", ".join(f"d{k}" for k in range(2 + summed))
    maps = ", ".join(f"affine_map<({names}) -> ({each})>" for each in subscripts)
    kinds = ", ".join(['"parallel"'] * 2 + ['"reduction"'] * summed)
    values = ", ".join([*(f"%{k}: f64" for k in range(len(inputs))), "%o: f64"])

    def operands(found: Mapping[str, str]) -> str:
        return f"({', '.join(found)} : {', '.join(found.values())})"

    head = f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
    return [f"{head} ins{operands(inputs)} outs{operands(output)} {{", f"^bb0({values}):", body, "}"]


def _type(shape: Sequence[int]) -> str:
    return f"memref<{'x'.join(map(str, shape))}xf64>"
