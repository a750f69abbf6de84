"""Sharing storage: when two arrays may have one place, and when they can be told apart again."""

from __future__ import annotations

import pytest
from snippets import RULES, move, play, program, refusal
from test_ranges import verified

from perfdojo_sdk.core.transformations.sharing import covered_depth

IN_TURN = {
    "one after the other": "4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]\n4 u[{0}] = x[3-{0}]\n4 z[{0}] = u[{0}]",
    "element-wise in place": "4 t[{0}] = x[{0}]\n4 u[{0}] = exp(t[{0}])\n4 y[{0}] = u[{0}]",
    "in place in lanes": "4 t[{0}] = x[{0}]\n4:v u[{0}] = exp(t[{0}])\n4 y[{0}] = u[{0}]",
    "shifted in lanes": "5 t[{0}] = x[{0}]\n5 u[{0}] = x[{0}]\n4:v u[{0}] = t[{0}+1]\n5 y[{0}] = u[{0}]",
    "in one iteration": "4\n| t[{0}] = x[{0}]\n| u[{0}] = t[{0}] * 2\n| y[{0}] = u[{0}]",
    "in a parallel iteration": "4:p\n| t[{0}] = x[{0}]\n| u[{0}] = t[{0}] * 2\n| y[{0}] = u[{0}]",
    "one statement": "t[0] = x[0]\nu[0] = t[0] + t[0]\ny[0] = u[0]",
}

AT_ONCE = {
    "read after": "4 t[{0}] = x[{0}]\n4 u[{0}] = x[{0}]\n4 y[{0}] = t[{0}] + u[{0}]",
    "reversed": "4 t[{0}] = x[{0}]\n4 u[{0}] = t[3-{0}]\n4 y[{0}] = u[{0}]",
    "a lane late": "5 t[{0}] = x[{0}]\n4 u[{0}+1] = t[{0}]\n4 y[{0}] = u[{0}+1]",
    "both in a statement": "4 t[{0}] = x[{0}]\n4 u[{0}] = 1\n4 t[{0}] += u[{0}]\n4 y[{0}] = t[{0}]",
    "the next iteration": "t[0] = x[0]\n4\n| u[0] = t[0] * {0}\n| y[{0}] = u[0]",
}


@pytest.mark.parametrize("text", [t for k, t in IN_TURN.items() if k != "shifted in lanes"])
def test_arrays_used_in_turn_share(text: str) -> None:
    start = program(text)
    size = start.buffer_of["t"].text.split("[")[1].split("]")[0]
    after, _ = verified(start, "share_storage(t, other=u)")
    assert f"t f32 [{size}] heap -> t, u" in after.text.splitlines()
    apart, _ = verified(after, "unshare_storage(t, array=u)")
    assert set(apart.buffers) == set(start.buffers) and apart.body == start.body


@pytest.mark.parametrize("text", [*AT_ONCE.values(), IN_TURN["shifted in lanes"]])
def test_arrays_used_at_once_do_not(text: str) -> None:
    assert refusal(program(text), "share_storage(t, other=u)") == "PD-T333"


def test_contracted_temporaries_of_one_loop_share() -> None:
    start = program("8\n| t[{0}] = x[{0}]\n| u[{0}] = exp(t[{0}])\n| y[{0}] = u[{0}]")
    joined = play(start, "reuse_dims(t, dim=0)", "reuse_dims(u, dim=0)")
    after, _ = verified(joined, "share_storage(t, other=u)")
    assert "t f32 [8:N] heap -> t, u" in after.text.splitlines()
    parallel = play(after, "annotate_scope(s0, suffix=p)", "set_location(t, location=stack)")
    assert "t f32 [8:N] stack -> t, u" in parallel.text.splitlines()


def test_the_array_that_names_the_buffer_can_leave_it() -> None:
    shared = play(program(IN_TURN["element-wise in place"]), "share_storage(t, other=u)")
    after, _ = verified(shared, "unshare_storage(t, array=t)")
    assert after.storage_lines.splitlines()[:2] == ["u f32 [4] heap", "t f32 [4] heap"]


def test_an_update_in_place_through_another_name_stays() -> None:
    start = program(
        "t f32 [4] heap -> a, b\n4 b[{0}] = x[{0}]\n4 a[{0}] *= x[3-{0}]\n4 y[{0}] = b[{0}] + a[{0}]"
    )
    assert refusal(start, "unshare_storage(t, array=b)") == "PD-T342"


@pytest.mark.parametrize(
    ("tree", "depth"),
    [
        ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", 0),
        ("4\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", 1),
        ("4\n| 3 t[{0},{1}] = x[{1}]\n| 3 y[{0},{1}] = t[{0},2-{1}]", 1),
        ("5 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}+1]", 0),
        ("5 t[{0}] = x[{0}]\n4 t[{0}] += x[{0}]\n4 y[{0}] = t[{0}]", 0),
        ("4 t[{0}+1] = x[{0}]\n5 y[{0}] = t[{0}]", None),
        ("4 t[{0}*2] = x[{0}]\n4 y[{0}] = t[{0}*2]", None),
        ("3 t[{0},{0}] = x[{0}]\n3 3 y[{0},{1}] = t[{0},{1}]", None),
        ("4 t[{0}] = x[{0}] if {0} >= 1\n4 y[{0}] = t[{0}]", None),
    ],
)
def test_what_a_write_surely_fills(tree: str, depth: int | None) -> None:
    start = program(tree)
    uses = start.occurrences["t"]
    assert covered_depth(start.buffer_of["t"], uses[0], uses[-1]) == depth


def test_padding_keeps_every_access() -> None:
    start = program("8 14 t[{0},{1}] = x[{0},{1}]\n8 14 y[{0},{1}] = t[{0},{1}]")
    after, _ = verified(start, "pad_dim(t, dim=1, size=16)")
    assert after.body == start.body and "t f32 [8,16] heap" in after.text


def test_padding_is_offered_once_for_each_width() -> None:
    start = program("8 14 t[{0},{1}] = x[{0},{1}]\n8 14 y[{0},{1}] = t[{0},{1}]")
    pads = RULES.transformations["pad_dim"]
    assert list(pads.candidates(start, RULES.dialect)) == [move("pad_dim(t, dim=1, size=16)")]
    padded = play(start, "pad_dim(t, dim=1, size=16)")
    assert not list(pads.candidates(padded, RULES.dialect))
