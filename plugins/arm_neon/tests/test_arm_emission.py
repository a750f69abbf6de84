"""The emitted C: golden texts, the definitions of the header, and both cross compilers accept it."""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from shutil import which

import numpy as np
import pytest
from arm_support import GENERATOR, RUNNER, SVE, both_targets, compiled, needs_compiler, run, source
from perfdojo_arm_neon import crosstools
from perfdojo_arm_neon.runner import ArmRunner

from perfdojo_sdk.hookspecs.types import Artifact, Target

SMALL = {
    "tail": "kernel tail(x) -> y\nx f32 [3,7] heap\ny f32 [3,7] heap\n\n"
    "3 4:v y[{0},{1}] = max(x[{0},{1}], 0) + {1}\n3 3:v y[{0},{1}+4] = max(x[{0},{1}+4], 0) + {1}\n",
    "tile": """kernel tile(a, b) -> c
a f32 [2,8] heap
b f32 [8,8] heap
c f32 [2,8] heap
acc f32 [2,2,4] reg

2:u 2:u 4:v acc[{0},{1},{2}] = 0
8 2:u 2:u 4:v acc[{1},{2},{3}] += a[{1},{0}] * b[{0},{2}*4+{3}]
2:u 2:u 4:v c[{0},{1}*4+{2}] = acc[{0},{1},{2}]
""",
    "windows": """kernel windows(x) -> y
x f32 [8,16] heap
x_r f32 [8:N,4:N,4] ahead
y f32 [8,16] heap

8
| 4:u
| | 4:v x_r[{0},{1},{2}] = x[{0},{1}*4+{2}]
| | 4:v y[{0},{1}*4+{2}] = exp(x_r[{0},{1},{2}])
""",
}


@pytest.mark.parametrize("name", SMALL)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.c", source(SMALL[name], f"pd_{name}").code)


def test_golden_with_sve(golden: Callable[[str, str], None]) -> None:
    golden("tail_sve.c", source(SMALL["tail"], "pd_tail", SVE).code)


def test_generation_is_pure_and_pickles() -> None:
    assert pickle.loads(pickle.dumps(GENERATOR)) == GENERATOR
    assert pickle.loads(pickle.dumps(RUNNER)) == RUNNER
    assert source(SMALL["tile"]) == source(SMALL["tile"])


@both_targets
def test_the_headers_have_all_that_the_shared_one_asks_for(target: Target) -> None:
    """``pd_vector.h`` lists what the header of an instruction set defines."""
    made = source(SMALL["tile"], target=target)
    support, header = made.support, re.findall(r'#include "(.*)"', made.code)[-1]
    needed = support["pd_vector.h"].partition("#ifndef")[0].partition("It may define")[0]
    asked = re.findall(r"(pd_\w+_f32v|pd_stream_fence)\(?", needed)
    assert len(set(asked)) > 12
    for name in set(asked):
        assert re.search(rf"\b{name}\(", support[header] + support["pd_arm.h"]), name


@needs_compiler
@both_targets
def test_tails_touch_no_other_memory(target: Target) -> None:
    """Guard zones around arrays of 1, 2 and 3 elements: a vector's load or store would reach into them."""
    for count in (1, 2, 3):
        arrays = "".join(f"{name} f32 [{count}] heap\n" for name in "xy")
        artifact = compiled(f"kernel t(x) -> y\n{arrays}\n{count}:v y[{{0}}] = x[{{0}}] * 2\n", target=target)
        x = np.arange(1, count + 1, dtype=np.float32)
        np.testing.assert_array_equal(run(artifact, x=x).outputs["y"], 2 * x)


@both_targets
@pytest.mark.parametrize("compiler", ["gnu", "zig"])
def test_both_compilers_take_the_code(compiler: str, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec("ziglang")
    if compiler == "zig" and (found is None or found.origin is None):
        pytest.skip("needs the ziglang wheel")
    if compiler == "gnu" and which(crosstools.GNU) is None:
        pytest.skip(f"needs {crosstools.GNU}")
    command = [crosstools.GNU] if compiler == "gnu" else crosstools.zig_command(Path(found.origin).parent)
    monkeypatch.setenv(crosstools.COMPILER_VARIABLE, " ".join([*command, "-Wall", "-Wextra", "-Werror"]))
    runner = ArmRunner(target.capabilities)
    # Often enough that headers which GCC parses beforehand are among them.
    for name in ("tile", "tail", "tile", "tile") if compiler == "gnu" else ("tile",):
        made = runner.compile(source(SMALL[name], target=target))
        assert isinstance(made, Artifact), made
        assert ("zig" in made.toolchain) == (compiler == "zig")
