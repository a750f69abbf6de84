"""The benchmark of random programs: its programs are of the language, and its summary counts as it says."""

from __future__ import annotations

import math

import pytest

from benchmarks.cliff.programs import FAMILIES, case
from benchmarks.cliffs import causes, summary, text


def test_a_seed_is_a_program_of_the_language() -> None:
    made = [case(seed) for seed in range(120)]
    assert {each.family for each in made} == set(FAMILIES)
    for each in made:
        program = each.program
        assert program.inputs == tuple(each.inputs) and program.outputs == tuple(each.outputs)
    assert len({each.text for each in made}) > 100
    assert case(7).text == case(7).text


def test_every_peer_is_a_function_of_the_inputs() -> None:
    torch = pytest.importorskip("torch")
    for seed in range(24):
        made = case(seed)
        inputs = {name: torch.ones(shape) for name, shape in made.inputs.items()}
        if sum(tensor.numel() for tensor in inputs.values()) < 100_000:
            found = made.function(torch.nn.functional, **inputs)
            assert tuple(found.shape) == next(iter(made.outputs.values())), made.text


def test_the_summary_names_the_worst() -> None:
    ratios = (9.0, 1.0, 0.7, 0.4, 2.0)
    rows = [
        {
            "seed": k,
            "family": "f",
            "ratio": r,
            "left": [],
            "program": "",
            "ours_ms": 1.0,
            "least_ms": 0.25,
            "eager_ms": r,
        }
        for k, r in enumerate(ratios)
    ]
    found = summary([*rows, {"seed": 9, "family": "f", "program": "", "problem": "it crashed"}])
    assert found["geometric_mean"] == pytest.approx(math.prod((4.0, 1.0, 0.7, 0.4, 2.0)) ** 0.2)
    assert (
        found["share_nearly"] == pytest.approx(3 / 5) and found["below"] == [3] and found["problems"] == [9]
    )
    assert [row["seed"] for row in found["worst"]] == [3, 2, 1]
    assert "5 programs: geometric mean 1.18" in text(rows, summary(rows))


def test_the_worst_have_a_cause() -> None:
    row = {"left": [], "ours_ms": 3.0, "least_ms": 0.5}
    (found,) = causes(row)
    assert found.startswith("no nest was left; 6.0 times the least time by the model, 0.5000 ms")
    assert causes({**row, "left": ["s0: left as it is: no loop gives lanes"]}) == [
        "s0: left as it is: no loop gives lanes"
    ]
