"""Weights of 4 bits, two in a byte, times a vector: the kernel takes the bytes apart in registers."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import perfdojo_sdk

Path("product.dojo").write_text("""\
kernel product(w, x) -> y
w packed i4 [64,128] heap
x f32 [128] heap
y f32 [64] heap

64
| y[{0}] = 0
| 128 y[{0}] += f32(w[{0},{1}]) * x[{1}]
""")
dojo = [sys.executable, "-m", "perfdojo_sdk.cli"]  # or the command perfdojo-sdk
subprocess.run([*dojo, "build-library", "--kernels", "product.dojo", "-o", "build/packed"], check=True)

draw = np.random.default_rng(0)
w = draw.integers(-8, 8, (64, 128))
v = w.ravel()
held = (v[::2] & 15 | (v[1::2] & 15) << 4).astype(np.uint8)  # the first of each two in the lowest bits
x = draw.standard_normal(128, dtype=np.float32)

library = perfdojo_sdk.load_library("build/packed")
y = library.product(held, x)
print(f"{held.nbytes} bytes hold {w.size} weights")
print("largest difference from NumPy:", np.abs(y - w @ x).max())
