"""The SDK's own experts on targets that lack what others have, or call it otherwise."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from perfdojo_sdk.builtin import perfdojo_operators
from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu import heuristic
from perfdojo_sdk.hookspecs.types import CacheLevel, Capabilities, Target
from perfdojo_sdk.search.passes import greedy, naive
from perfdojo_sdk.testing.programs import random_program

REGISTERS = {"doc": "registers", "shared": False, "constant_subscripts": True, "max_bytes": 512}
SMALL, LARGE = CacheLevel(bytes=2048, read_gbs=400), CacheLevel(bytes=1 << 20, read_gbs=200)

#: A usual target,
USUAL: dict[str, Any] = {
    "name": "made",
    "description": "",
    "suffixes": ("u", "t", "p", "v"),
    "extra_locations": {"reg": REGISTERS},
    "lanes": {"f32": 8},
    "vector_registers": 16,
    "max_unroll": 32,
    "caches": {"L1": SMALL, "L2": LARGE},
}
#: and in what others differ from it.
OTHERS: dict[str, dict[str, Any]] = {
    "no threads": {"suffixes": ("u", "v")},
    "no vectors": {"suffixes": ("u", "p")},
    "nothing written out": {"suffixes": ("p", "v")},
    "no suffixes": {"suffixes": ()},
    "no registers": {"extra_locations": {}},
    "no stack": {"locations": ("heap",)},
    "other caches": {"caches": {"near": SMALL, "far": LARGE}},
    "one cache": {"caches": {"L1": SMALL}},
    "no caches": {"caches": {}},
    "a cache of one number": {"caches": {"L1": CacheLevel(bytes=4, read_gbs=1)}},
    "other words": {
        "suffixes": (),
        "extra_suffixes": {
            "thr": {"doc": "threads", "order": "parallel"},
            "vec": {"doc": "vectors", "order": "lockstep"},
            "copies": {"doc": "written out", "order": "sequential", "unrolled": True},
        },
        "extra_locations": {"file": REGISTERS},
    },
}


#: Every way in which a value passes between memory and registers,
WAYS: dict[str, dict[str, Any]] = {
    "reg": REGISTERS,
    "ahead": {**REGISTERS, "fetch_ahead": True},
    "soon": {**REGISTERS, "lead_bytes": 2048},
    "soon_l2": {**REGISTERS, "lead_bytes": 2048, "second_cache": True},
    "claim": {**REGISTERS, "lead_bytes": 2048, "copy_out_only": True},
    "nt": {**REGISTERS, "copy_out_only": True, "past_caches": True},
}
#: and what another target calls them.
WORDS = {"reg": "bank", "ahead": "l1", "soon": "l2", "soon_l2": "reg_file", "claim": "l3", "nt": "out"}

#: A filter that is worth its sums, and a kernel without loops.
FILTER = """
kernel filter(x, f) -> y
x f32 [1,10,10,64] heap
f f32 [3,3,64,64] heap
y f32 [1,8,8,64] heap

1 8 8 64
| y[{0},{1},{2},{3}] = 0
| 3 3 64 y[{0},{1},{2},{3}] += x[{0},{1}+{4},{2}+{5},{6}] * f[{4},{5},{6},{3}]
"""
ONE_NUMBER = "kernel one(x) -> y\nx f32 [] heap\ny f32 [] heap\n\ny[] = x[] * 2"


def target(**changes: Any) -> Target:
    capabilities = Capabilities.model_validate({**USUAL, **changes})
    return Target("made", capabilities, capabilities.dialect(), "made")


def programs() -> list[Program]:
    operators = {operator.name: operator for operator in perfdojo_operators()}
    sizes = {"softmax": (4, 600), "layernorm": (3, 1000), "matmul": (8, 24, 16), "reducemean": (2, 2048)}
    built = [parse(operators[name].build(*size)) for name, size in sizes.items()]
    return [*built, parse(ONE_NUMBER), *(random_program(Random(seed)) for seed in range(4))]


def suffixes(traces: tuple[Trace, ...]) -> set[str]:
    nodes = [node for trace in traces for node in trace.program.body if isinstance(node, Scope)]
    return {suffix for node in nodes for suffix in node.suffixes} - {""}


@pytest.mark.parametrize("other", OTHERS)
def test_the_experts_use_what_there_is(other: str) -> None:
    made = target(**OTHERS[other])
    rules = Rules(made.dialect, GENERIC)
    for program in programs():
        games = (*heuristic(program, rules, made), naive(program, rules), greedy(program, rules))
        assert all(game.root == program for game in games)
        assert suffixes(games) <= made.dialect.suffixes.keys()


def test_what_is_called_otherwise_is_used_all_the_same() -> None:
    """The same games, in other words."""
    usual, other = target(), target(**OTHERS["other words"])
    [matmul] = [program for program in programs() if program.name == "matmul"]
    found = {}
    for made in (usual, other):
        games = heuristic(matmul, Rules(made.dialect, GENERIC), made)
        locations = {b.location for game in games for b in game.program.buffers}
        found[made is usual] = (len(games), suffixes(games), locations)
    assert found[True][0] == found[False][0]
    words = {"p": "thr", "v": "vec", "u": "copies", "reg": "file", "heap": "heap", "stack": "stack"}
    for k in (1, 2):
        assert {words[word] for word in found[True][k]} == found[False][k]  # type: ignore[attr-defined, index]


def test_copies_of_the_sums_of_a_filter_are_none_of_its_outputs() -> None:
    """Accumulators may start as copies if no cache is known; the expert took these for outputs."""
    made, root = target(**OTHERS["no caches"]), parse(FILTER)
    games = heuristic(root, Rules(made.dialect, GENERIC), made)
    assert any(step.move.transformation == "minimal_filter" for game in games for step in game.steps)


def test_a_target_without_the_memory_of_callers_is_told_so() -> None:
    with pytest.raises(ValidationError, match="locations lack heap"):
        target(locations=("stack",))


def test_names_and_order_of_locations_and_caches_say_nothing() -> None:
    """The same games on a target that calls all of them otherwise, and names them in another order."""
    tiny = CacheLevel(bytes=1024, read_gbs=400)
    usual = target(extra_locations=WAYS, caches={"L1": tiny, "L2": SMALL})
    renamed = {WORDS[name]: WAYS[name] for name in reversed(WAYS)}
    other = target(extra_locations=renamed, caches={"L1": SMALL, "reg": tiny})
    played = set[str]()
    for root in [*programs()[:4], parse(FILTER)]:
        one, two = (heuristic(root, Rules(t.dialect, GENERIC), t) for t in (usual, other))
        texts = [[move.text for move in trace.moves] for trace in one]
        played |= {name for moves in texts for move in moves for name in WAYS if f"location={name})" in move}
        for name, word in WORDS.items():
            texts = [[m.replace(f"location={name})", f"location={word})") for m in moves] for moves in texts]
        assert texts == [[move.text for move in trace.moves] for trace in two]
    assert played == set(WAYS), "each way is worth it somewhere"
