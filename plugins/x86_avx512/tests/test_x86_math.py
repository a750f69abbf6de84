"""exp, max and min on every kind of input."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from perfdojo_x86_avx512.codegen import MATH_ACCURACY
from x86_support import PLUGIN, capabilities, needs

from perfdojo_sdk.codegen.c import support_text
from perfdojo_sdk.codegen.vector import VECTOR_SUPPORT

TARGETS = ["x86_avx512", "x86_avx2"]


@dataclass(frozen=True)
class ExpError:
    library: ctypes.CDLL
    bound: float
    """The bound that the target promises, in ulp."""

    def worst(self, begin: int, end: int, step: int) -> tuple[float, float]:
        """Largest errors in ulp, of the vector and of the scalar function."""
        errors, where = (ctypes.c_double * 2)(), (ctypes.c_uint32 * 2)()
        sweep = [ctypes.c_uint64(n) for n in (begin, end, step)]
        self.library.exp_error(*sweep, errors, where)
        return errors[0], errors[1]


@pytest.fixture(params=TARGETS, scope="module")
def exp_error(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ExpError:
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
    return ExpError(ctypes.CDLL(str(tmp_path / "exp.so")), MATH_ACCURACY[request.param]["exp"])


def bits(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def test_exp_over_all_inputs_strided(exp_error: ExpError) -> None:
    assert max(exp_error.worst(0, 1 << 32, 4099)) <= exp_error.bound <= 2.0


@pytest.mark.parametrize(
    "centre",
    [0.0, -0.0, 87.0, -87.0, 88.722839, -87.336548, -103.97208, -104.0, 89.0, float("inf"), float("-inf")],
)
def test_exp_around_its_edges(exp_error: ExpError, centre: float) -> None:
    at = bits(centre)
    assert max(exp_error.worst(max(at - 20000, 0), min(at + 20000, 1 << 32), 1)) <= exp_error.bound


def test_exp_where_the_exponent_of_the_result_changes(exp_error: ExpError) -> None:
    for exponent in range(-149, 128):
        for boundary in (exponent * 0.6931471805599453, (exponent + 0.5) * 0.6931471805599453):
            at = bits(boundary)
            assert max(exp_error.worst(max(at - 40, 0), at + 40, 1)) <= exp_error.bound


def test_exp_of_denormals(exp_error: ExpError) -> None:
    assert max(exp_error.worst(0, 0x00800000, 997)) <= 0.51  # exp is 1 up to rounding


def test_exp_error_would_be_noticed(exp_error: ExpError) -> None:
    """The measure is not blind: it sees the rounding that every implementation has."""
    assert min(exp_error.worst(bits(0.5), bits(2.0), 1009)) > 0.4
