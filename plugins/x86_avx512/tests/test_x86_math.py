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


GENERIC = r"""
#include "pd_avx2.h"
#include <string.h>

#define SAME(name, scalar) \
    { \
        const pd_f32v got = pd_##name##_f32v(pd_load_f32v(x)); \
        for (int k = 0; k < 8; k++) { \
            const float wanted = scalar(x[k]); \
            wrong += memcmp(&wanted, &((const float *)&got)[k], 4) && !(x[k] != x[k] && got[k] != got[k]); \
        } \
    }

/* Whether lanes are within a limit, and roundings to the sign of a zero, over bit patterns in steps. */
long pd_wrong(uint64_t step)
{
    long wrong = 0;
    for (uint64_t first = 0; first < (uint64_t)1 << 32; first += 8 * step) {
        float x[8];
        int within = 1;
        for (int k = 0; k < 8; k++) {
            const uint32_t bits = (uint32_t)(first + step * (uint64_t)k);
            memcpy(&x[k], &bits, 4);
            within &= __builtin_fabsf(x[k]) <= 1000.0f;
        }
        wrong += within != pd_within_f32v(1000.0f, pd_load_f32v(x));
        SAME(floor, __builtin_floorf) SAME(ceil, __builtin_ceilf)
        SAME(trunc, __builtin_truncf) SAME(round, __builtin_rintf)
    }
    return wrong;
}
"""


@pytest.mark.parametrize("own", [True, False], ids=["instructions", "any instruction set"])
def test_roundings_keep_every_bit(own: bool, tmp_path: Path) -> None:
    """The roundings of the header, and the ones that a header without its own gets."""
    needs("x86_avx2")
    header = (PLUGIN / "include" / "pd_avx2.h").read_text()
    if not own:
        start, end = header.index("#define PD_ROUNDINGS_OWN"), header.index('#include "pd_vector.h"')
        header = header[:start] + header[end:]
        header = header.replace("#define PD_WITHIN_OWN", "#define pd_within_f32v pd_unused_within")
        header = header.replace('#include "pd_vector.h"', '#undef pd_within_f32v\n#include "pd_vector.h"')
        header = header.replace("#define PD_EXP_QUICK_LIMIT 87.0f", "")
    (tmp_path / "pd_avx2.h").write_text(header)
    for name in VECTOR_SUPPORT:
        (tmp_path / name).write_text(support_text(name))
    (tmp_path / "generic.c").write_text(GENERIC)
    command = [
        "gcc",
        *capabilities("x86_avx2").compiler_flags,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fPIC",
        "-shared",
    ]
    subprocess.run([*command, "-o", "g.so", "generic.c", "-lm"], cwd=tmp_path, check=True, timeout=120)
    wrong = ctypes.CDLL(str(tmp_path / "g.so")).pd_wrong
    wrong.restype = ctypes.c_long
    assert wrong(ctypes.c_uint64(997)) == 0
