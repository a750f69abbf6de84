"""An operator as the text of its initial program, with a formula such as ``<rows>`` for each size.

A formula is a sum of products of parameters and numbers: ``<n*h*w>``, ``<h-r+1>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.hookspecs.types import Operator, OperatorParameter

_FORMULA = re.compile(r"<([a-z0-9+*-]+)>")
_TERM = re.compile(r"([+-]?)([a-z0-9*]+)")


def operator(
    text: str, doc: str, sizes: Mapping[str, str], *defaults: tuple[int, ...], **named: tuple[int, ...]
) -> Operator:
    """An operator from its text. ``sizes``: parameter -> what it is, in the order of a call.

    Default sizes are given by position, or by name where there are several that people speak of.
    """
    parameters = tuple(OperatorParameter(name, meaning) for name, meaning in sizes.items())
    name = text.split()[1].partition("(")[0]
    known = defaults + tuple(named.values())
    return Operator(name, doc, parameters, Template(text, tuple(sizes)), known, tuple(named))


class Template:
    """A builder that fills sizes into a text. It is a class so that operators can be pickled."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.text, self.names = text, names

    def __call__(self, *sizes: int) -> str:
        known = dict(zip(self.names, sizes, strict=True))
        return _FORMULA.sub(lambda formula: str(_value(formula[1], known)), self.text)


def _value(formula: str, sizes: Mapping[str, int]) -> int:
    """The value of a formula; ProgramError PD-K003 when it is no valid size, for example if a filter is
    larger than its image."""
    total = 0
    for sign, product in _TERM.findall(formula):
        factors = (int(f) if f.isdigit() else sizes[f] for f in product.split("*"))
        total += prod(factors) * (-1 if sign == "-" else 1)
    if total < 1:
        given = ", ".join(f"{name}={size}" for name, size in sizes.items())
        what = f"{formula} is {total} for {given}"
        raise ProgramError("PD-K003", what, hint="choose sizes that fit together")
    return total
