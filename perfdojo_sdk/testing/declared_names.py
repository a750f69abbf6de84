"""Check of the names that a move declares: new ids, new buffers, and the successors of old ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from perfdojo_sdk.core.made import Became
from perfdojo_sdk.core.program import Node, Scope, Statement
from perfdojo_sdk.core.transformation import Step


def wrong_names(step: Step) -> Iterator[str]:
    """Errors in ``step.made``, one message each."""
    before, after, made = step.before, step.after, step.made
    old, new = before.place_of, after.place_of

    def fresh(kind: type[Node]) -> set[str]:
        return {name for name, place in new.items() if name not in old and isinstance(place.node, kind)}

    yield from _differ("scopes", made.scopes, fresh(Scope))
    yield from _differ("statements", made.statements, fresh(Statement))
    yield from _differ("buffers", made.buffers, after.positions.keys() - before.positions.keys())
    yield from _wrong_ends("node", made.became, old, new)
    yield from _wrong_ends("buffer", made.buffers_became, before.positions, after.positions)


def _differ(what: str, said: tuple[str, ...], found: set[str]) -> Iterator[str]:
    if len(said) != len(found) or set(said) != found:
        yield f"makes the {what} {_listed(found)} and says {_listed(said)}"


def _wrong_ends(kind: str, became: Became, old: Collection[str], new: Collection[str]) -> Iterator[str]:
    if unknown := [name for name in became if name not in old]:
        yield f"says what became of {_listed(unknown)}, which was no {kind}"
    if silent := [name for name in old if name not in new and name not in became]:
        yield f"does not say what became of the {kind} {_listed(silent)}"
    for name, ends in became.items():
        if missing := [end for end in ends if end not in new]:
            yield f"says that {name} became {_listed(missing)}, which is no {kind} now"
        elif ends == (name,):
            yield f"says that {name} became itself"


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
