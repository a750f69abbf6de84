"""Every kernel of the library passes the emulation: at a reduced shape, and at awkward ones."""

from __future__ import annotations

from functools import cache

from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.emulated import Emulated

TABLE3 = (
    "add batchnorm1 batchnorm2 bmm conv1 conv2 layernorm1 layernorm2 matmul mul reducemean relu relu_ffn "
    "rmsnorm softmax swiglu"
)


@cache
def emulated() -> Emulated:
    plugins = load_plugins(targets=["hip_mi300a"])
    return Emulated(plugins, plugins.target("hip_mi300a"))


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
