"""Copies that transpose in registers: the text for all instruction sets, on whatever processor this is."""

from __future__ import annotations

import numpy as np
import pytest

from perfdojo_sdk.codegen.vector import VECTOR_SUPPORT, support_text
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner

#: Rows and columns: whole squares of any register, in more than one block, and rests of every kind.
SIZES = ((130, 75), (5, 3), (65, 64))

#: Bits of an element and rows of a group.
GROUPS = ((8, 4), (16, 2))


@pytest.mark.parametrize("register", [16, 32, 64])
def test_registers_of_any_width_turn_columns_into_rows(register: int) -> None:
    """Every byte is written that should be, and no other."""
    lines, meant, content = [], list[bytes](), np.random.default_rng(3).integers(1, 256, 1 << 18, np.uint8)
    at = 0
    for bits in (8, 16, 32, 64):
        cells = content.view(f"u{bits // 8}")
        for rows, columns in SIZES:
            step, to_step = rows + 2, columns + 1
            lines.append(f"pd_transpose_{bits}(x, {step}, y + {at}, {to_step}, {rows}, {columns});")
            made = np.zeros((rows, to_step), cells.dtype)
            made[:, :columns] = cells[: columns * step].reshape(columns, step)[:, :rows].T
            meant.append(made.tobytes())
            at += made.nbytes
    for bits, rows in GROUPS:
        cells = content.view(f"u{bits // 8}")
        for count in (64, 8, 5, 21):
            lines.append(f"pd_interleave_{bits}(x, {count + 3}, y + {at}, {count});")
            made = np.ascontiguousarray(cells[: rows * (count + 3)].reshape(rows, -1)[:, :count].T)
            meant.append(made.tobytes() + bytes(8))
            at += made.nbytes + 8
    code = "\n".join([
        '#include "pd_runtime.h"', '#include "pd_scalar.h"', f"#define PD_VECTOR_BYTES {register}",
        '#include "pd_transpose.h"',
        "size_t pd_k_workspace_bytes(int threads) { (void)threads; return 0; }",
        "int pd_k(const uint8_t *x, uint8_t *y, void *workspace, size_t bytes, int threads)",
        "{ (void)workspace, (void)bytes, (void)threads;",
        f"__builtin_memset(y, 0, {at});", *lines, "return 0; }",
    ])  # fmt: skip
    support = {name: support_text(name) for name in VECTOR_SUPPORT}
    spec = ArraySpec("x", content.shape, "u8"), ArraySpec("y", (at,), "u8")
    runner = NativeRunner(("-O1", "-Wno-psabi"))
    artifact = runner.compile(KernelSource("pd_k", spec[:1], spec[1:], code, support=support))
    assert isinstance(artifact, Artifact), artifact
    run = runner.run(artifact, RunRequest(inputs={"x": content}))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    assert run.outputs["y"].tobytes() == b"".join(meant)
