"""The limits of the hardware, each with a code, the reason and a hint.

The code generator raises :class:`Refused` when a program exceeds a limit, and the target's veto then refuses
the move that led to it. Every program that can be played therefore compiles.
"""

from __future__ import annotations

from typing import Any

from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.transformation import NO_MOVE, Refusal, Requirement, Site
from perfdojo_sdk.core.words import filled


def _elsewhere(site: Site) -> None:
    """A test that never refuses: the code generator tests the program that a move would make."""


def _limit(
    code: str, title: str, why: str, hint: str, by: tuple[str, ...] = NO_MOVE, semantic: bool = False
) -> Requirement[Site]:
    """``by``: the moves that may make room for the refused one."""
    return Requirement(code, title, why, hint, _elsewhere, semantic, established_by=by)


ONE_VALUE = _limit(
    "SNITCH-101",
    "a stream register holds one value",
    "{buffer} keeps {cells} values at a time in {location}",
    "contract all of its dimensions with reuse_dims first",
    ("reuse_dims",),
)
ONE_COPY = _limit(
    "SNITCH-102",
    "a stream is filled or emptied by one copy",
    "{buffer} has {writes} writes and {reads} reads, and none of them is the copy from or to memory",
    "stage what the scope reads or writes, and set the location of that buffer",
    ("stage_read", "stage_write", "stage_accumulator"),
)
CONDITION = _limit(
    "SNITCH-103",
    "a stream moves in every iteration",
    "{statement} uses {buffer} under a condition, the mover would go on all the same",
    "split the scope so that the condition goes away",
    ("drop_condition", "split_range"),
    semantic=True,
)
MATCHED = _limit(
    "SNITCH-104",
    "a stream and its uses do not keep step",
    "{buffer} {what}",
    "join the copy and its uses in one scope; a value can be read 16 times",
    ("join_scopes",),
    semantic=True,
)
PATTERN = _limit(
    "SNITCH-105",
    "a mover cannot make these addresses",
    "{access}: {what}",
    "a mover runs over 4 nested loops of constant strides, in whole words of 8 bytes",
    ("swap_scopes", "split_scope", "collapse_scopes", "reorder_dims"),
)
ORDER = _limit(
    "SNITCH-106",
    "a stream runs ahead of the program, or behind it",
    "{first} and {second} may be one cell, and the stream of {buffer} would reach it out of turn",
    "stream an array that nothing else in the scope touches",
    ("stage_read", "stage_write"),
    semantic=True,
)
MOVERS = _limit(
    "SNITCH-107",
    "the mover is in use",
    "{buffer} and {other} both move through {location} at once",
    "choose another of the three stream registers",
    ("set_location",),
    semantic=True,
)
POPS = _limit(
    "SNITCH-108",
    "a statement does not read its stream once",
    "{statement} reads {buffer} {what}",
    "stage each operand of its own, or compute the value in a register first",
    ("stage_read", "stage_expression"),
    semantic=True,
)
LANES = _limit(
    "SNITCH-109",
    "single numbers and pairs do not mix in a register",
    "{buffer} is kept in pairs, and {statement} does not work on pairs: {what}",
    "use the two lanes for all accesses of the buffer, or pass it through memory",
    ("annotate_scope",),
)
MEMORY = _limit(
    "SNITCH-111",
    "a repeated instruction cannot address memory",
    "{access} lives in {location}, and each repetition would go to the first address again",
    "stage it through a stream register, or keep it in a register",
    ("stage_read", "stage_write", "stage_accumulator", "set_location"),
    semantic=True,
)
INTEGER = _limit(
    "SNITCH-112",
    "the integer core takes no part in a repeated body",
    "{statement} needs {instruction}",
    "keep conditions, iterators as values, maxima that propagate NaN and functions out of the scope",
    ("fission_scope", "stage_expression", "drop_condition"),
    semantic=True,
)
LENGTH = _limit(
    "SNITCH-113",
    "the repeated body does not fit the sequencer",
    "the body has {count} instructions, the sequencer holds 1 to {most}",
    "unroll less, or repeat an inner scope",
    ("split_scope", "fission_scope"),
)
NESTING = _limit(
    "SNITCH-114",
    "repeated scopes nest once, with nothing else between",
    "{head} stands in {outer}; {what}",
    "unroll the inner scope, repeat that one only, or make one scope of two with collapse_scopes",
    ("annotate_scope", "collapse_scopes", "fission_scope"),
)
TIMES = _limit(
    "SNITCH-115",
    "too many repetitions",
    "{head} repeats more than {most} times",
    "split the scope and repeat the inner part",
    ("split_scope",),
)
REGISTERS = _limit(
    "SNITCH-116",
    "the repeated body needs more registers than there are",
    "a value of {statement} finds no FP register",
    "interleave fewer accumulators",
)
STAGGER = _limit(
    "SNITCH-117",
    "registers cannot go on in the repeated body",
    "{what}",
    "write one statement out inside (:u), for up to eight accumulators, or repeat without staggering (:frep)",
    ("annotate_scope",),
)
WIDTH = _limit(
    "SNITCH-118",
    "a number needs more than 32 bits",
    "{form} reaches {reach} on the way to its value, the integer core has 32 bits",
    "use smaller coefficients or fewer iterations, or a target with wider integers",
)
TCDM = _limit(
    "SNITCH-121",
    "the data memory is too small",
    "arrays, workspace and frame take {bytes} bytes, the memory holds {most}",
    "contract or share temporaries",
    ("reuse_dims", "share_storage"),
)

REQUIREMENTS = (
    *(ONE_VALUE, ONE_COPY, CONDITION, MATCHED, PATTERN, ORDER, MOVERS, POPS, LANES),
    *(MEMORY, INTEGER, LENGTH, NESTING, TIMES, REGISTERS, STAGGER, WIDTH, TCDM),
)


class Refused(Exception):
    """The program asks for what the hardware cannot do."""

    def __init__(self, requirement: Requirement[Any], at: str, mark: str | Access = "", **facts: Any) -> None:
        super().__init__(f"{requirement.code}: {requirement.title}")
        self.requirement = requirement
        self.refusal = Refusal.of(at, mark, **facts)

    @property
    def why(self) -> str:
        return filled(self.requirement.why, self.refusal.sentence_words)
