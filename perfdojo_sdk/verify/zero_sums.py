"""Programs without sums of integers that add zeros, so that the dependence leg can compare them.

It looks at the text of such a statement on its own, and uses nothing of the moves' reasoning.
"""

from __future__ import annotations

from collections.abc import Collection

from perfdojo_sdk.core.dtypes import INTEGER_DTYPES
from perfdojo_sdk.core.expression import Cast, Expression, Literal, Operation
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.verify.sets import Refuted


def without_zero_sums(program: Program, statements: Collection[str]) -> Program:
    """The program without these statements and the scopes that hold nothing else; :class:`Refuted` where one
    may add something."""

    def kept(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in nodes:
            if isinstance(node, Scope):
                body = kept(node.body)
                found += [node.with_body(body)] if body else []
            elif node.id not in statements:
                found.append(node)
            elif node.accumulate != "add" or node.dtype not in INTEGER_DTYPES or not _nothing(node.value):
                raise Refuted(f"{node.id} `{node.text}` may add something")
        return tuple(found)

    return program.with_body(kept(program.body))


def _nothing(value: Expression) -> bool:
    """True if an integer is zero in arithmetic modulo any power of two, whatever is read."""
    if value.dtype not in INTEGER_DTYPES:
        return False
    if isinstance(value, Literal):
        return value.value == 0
    if isinstance(value, Cast):
        return _nothing(value.argument)
    if not isinstance(value, Operation):
        return False
    if value.name in ("mul", "and"):
        return _nothing(value.arguments[0]) or _nothing(value.arguments[1])
    return value.name in ("add", "sub", "neg") and all(map(_nothing, value.arguments))
