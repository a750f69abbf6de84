"""The benchmark's kernels in Triton: interpreted, and compiled for a GPU that need not be there.

``pip install triton`` (Linux, some 300 MB); without it these tests are skipped. Interpreted kernels live in a
process of their own, because Triton decides between interpreter and compiler when a kernel is defined.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None,
    reason="Triton or PyTorch is missing; try: pip install triton torch",
)

ROOT = Path(__file__).parent.parent

#: Family, shapes of the inputs, shape of the output; nothing divides, and a product has two groups of tiles.
CASES = (
    ("add", ((5, 313), (5, 313)), (5, 313)),
    ("mul", ((3, 700), (3, 700)), (3, 700)),
    ("relu", ((3, 700),), (3, 700)),
    ("softmax", ((3, 70),), (3, 70)),
    ("layernorm", ((3, 70), (70,), (70,)), (3, 70)),
    ("rmsnorm", ((3, 70), (70,)), (3, 70)),
    ("reducemean", ((5, 70),), (5,)),
    ("matmul", ((1100, 33), (33, 150)), (1100, 150)),
    ("bmm", ((3, 20, 40), (3, 40, 30)), (3, 20, 30)),
)

INTERPRET = """
import json, sys
import torch
from benchmarks.gpu_triton import FORMULAS
from perfdojo_sdk.peers.operators import Operator, error

cases = [Operator(family, family, tuple(map(tuple, shapes)), tuple(output)) for family, shapes, output in %s]
assert set(FORMULAS) == {each.family for each in cases}
found = {}
for each in cases:
    host = each.draw(0)
    expected = each.expected(host)
    for variant, formula in FORMULAS[each.family].items():
        result = formula(*map(torch.from_numpy, host))
        found[f"{each.family} {variant}"] = error(each, result.numpy(), expected)
print(json.dumps(found))
"""

COMPILE = """
import json
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from benchmarks import gpu_triton

def ptx(kernel, warps, **known):
    names = kernel.arg_names
    types = {name: "i32" if name in ("size", "rows", "columns", "steps") else "*fp32" for name in names}
    source = ASTSource(
        kernel, {**types, **dict.fromkeys(known, "constexpr")},
        constexprs={(names.index(name),): value for name, value in known.items()},
        attrs={(place,): [["tt.divisibility", 16]] for place, name in enumerate(names) if name not in known},
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    assert made.metadata.shared <= 227 << 10
    return made.asm["ptx"]

tm, tn, tk, warps = gpu_triton.TILES[0]
print(json.dumps({
    "add": ptx(gpu_triton._add, 4, block=gpu_triton.BLOCK),
    "softmax": ptx(gpu_triton._softmax, 4, width=512),
    "matmul": ptx(gpu_triton._products, warps, tm=tm, tn=tn, tk=tk),
}))
"""


def in_a_process(code: str, tmp_path: Path, **more: str) -> dict[str, str]:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1", **more}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_interpreted_kernels_are_right(tmp_path: Path) -> None:
    errors = in_a_process(INTERPRET % (CASES,), tmp_path, TRITON_INTERPRET="1")
    assert len(errors) == 7 + 2 * 3, "products have three tiles"
    assert {name: worst for name, worst in errors.items() if float(worst) > 1e-6} == {}


def test_kernels_compile_for_a_gpu_and_products_stay_in_f32(tmp_path: Path) -> None:
    made = in_a_process(COMPILE, tmp_path, TRITON_INTERPRET="0")
    assert "ld.global.v4" in made["add"] and "shfl.sync" in made["softmax"]
    assert "fma.rn.f32" in made["matmul"] and "mma" not in made["matmul"] and "tf32" not in made["matmul"]
