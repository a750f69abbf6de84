"""exp, max and min on every kind of input."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import pytest
from perfdojo_x86_avx512.codegen import MATH_ACCURACY
from x86_support import PLUGIN, capabilities, needs

from perfdojo_sdk.codegen.c import support_text
from perfdojo_sdk.codegen.vector import VECTOR_SUPPORT

TARGETS = ["x86_avx512", "x86_avx2"]


@pytest.fixture(params=TARGETS, scope="module")
def exp_error(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    needs(request.param)
    tmp_path = tmp_path_factory.mktemp(request.param)
    header = capabilities(request.param).options["vector_header"]
    (tmp_path / header).write_text((PLUGIN / "include" / header).read_text())
    for name in VECTOR_SUPPORT:
        (tmp_path / name).write_text(support_text(name))
    source = Path(__file__).parent / "exp_error.c"
    command = ["gcc", *capabilities(request.param).compiler_flags, f'-DHEADER="{header}"', f"-I{tmp_path}"]
    command += ["-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", "-o", "exp.so"]
    command += [str(source), "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    return ctypes.CDLL(str(tmp_path / "exp.so"))


def worst(library: ctypes.CDLL, begin: int, end: int, step: int) -> tuple[float, float]:
    """Largest errors in ulp, of the vector and of the scalar function."""
    errors, where = (ctypes.c_double * 2)(), (ctypes.c_uint32 * 2)()
    sweep = [ctypes.c_uint64(n) for n in (begin, end, step)]
    library.exp_error(*sweep, errors, where)
    return errors[0], errors[1]


def bits(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def test_exp_over_all_inputs_strided(exp_error: ctypes.CDLL) -> None:
    assert max(worst(exp_error, 0, 1 << 32, 4099)) <= MATH_ACCURACY["exp"] <= 2.0


@pytest.mark.parametrize(
    "centre", [0.0, -0.0, 88.722839, -87.336548, -103.97208, -104.0, 89.0, float("inf"), float("-inf")]
)
def test_exp_around_its_edges(exp_error: ctypes.CDLL, centre: float) -> None:
    at = bits(centre)
    assert max(worst(exp_error, max(at - 20000, 0), min(at + 20000, 1 << 32), 1)) <= MATH_ACCURACY["exp"]


def test_exp_where_the_exponent_of_the_result_changes(exp_error: ctypes.CDLL) -> None:
    for exponent in range(-149, 128):
        for boundary in (exponent * 0.6931471805599453, (exponent + 0.5) * 0.6931471805599453):
            at = bits(boundary)
            assert max(worst(exp_error, max(at - 40, 0), at + 40, 1)) <= MATH_ACCURACY["exp"]


def test_exp_of_denormals(exp_error: ctypes.CDLL) -> None:
    assert max(worst(exp_error, 0, 0x00800000, 997)) <= 0.51  # exp is 1 up to rounding


def test_exp_error_would_be_noticed(exp_error: ctypes.CDLL) -> None:
    """The measure is not blind: it sees the rounding that every implementation has."""
    assert min(worst(exp_error, bits(0.5), bits(2.0), 1009)) > 0.4
