"""What the xDSL compiler makes of a micro-kernel, as a thing to compare with.

Its Snitch pipeline takes MLIR and emits assembly with streams and repeated bodies (Lopoukhine et al., CGO
2025), which our assembler and simulator run as they do our own. It is an optional extra of this package, and
takes kernels of f64 that are one loop nest; where it gives up, or is not installed, the reason says so.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence

from perfdojo_riscv_snitch.runner import SnitchRunner
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource

_TIMEOUT_S = 120
_PASSES = "test-lower-linalg-to-snitch"

#: It returns while the FPU still works; here a call ends when all is computed.
_END = "    fmv.x.w t0, ft3\n    mv zero, t0\n    li a0, 0\n    ret\n"

#: Kernel -> loops that remain, loops of the sum, subscripts of its operands and of its result, and the body.
#: Operands of the body are %0, %1 ..., the result so far is %o.
_FMA = "%p = arith.mulf %0, %1 fastmath<fast> : f64\n%r = arith.addf %o, %p fastmath<fast> : f64"
_KERNELS = {
    "dsum": (2, 0, ("d0, d1", "d0, d1"), "d0, d1", "%r = arith.addf %0, %1 : f64"),
    "drelu": (2, 0, ("d0, d1",), "d0, d1", "%r = arith.maximumf %0, %zero : f64"),
    "dmatmul": (2, 1, ("d0, d2", "d2, d1"), "d0, d1", _FMA),
    "dmatmul_transb": (2, 1, ("d0, d2", "d1, d2"), "d0, d1", _FMA),
    "dconv3x3": (2, 2, ("d0 + d2, d1 + d3", "d2, d3"), "d0, d1", _FMA),
}


def compiled_by_xdsl(operator: str, source: KernelSource) -> Artifact | str:
    """The kernel, which ``source`` tells arrays and name of; or, in words, why there is none."""
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
    kept, summed, operands, result, body = _KERNELS[operator]
    (output,) = source.outputs
    inputs = {f"%{spec.name}": _type(spec.shape) for spec in source.inputs}
    target = {f"%{output.name}": _type(output.shape)}
    arguments = ", ".join(f"{name}: {kind}" for name, kind in {**inputs, **target}.items())
    lines = [f"func.func @{source.symbol}({arguments}) -> () {{", "%zero = arith.constant 0.0 : f64"]
    if summed:
        lines += _nest((kept, 0), ("", result), {"%zero": "f64"}, target, "linalg.yield %0 : f64")
    lines += _nest((kept, summed), (*operands, result), inputs, target, f"{body}\nlinalg.yield %r : f64")
    return "\n".join([*lines, "func.return", "}", ""])


def _nest(
    loops: tuple[int, int],
    subscripts: Sequence[str],
    inputs: Mapping[str, str],
    output: Mapping[str, str],
    body: str,
) -> list[str]:
    """A loop nest: so many loops that remain and that sum, and the operands with their types."""
    names = ", ".join(f"d{k}" for k in range(sum(loops)))
    maps = ", ".join(f"affine_map<({names}) -> ({each})>" for each in subscripts)
    kinds = ", ".join(['"parallel"'] * loops[0] + ['"reduction"'] * loops[1])
    values = ", ".join([*(f"%{k}: f64" for k in range(len(inputs))), "%o: f64"])

    def operands(found: Mapping[str, str]) -> str:
        return f"({', '.join(found)} : {', '.join(found.values())})"

    head = f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
    return [f"{head} ins{operands(inputs)} outs{operands(output)} {{", f"^bb0({values}):", body, "}"]


def _type(shape: Sequence[int]) -> str:
    return f"memref<{'x'.join(map(str, shape))}xf64>"
