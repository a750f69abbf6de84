"""The contract with plugins is small, typed, described, and wholly implemented by the toy target."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable

import pytest
from toy_target import perfdojo_toy

from perfdojo_sdk.hookspecs import API_VERSION, specs, types
from perfdojo_sdk.plugins import HOOKS

SPECS = [pytest.param(getattr(specs, name), id=name) for name in HOOKS]


@pytest.mark.parametrize("hook", SPECS)
def test_a_hook_is_one_typed_sentence(hook: Callable[..., object]) -> None:
    sentence = inspect.getdoc(hook)
    assert sentence and sentence.endswith(".") and "\n" not in sentence
    annotations = inspect.get_annotations(hook)
    assert annotations.keys() == {*inspect.signature(hook).parameters, "return"}
    known = {**vars(types), **vars(typing), **_core_names()}
    typing.get_type_hints(hook, {**vars(specs), **known})


def _core_names() -> dict[str, object]:
    from perfdojo_sdk.core import program, transformation

    return {**vars(program), **vars(transformation)}


@pytest.mark.parametrize("hook", SPECS)
def test_the_toy_target_implements_it_with_the_same_arguments(hook: Callable[..., object]) -> None:
    implementation = getattr(perfdojo_toy, hook.__name__)
    assert implementation.perfdojo_impl["specname"] is None
    assert [*inspect.signature(implementation).parameters] == [*inspect.signature(hook).parameters]


def test_the_contract_fits_on_two_screens() -> None:
    assert len(inspect.getsource(specs).splitlines()) <= 120


def test_versions_are_pairs() -> None:
    assert API_VERSION == (0, 1) == perfdojo_toy.PERFDOJO_API


def test_a_target_file_is_strict() -> None:
    with pytest.raises(ValueError, match="lane"):
        types.Capabilities.model_validate({"name": "a", "description": "", "lane": {"f32": 4}})


def test_figures_of_a_target_file_are_not_calibrated() -> None:
    figures = perfdojo_toy.CAPABILITIES.figures
    assert figures.memory and figures.memory.copy_gbs == 20 and not figures.calibrated
