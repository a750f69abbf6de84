"""The PyTorch front end: rows beside eager PyTorch, groups and fallbacks, the backend, the cache of kernels."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_cases import FAMILIES  # noqa: E402

from perfdojo_sdk.frontends.torch.backend import perfdojo  # noqa: E402
from perfdojo_sdk.frontends.torch.compiling import Choices, compile_graph  # noqa: E402

INTERPRETED = Choices(interpret=True)


def flat(found: Any) -> list[Any]:
    return [each for part in found for each in flat(part)] if isinstance(found, list | tuple) else [found]


def close(one: Any, other: Any) -> bool:
    """Equal integers; floats within 2e-5 of the largest one."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    finite = other[other.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    return bool(torch.allclose(one, other, rtol=0, atol=2e-5 * max(scale, 1e-30), equal_nan=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_agree_with_pytorch_and_take_every_call(family: str) -> None:
    cases = FAMILIES[family]
    inputs = [value for _, given in cases.values() for value in given]

    def everything(*values: Any) -> list[Any]:
        at, found = 0, []
        for function, given in cases.values():
            found += flat(function(*values[at : at + len(given)]))
            at += len(given)
        return found

    call, report = compile_graph(everything, inputs, INTERPRETED, None)
    assert [e.text for e in report.elsewhere] == [] and not report.whole
    found, names = call(*inputs), []
    for name, (function, given) in cases.items():
        for k, expected in enumerate(flat(function(*given))):
            one = found[len(names)]
            names.append(name)
            assert close(one, expected), f"{name}, result {k}: {one} instead of {expected}"
