"""A target file that calls every location and every cache otherwise: the same code, and it builds."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from perfdojo_x86_avx512 import perfdojo_doctor_probes
from perfdojo_x86_avx512.codegen import MATH_ACCURACY, X86CodeGenerator
from x86_support import capabilities

from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu import heuristic
from perfdojo_sdk.hookspecs import API_VERSION, hookimpl
from perfdojo_sdk.hookspecs.types import Capabilities, Target
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import Plugins, load_plugins

#: Location -> its name in the other file; some of these names mean something else in other places.
WORDS = {"reg": "bank", "ahead": "l1", "soon": "l2", "soon_l2": "regs", "claim": "l3", "nt": "out"}
#: Caches so small that ordinary kernels are beyond them, and values pass in every way.
CACHES = {"L1": {"bytes": 1024, "read_gbs": 400}, "L2": {"bytes": 2048, "read_gbs": 200}}
KERNELS = "softmax[8,600] add[64,64] layernorm[6,500] matmul[16,32,24]"


def made(of: str, **changes: Any) -> Target:
    found = Capabilities.model_validate({**capabilities(of).model_dump(), "caches": CACHES, **changes})
    return Target(found.name, found, found.dialect(), "made")


def renamed(of: str, **changes: Any) -> Target:
    places = capabilities(of).model_dump()["extra_locations"]
    assert places.keys() == WORDS.keys(), "the test knows them all"
    places = {WORDS[place]: places[place] for place in reversed(places)}
    caches = {"reg": CACHES["L2"], "nt": CACHES["L1"]}
    return made(of, extra_locations=places, caches=caches, **changes)


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins(targets=[])


def code(target: Target, plugins: Plugins) -> list[str]:
    """The C of every game, without its comments."""
    texts = []
    for kernel in select(KERNELS, plugins.operators, target.dialect):
        for trace in heuristic(kernel.program, Rules(target.dialect, GENERIC), target):
            source = X86CodeGenerator(target.capabilities).generate(trace.program, "pd_kernel")
            texts.append(re.sub(r"/\*.*?\*/", "", source.code, flags=re.DOTALL))
    return texts


@pytest.mark.parametrize("name", ["x86_avx2", "x86_avx512"])
def test_the_code_is_the_same(name: str, plugins: Plugins) -> None:
    usual, other = (code(target, plugins) for target in (made(name), renamed(name)))
    assert usual == other and len(usual) > 4
    assert any("stream" in text for text in usual) and any("prefetch" in text for text in usual)


def test_a_library_is_built(tmp_path: Path) -> None:
    target = renamed("x86_avx2", name="others")
    hooks = {
        "targets": lambda: [target],
        "code_generator": lambda target: X86CodeGenerator(target.capabilities),
        "runner": lambda target: NativeRunner(target.capabilities.compiler_flags),
        "heuristic_pass": lambda target: heuristic,
        "math_accuracy": lambda target: MATH_ACCURACY["x86_avx2"],
    }
    marked = {f"perfdojo_{name}": hookimpl(hook) for name, hook in hooks.items()}
    plugin = SimpleNamespace(__name__="others", PERFDOJO_API=API_VERSION, **marked)
    x86 = made("x86_avx2")
    if any(probe.required and not probe.ok for probe in perfdojo_doctor_probes(x86)):
        pytest.skip("needs AVX2 and a compiler")
    loaded = load_plugins(extra=[plugin], targets=["others"])
    kernels = select("softmax[8,600] add[64,64]", loaded.operators, target.dialect)
    settings = Settings(threads=1, budget_s=0.02)
    result = build_library(loaded, loaded.target("others"), kernels, tmp_path / "library", settings)
    assert result.failed == () and result.manifest
    assert all(entry.verification.passed for entry in result.manifest.kernels)
    played = " ".join(str(move) for entry in result.manifest.kernels for move in entry.moves)
    assert WORDS["reg"] in played
