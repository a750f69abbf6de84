"""SVE as an option of the target file: another header, masks in place of parts, the same results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from arm_support import (
    PLUGINS,
    RUNNER,
    SVE,
    TARGET,
    compiled,
    failure,
    kernel,
    loaded,
    needs_compiler,
    played,
    run,
    source,
)
from perfdojo_arm_neon import at_home
from perfdojo_arm_neon.codegen import HEADERS
from perfdojo_arm_neon.emulator.machine import Machine
from perfdojo_arm_neon.estimate.sve import is_sve

from perfdojo_sdk.cluster.offers import offer_of_this_machine
from perfdojo_sdk.hookspecs.types import Artifact, RunRequest

#: The operators of the paper's Table 3, where sizes leave tails.
OPERATORS = (
    "softmax[5,39]", "layernorm[3,41]", "rmsnorm[3,38]", "batchnorm[2,3,5,7]", "add[7,21]", "mul[6,35]",
    "relu[7,21]", "relu_ffn[2,3,5,7]", "reducemean[5,37]", "matmul[13,11,17]", "bmm[2,9,11,13]",
    "conv2d[2,3,11,11,5,3]", "swiglu[5,11,18]",
)  # fmt: skip

EXP = "kernel f(x) -> y\nx f32 [2500,4] heap\ny f32 [2500,4] heap\n\n2500 4:v y[{0},{1}] = exp(x[{0},{1}])\n"


def test_the_target_file_says_only_what_is_different() -> None:
    neon, sve = TARGET.capabilities, SVE.capabilities
    different = {name for name in type(sve).model_fields if getattr(sve, name) != getattr(neon, name)}
    assert different == {"name", "description", "rank", "cpu_flags", "compiler_flags", "options"}
    assert sve.options == {**neon.options, "vectors": "sve", "vector_bits": 128}
    assert {neon.options["vectors"], sve.options["vectors"]} == HEADERS.keys()
    assert SVE.dialect == TARGET.dialect, "the same games are played"


@needs_compiler
def test_a_tail_is_one_masked_access() -> None:
    """A tail of three floats; NEON needs two instructions, for a pair and a single one."""
    text = "kernel t(x) -> y\nx f32 [3] heap\ny f32 [3] heap\n\n3:v y[{0}] = x[{0}] * 2\n"
    code = compiled(text, target=SVE)
    words = np.frombuffer(code.content[: len(code.content) // 4 * 4], np.uint32)
    masked = [int(w) for w in words if int(w) & 0xFFE0E000 in (0xA540A000, 0xE540E000)]
    assert len(masked) == 2 and all(map(is_sve, masked))


@needs_compiler
@pytest.mark.parametrize("selection", OPERATORS)
def test_operators_with_tails_agree_with_neon(selection: str) -> None:
    """One emulated core gives equal results with both instruction sets; sums may be contracted
    differently."""
    rng = np.random.default_rng(3)
    inputs = {s.name: rng.uniform(-1, 1, s.shape).astype(np.float32) for s in kernel(selection).inputs}
    programs = ((played(selection, target).program, target) for target in (TARGET, SVE))
    neon, sve = (run(compiled(program, target=target), **inputs).outputs for program, target in programs)
    assert neon is not None and sve is not None
    for name, expected in neon.items():
        np.testing.assert_allclose(sve[name], expected, rtol=2e-5, atol=2e-6)


@needs_compiler
def test_exp_gives_the_bits_that_it_gives_with_neon() -> None:
    """So the stated accuracy holds for both; results that are denormal and special cases are among them."""
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30, 88.7, 88.8, -87.4, -103.9, -104.1]
    drawn = np.random.default_rng(11).uniform(-105, 90, 10000 - len(special))
    x = np.array([*special, *drawn], np.float32).reshape(2500, 4)
    neon, sve = (run(compiled(EXP, target=target), x=x).outputs for target in (TARGET, SVE))
    assert neon is not None and sve is not None
    np.testing.assert_array_equal(neon["y"], sve["y"])


@needs_compiler
def test_longer_vectors_are_refused_before_anything_is_written() -> None:
    text = "kernel k(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4:v y[{0}] = x[{0}] + 1\n"
    for length, status, expected in ((0, 0, 2.0), (1, 2, 0.0)):
        machine = Machine(loaded(text, SVE))
        machine.set_vector_length(1 + length)
        x, y = machine.allocate(np.ones(4, np.float32).tobytes()), machine.reserve(16)
        assert machine.call("pd_test", [x, y, 0, 0, 1]) & 0xFFFFFFFF == status
        found = np.frombuffer(machine.uc.mem_read(y, 16), np.float32)
        assert (found == expected).all()


#: As long as the processor's vectors are, whatever the compiler knows.
WHOLE = 'svfloat32_t w = v; __asm__ volatile("str %0, [%1]" : : "w"(w), "r"(p) : "memory");'
BEYOND = (
    "#define PD_ALL",
    "PD_INLINE int pd_beyond(void)\n{\n    uint64_t bytes;\n"
    '    __asm__("rdvl %0, #1" : "=r"(bytes));\n    return bytes > 16;\n}\n#define PD_ALL',
)
NOT_ASKED = ("return bytes != sizeof(pd_f32v);", "return 0;")
LONGER_TAKEN = ("return bytes != sizeof(pd_f32v);", "return bytes < sizeof(pd_f32v);")
#: Code that the compiler makes of a kernel which knows nothing of SVE may be for any length.
ANY_SVE = ("return (features >> 32 & 15) != 0;", "return 1;")


@needs_compiler
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], ""),
        ([ANY_SVE, NOT_ASKED], ""),
        ([("PD_OTHER_VECTORS = 2", "PD_OTHER_VECTORS = 7")], "have 256 bits, the kernel returned 7"),
        ([NOT_ASKED], "have 256 bits, the kernel returned 0 and wrote results"),
        ([LONGER_TAKEN], "have 256 bits, the kernel returned 0 and wrote results"),
        ([ANY_SVE, NOT_ASKED, ("__builtin_memcpy(p, &v, sizeof v);", WHOLE)], "after y"),
        ([ANY_SVE, NOT_ASKED, ("svdup_n_f32(x)", "svdup_n_f32(x + pd_beyond())"), BEYOND], "are longer"),
    ],
)
def test_a_kernel_that_takes_longer_vectors_for_its_own_is_refused(
    changes: list[tuple[str, str]], words: str
) -> None:
    text = "kernel k(x) -> y\nx f32 [12] heap\ny f32 [12] heap\n\n3 4:v y[{0}*4+{1}] = x[{0}*4+{1}] + 1\n"
    right = source(text, target=SVE)
    header = right.support["pd_sve.h"]
    for old, new in changes:
        assert header.count(old) == 1
        header = header.replace(old, new)
    planted = replace(right, support={**right.support, "pd_sve.h": header})
    artifact = PLUGINS.runner(SVE).compile(planted)
    assert isinstance(artifact, Artifact)
    if words:
        found = failure(artifact)
        assert found.reason == "wrong_result" and words in found.detail, found
    else:
        run(artifact, x=np.ones(12, np.float32))


@needs_compiler
@pytest.mark.skipif(at_home(TARGET), reason="on this processor times are measured")
def test_a_worker_that_emulates_offers_both_on_one_device() -> None:
    """As resources of Ray; the device's name keeps such times from measured ones."""
    offer, missing = offer_of_this_machine(PLUGINS, ["arm_neon", "arm_sve"])
    [device] = offer.devices
    assert not missing and "estimated" in device
    assert offer.runs == {("arm_neon", device), ("arm_sve", device)}


@needs_compiler
def test_times_are_estimated_for_the_same_core_and_kept_apart() -> None:
    """Exponentials gain, since one instruction scales by a power of two; the toolchain's words differ."""
    found = {}
    for target in (TARGET, SVE):
        artifact = compiled(played("softmax[16,64]", target).program, target=target)
        runner = PLUGINS.runner(target)
        found[target.name] = runner.run(artifact, RunRequest(repeats=1, want_outputs=False, timeout_s=60))
        assert ("+sve" in artifact.toolchain) == (target is SVE)
        assert runner.device() == RUNNER.device()
    assert found["arm_sve"].provenance == "estimated"
    assert 0.4 * found["arm_neon"].median < found["arm_sve"].median < found["arm_neon"].median
