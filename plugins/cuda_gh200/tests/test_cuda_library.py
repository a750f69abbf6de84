"""Every kernel of the library passes the emulation: at a reduced shape, and at awkward ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import pytest

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import CodeGenerator, KernelSource
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.emulated import Emulated
from perfdojo_sdk.testing.kernel_checks import Case

TABLE3 = (
    "add batchnorm1 batchnorm2 bmm conv1 conv2 layernorm1 layernorm2 matmul mul reducemean relu relu_ffn "
    "rmsnorm softmax swiglu"
)


@cache
def emulated() -> Emulated:
    plugins = load_plugins(targets=["cuda_gh200"])
    return Emulated(plugins, plugins.target("cuda_gh200"))


def test_every_kernel_of_table_3_holds_under_watch() -> None:
    """The library's own games, each shrunk with its tiles; a missing operator fails."""
    cases = emulated().library()
    assert {case.name for case in cases} >= set(TABLE3.split())
    assert all(case.game.steps for case in cases), "an expert plays something on each of them"
    assert not list(emulated().problems(cases))


def test_every_operator_holds_at_awkward_shapes() -> None:
    cases = emulated().awkward(3)
    assert {case.game.root.name for case in cases} >= set(emulated().operators)
    assert not list(emulated().problems_together(cases))


@dataclass(frozen=True)
class Without:
    """A generator that forgets some words."""

    generator: CodeGenerator
    words: str

    def generate(self, program: Program, symbol: str) -> KernelSource:
        source = self.generator.generate(program, symbol)
        assert self.words in source.code
        return replace(source, code=source.code.replace(self.words, ""))


@pytest.mark.parametrize("together", [False, True])
def test_a_forgotten_barrier_is_noticed(together: bool) -> None:
    plugins = load_plugins(targets=["cuda_gh200"])
    emulated = Emulated(plugins, plugins.target("cuda_gh200"))
    [kernel] = select("matmul[32,32,32]", plugins.operators, emulated.rules.dialect)
    game, *_ = emulated.expert(kernel.program, emulated.rules, emulated.target)
    emulated.generator = Without(emulated.generator, "pd_sync_block();")
    look = emulated.problems_together if together else emulated.problems
    [problem] = look([Case("matmul", game)])
    assert "nobody wrote" in problem or "data race" in problem
