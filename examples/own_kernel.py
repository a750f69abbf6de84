"""A kernel as a text, which becomes a library: played, verified, measured, and called."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import perfdojo_sdk

Path("distances.dojo").write_text("""\
kernel distances(x, c) -> y
x f32 [64,32] heap
c f32 [64,32] heap
y f32 [64,64] heap

64 64
| y[{0},{1}] = 0
| 32 y[{0},{1}] += (x[{0},{2}] - c[{1},{2}]) * (x[{0},{2}] - c[{1},{2}])
""")
dojo = [sys.executable, "-m", "perfdojo_sdk.cli"]  # or the command perfdojo-sdk
subprocess.run([*dojo, "build-library", "--kernels", "distances.dojo", "-o", "build/own"], check=True)

library = perfdojo_sdk.load_library("build/own")
draw = np.random.default_rng(0)
x, c = (draw.standard_normal((64, 32), dtype=np.float32) for _ in range(2))
y = library.distances(x, c)
print("largest difference from NumPy:", np.abs(y - ((x[:, None] - c) ** 2).sum(-1)).max())
[kernel] = library.manifest.kernels
print(f"{kernel.speed_up:.1f} times as fast as the text itself; verified: {kernel.verification.passed}")
