"""The first step of a plan: run-time indices that a table gives become forms of the iterators where they can.

Vectors then load neighbours, or elements at equal distances, where they would have to gather; threads may
share out what is written; and tiles and windows see subscripts. A program without tables stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.known_elements import lookups_and_reads
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.program import Statement
from perfdojo_sdk.core.transformation import Move, Rejection
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.search.play import Play

#: Most parts that the innermost loop is cut into for a table whose elements go in several runs.
MOST_RUNS = 4

#: Fewest iterations of such a part: fewer do not fill vectors.
LEAST_RUN = 8

#: The refusal that says where another run begins.
_ENDS = "PD-T655"


def fold_tables(play: Play) -> list[Decision]:
    """Write the run-time indices that tables give as forms of the iterators, and cut innermost loops in which
    a few long runs follow each other."""
    decisions = []
    for identifier in [s.id for s in play.statements()] if play.program.tables else ():
        while (lookup := next(_lookups(play, identifier), None)) is not None:
            number, text = lookup
            if not _fold(play, identifier, number):
                break
            why = f"the table's elements make {text} a form of the iterators"
            decisions.append(Decision("fold tables", identifier, "an ordinary subscript", why))
        for number, text in list(_lookups(play, identifier)):
            parts = _in_parts(play, identifier, number)
            if parts:
                why = f"the table's elements make {text} such a form in each part of the innermost loop"
                numbers = {"parts": float(parts)}
                decisions.append(Decision("fold tables", identifier, "a loop for each run", why, numbers))
                break
    return decisions


def _lookups(play: Play, identifier: str) -> Iterator[tuple[int, str]]:
    """The run-time indices of a statement that read a table: their numbers as the move counts, and text."""
    statement = play.node(identifier)
    assert isinstance(statement, Statement)
    for number, found in enumerate(lookups_and_reads(play.program, statement)):
        if isinstance(found, Lookup):
            yield number, found.text


def _fold(play: Play, identifier: str, number: int) -> bool:
    return play.may("fold_table", identifier, read=number) is not None


def _in_parts(play: Play, identifier: str, number: int) -> int:
    """Cut the innermost loop where runs end, if that leaves few parts; the number of parts, 0 where it does
    not."""
    kept, rest = play.trace, identifier
    for part in range(1, MOST_RUNS + 1):
        if _fold(play, rest, number):
            return part
        cut, around = _end_of_run(play, rest, number), play.around(rest)
        if cut is None or part == MOST_RUNS or not LEAST_RUN <= cut <= around[-1].size - LEAST_RUN:
            break
        if len(around[-1].body) > 1 or play.may("split_range", around[-1].id, at=cut) is None:
            break
        first, rest = _copies(play, rest)
        if not _fold(play, first, number):
            break
    play.trace = kept
    return 0


def _end_of_run(play: Play, identifier: str, number: int) -> int | None:
    """The iteration of the innermost loop in which another run begins; None where no run ends there."""
    move = Move.of("fold_table", identifier, read=number)
    refused = play.rules.attempt(play.program, move)
    if not isinstance(refused, Rejection) or refused.code != _ENDS:
        return None
    around, facts = play.around(identifier), dict(refused.refusal.words)
    return int(str(facts["cut"])) if around and refused.refusal.iterator == around[-1].id else None


def _copies(play: Play, identifier: str) -> tuple[str, str]:
    """The two statements that the last move made of one."""
    first, second = play.trace.steps[-1].made.became[identifier]
    return first, second
