"""Inputs and outputs without dimensions go wherever arrays go: verify, build, tune, load, call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Outcome

from perfdojo_sdk.library.arrays import ArgumentValueError
from perfdojo_sdk.library.loader import load_library

SCALED = """kernel scaled(x, a) -> y
x f32 [16] heap
a f32 [] heap
y f32 [16] heap

16 y[{0}] = x[{0}] * a[]
"""

TOTAL = """kernel total(b, x) -> y
b i32 [] heap
x f32 [5] heap
y f32 [] heap

y[] = f32(b[])
5 y[] += x[{0}]
"""

ROWS = """kernel rows(a, x) -> y
a f32 [] heap
x f32 [700,512] heap
y f32 [700,512] heap

700 512 y[{0},{1}] = x[{0},{1}] * a[]
"""


@pytest.mark.parametrize("text", [SCALED, TOTAL, ROWS], ids=["input", "output", "many rows"])
def test_a_kernel_with_scalars_is_verified(cli: Callable[..., Outcome], tmp_path: Path, text: str) -> None:
    (tmp_path / "k.dojo").write_text(text)
    verified = cli("verify", "k.dojo", plugins="toy")
    assert verified.code == 0, verified.err


def test_a_library_of_kernels_with_scalars_is_built_tuned_loaded_and_called(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "scaled.dojo").write_text(SCALED)
    (tmp_path / "total.dojo").write_text(TOTAL)
    assert cli("tune", "scaled.dojo", "--budget", "1", "-o", "lib", plugins="toy").code == 0
    built = cli("build-library", "--kernels", "scaled.dojo,total.dojo", "-o", "lib", plugins="toy")
    assert built.code == 0, built.out + built.err
    library = load_library(tmp_path / "lib")
    x = np.arange(16, dtype=np.float32)
    for two in (np.array(2, np.float32), np.float32(2)):
        assert (library.scaled(x, two) == 2 * x).all()
    out = np.empty((), np.float32)
    assert library.total(np.array(3, np.int32), x[:5], out=out) is out and out == 13
    assert library.total(np.array(3, np.int32), x[:5]).shape == ()
    with pytest.raises(ArgumentValueError):
        library.scaled(x, np.ones(1, np.float32))
