"""Reasons why a part of a model is not supported. Each has a class, by which reports count."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from perfdojo_sdk.core.errors import DojoError


class Reason(StrEnum):
    """The class of a reason."""

    OPERATOR = "there is no rule for the operator"
    OPERATION = "the language lacks an operation"
    DTYPE = "the language lacks a dtype"
    TARGET = "the target does not compile the kernel"
    INDEX = "subscripts read from memory"
    LENGTH = "the size of an output depends on data"
    CHOICE = "an attribute or a combination of them is not supported"
    STEPS = "the order of steps depends on data"
    CONTROL = "control flow"
    VALUES = "a shape depends on the values of an input"
    TYPE = "a sequence, an optional or strings"
    RANDOM = "random numbers"
    VERSION = "a version of the operator that is out of force"
    SIZE = "too large"


class Refused(DojoError):
    """A part of a model is not supported, or the model breaks the standard's rules."""

    def __init__(self, reason: Reason, what: str, hint: str = "") -> None:
        super().__init__("PD-O001", what, why=reason.value, hint=hint)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (Refused, (self.reason, self.what, self.hint))


class Malformed(DojoError):
    """The model breaks a rule of the standard, such as shapes that do not fit together."""

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__("PD-O002", what, why=why, hint=hint)

    def __reduce__(self) -> tuple[object, ...]:
        return (Malformed, (self.what, self.why, self.hint))


class ValueNeeded(DojoError):
    """The shape of a result depends on the values of graph inputs, which are not known yet.

    ``nodes``: those that need them, if they are known.
    """

    def __init__(self, inputs: frozenset[str], nodes: Sequence[str] = ()) -> None:
        names = sorted(inputs)
        known = f"they decide about the results of {', '.join(nodes[:20])}" if nodes else ""
        super().__init__(
            "PD-O003",
            f"shapes depend on the values of {', '.join(names)}",
            why=known,
            hint="give each of them a value in the model: an initializer of the input's name",
        )
        self.inputs, self.nodes = inputs, tuple(nodes)

    def __reduce__(self) -> tuple[object, ...]:
        return (ValueNeeded, (self.inputs, self.nodes))
