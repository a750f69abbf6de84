"""Graphs of torch.compile that change their inputs: what is written, where, and what a caller sees of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import perfdojo_sdk.torch  # noqa: E402, F401  (registers the backend)
from perfdojo_sdk.frontends.torch.writing import write_last  # noqa: E402
from perfdojo_sdk.torch import report  # noqa: E402

STRICT = {"interpret": True, "fallback": None}
Function = Callable[[Any, Any, Any], Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="perfdojo", options=STRICT)


def place(x: Any, v: Any, i: Any) -> Any:
    x[:, 2] = v[:, 0]
    return x.sum(1)


def part(x: Any, v: Any, i: Any) -> Any:
    x[:, 1:3] = v
    return x * 2


def rows(x: Any, v: Any, i: Any) -> Any:
    x.index_copy_(1, i, v)
    return x @ x.t()


def elements(x: Any, v: Any, i: Any) -> Any:
    x[:, i] = v
    return x + 1


def part_of_a_place(x: Any, v: Any, i: Any) -> Any:
    x[1][2:4] = v[0]
    return x + 1


def sum_with_what_was_there(x: Any, v: Any, i: Any) -> Any:
    x[:, 2] += v[:, 1]
    return x * 3


def made_of_another_place(x: Any, v: Any, i: Any) -> Any:
    x[:, 0] = x[:, 1] * 2
    return x


def one_after_the_other(x: Any, v: Any, i: Any) -> Any:
    x[:, 3] = v[:, 1]
    y = x.exp()
    x[:, 0] = y[:, 3]
    return x.sum(), y


def nothing_reads_it(x: Any, v: Any, i: Any) -> Any:
    x[:, 3] = v[:, 1]
    return v + 1


def part_is_returned(x: Any, v: Any, i: Any) -> Any:
    x[:, 3] = v[:, 1]
    return x[:2]


def no_elements(x: Any, v: Any, i: Any) -> Any:
    x[:0] = v[:0].repeat(1, 3)
    return x + 1


def whole(x: Any, v: Any, i: Any) -> Any:
    return x.add_(1) * 2


def whole_is_returned(x: Any, v: Any, i: Any) -> Any:
    x.add_(1)
    return x, x.t() * 2


def running(x: Any, v: Any, i: Any) -> Any:
    x.mul_(0.9).add_(0.1 * v.sum())
    return v * 2


def through_a_view(x: Any, v: Any, i: Any) -> Any:
    x.view(24)[3:5].add_(1)
    return x * 2


def through_a_turned_view(x: Any, v: Any, i: Any) -> Any:
    x.t().index_copy_(0, i, v.t())
    return x @ v.new_ones(6, 2)


def older_elements_are_read_later(x: Any, v: Any, i: Any) -> Any:
    y = x * 3
    x[:, 2] = v[:, 0]
    return y + x


def older_elements_are_returned(x: Any, v: Any, i: Any) -> Any:
    y, z = x.clone(), x[:, 1:3]
    x[:, 2] = v[:, 0]
    return y, z + 1


def exchanged(x: Any, v: Any, i: Any) -> Any:
    a = x[:, 0].clone()
    x[:, 0] = x[:, 1]
    x[:, 1] = a
    return x * 1


def added_up(x: Any, v: Any, i: Any) -> Any:
    x.index_put_((torch.tensor([0, 0, 1]),), torch.ones(3, 6), accumulate=True)
    return x + 1


IN_PLACE = (
    place, part, rows, elements, part_of_a_place, sum_with_what_was_there, made_of_another_place,
    one_after_the_other, nothing_reads_it, part_is_returned, no_elements,
)  # fmt: skip
AT_LAST = (
    whole, whole_is_returned, running, through_a_view, through_a_turned_view, older_elements_are_read_later,
    older_elements_are_returned, exchanged, added_up,
)  # fmt: skip


def given() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    return torch.randn(4, 6), torch.randn(4, 2), torch.tensor([5, 0])


def results(made: Any) -> tuple[Any, ...]:
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


@pytest.mark.parametrize("function", [*IN_PLACE, *AT_LAST], ids=lambda f: f.__name__)
def test_inputs_and_results_are_those_of_pytorch(function: Function) -> None:
    ours = compiled(function)
    for _ in range(2):
        (mine, v, i), (theirs, _, _) = given(), given()
        found, expected = results(ours(mine, v, i)), results(function(theirs, v, i))
        assert torch.allclose(mine, theirs, atol=1e-6)
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one, other, atol=1e-6)
            shared = [y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
                      for x, y in ((mine, one), (theirs, other))]  # fmt: skip
            assert shared[0] == shared[1]
    graph = report(ours).graphs[0]
    assert not graph.whole and not graph.elsewhere
    assert (write_last.__name__ in graph.operators) == (function in AT_LAST)


CHANGES = (
    "{t}[:,{a}] = {s}[:,{b}]",
    "{t}[1:3] = {s}[1:3] * 2",
    "{t}.index_copy_(1, i, {s}[:,:2] + 1)",
    "{t}[:,i] = {s}[:,2:4]",
    "{t}[1][{a}:{a}+1] = {s}[2][3:4]",
    "{t}[:,{a}] += {s}[:,{b}]",
    "{t}.mul_(0.5).add_({s})",
    "{t}.copy_({s}.exp().clamp(max=3))",
    "{t}.t()[{a}] = {s}[:,{b}]",
    "{t}.view(2, 12)[0, {a}:{a}+3] = {s}[0,:3]",
    "part = {t}[1:3]; part[:,{a}] = 1.5; part.add_(0.25)",
    "more.append({s} * 2 + 1)",
    "more.append({s}.clone())",
)
RESULTS = ("{s}", "{s} * 1.5", "{s}[1:3]", "{s}.t()", "{s}.sum(0)")


def drawn(seed: int) -> tuple[str, Function]:
    """Changes of two inputs in a random order, and what they return."""
    dice, lines, names = random.Random(seed), list[str](), ["x", "z", "v"]
    for _ in range(dice.randint(2, 8)):
        change = dice.choice(CHANGES)
        t, s, (a, b) = dice.choice("xz"), dice.choice(names), (dice.randint(0, 5), dice.randint(0, 5))
        lines.append("    " + change.format(t=t, s=s, a=a, b=b))
        if change.startswith("more"):
            names.append(f"more[{len(names) - 3}]")
    found = [dice.choice(RESULTS).format(s=s) for s in dice.sample(names, min(len(names), 3))]
    code = "\n".join(["def drawn(x, z, v, i):", "    more = []", *lines, f"    return {', '.join(found)},"])
    space: dict[str, Any] = {"torch": torch}
    exec(compile(code, f"<changes {seed}>", "exec"), space)
    return code, space["drawn"]


def test_random_changes_of_inputs() -> None:
    tried = 0
    for seed in range(40):
        torch._dynamo.reset()
        code, function = drawn(seed)
        torch.manual_seed(seed)
        mine = [*(torch.randn(4, 6) for _ in range(3)), torch.tensor([5, 0])]
        theirs = [tensor.clone() for tensor in mine]
        try:
            expected = function(*theirs)
        except RuntimeError:  # PyTorch refuses an assignment over the memory that it reads
            continue
        found, tried = compiled(function)(*mine), tried + 1
        for one, other in zip([*found, *mine], [*expected, *theirs], strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-4), code
        of_mine, of_theirs = (
            [[y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for x in inputs] for y in made]
            for inputs, made in ((mine, found), (theirs, expected))
        )
        assert of_mine == of_theirs, code
    assert tried > 20


def test_inputs_over_the_same_memory_run_in_pytorch() -> None:
    def function(x: Any, v: Any) -> Any:
        x[:, 0] = 7.0
        return v + 1

    ours, x = compiled(function), torch.zeros(4, 6)
    assert (ours(torch.zeros(4, 6), torch.zeros(4, 2)) == 1).all()
    assert (ours(x, x[:, :2])[:, 0] == 8).all() and (x[:, 0] == 7).all()


def test_a_cache_that_a_module_holds_gets_rows() -> None:
    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = torch.nn.Linear(8, 8)
            self.register_buffer("keys", torch.zeros(2, 16, 8))

        def forward(self, x: Any, at: Any) -> Any:
            self.keys.index_copy_(1, at, self.project(x))
            return (self.keys @ x.transpose(1, 2)).sum(1)

    torch.manual_seed(0)
    ours, theirs = Step(), Step()
    theirs.load_state_dict(ours.state_dict())
    step = compiled(ours)
    for at in range(3):
        x, where = torch.randn(2, 1, 8), torch.tensor([at])
        assert torch.allclose(step(x, where), theirs(x, where), atol=1e-5)
    assert torch.allclose(ours.keys, theirs.keys, atol=1e-6) and ours.keys[:, :3].abs().min() > 0
    assert report(step).complete
