"""Facts: an analysis runs once, a refusal says what is at fault in fields, a requirement who may mend it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from command_line import Outcome
from snippets import DIALECT, RULES, move, play, program
from test_transformations import REFUSALS

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import (
    Analysed,
    Facts,
    Kind,
    Legal,
    Move,
    Refusal,
    Rejection,
    Requirement,
    Rules,
    Site,
    Step,
    Transformation,
)
from perfdojo_sdk.core.transformations import GENERIC

Cli = Callable[..., Outcome]

REQUIREMENTS = [(t.name, r) for t in GENERIC.values() for r in t.requirements]

#: Hints that name a move to play in place of the refused one: it establishes nothing.
OTHER_WAYS = {
    "PD-T182": {"stage_write"},
    "PD-T194": {"stage_accumulator"},
    "PD-T312": {"join_scopes"},
    "PD-T402": {"split_scope"},
    "PD-T404": {"split_range"},
    "PD-T405": {"split_range"},
    "PD-T453": {"stage_expression"},
}


@pytest.mark.parametrize(("name", "requirement"), REQUIREMENTS, ids=[r.code for _, r in REQUIREMENTS])
def test_each_requirement_says_which_moves_may_help(name: str, requirement: Requirement[Any]) -> None:
    by = requirement.established_by
    assert by is not None and len(set(by)) == len(by)
    assert set(by) <= set(GENERIC)
    hinted = set(re.findall(r"\w+", requirement.hint)) & set(GENERIC)
    assert hinted - OTHER_WAYS.get(requirement.code, set()) <= set(by), "the hint knows no more than the data"


def test_no_exception_is_left_over() -> None:
    hints = {r.code: r.hint for _, r in REQUIREMENTS}
    assert all(name in hints[code] for code, names in OTHER_WAYS.items() for name in names)


@pytest.mark.parametrize("code", REFUSALS)
def test_what_is_at_fault_is_there(code: str) -> None:
    text, outputs, first, refused = REFUSALS[code]
    start = play(program(text, outputs), *first)
    rejection = RULES.attempt(start, move(refused))
    assert isinstance(rejection, Rejection)
    facts = rejection.refusal
    assert facts.nodes[:1] == ((facts.at,) if facts.at else ())
    assert all(node in start.paths for node in facts.nodes)
    assert not facts.iterator or facts.iterator in start.paths
    assert not facts.location or facts.location in DIALECT.locations
    asked = {str(word) for _, word in move(refused).parameters}
    assert set(facts.arrays) <= set(start.buffer_of) | asked
    if facts.access is not None:
        assert facts.access.array in start.buffer_of
    json.dumps(facts.as_json(), allow_nan=False)


FACTS: dict[str, tuple[str, str, dict[str, object]]] = {
    "the loop that keeps a cell from being named": (
        "8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}]",
        "set_location(t, location=reg)",
        {"access": "t[{0}]", "arrays": ["t"], "location": "reg", "iterator": "s0", "nodes": ["c0"]},
    ),
    "the array whose lanes are apart": (
        "4 8 y[{1},{0}] = x[{0},{1}] * 2",
        "annotate_scope(s1, suffix=v)",
        {"access": "y[{1},{0}]", "arrays": ["y"], "iterator": "s1", "nodes": ["c0"]},
    ),
    "the iterator that a value passes along": (
        "8\n| t[0] = x[{0}] if {0} <= 0\n| y[{0}] = t[0]",
        "annotate_scope(s0, suffix=p)",
        {"arrays": ["t"], "iterator": "s0"},
    ),
    "both statements that depend on each other": (
        "t[0] = x[0]\ny[0] = t[0]",
        "reorder_statements(c0)",
        {"nodes": ["c1", "c0"], "arrays": ["t"]},
    ),
    "the definition that is unsolved": (
        "8 t[{0}//2] = x[{0}]\n8 y[{0}] = t[{0}//2]",
        "inline_definition(c1, array=t)",
        {"access": "t[{0}//2]", "nodes": ["c1", "c0"]},
    ),
}


@pytest.mark.parametrize(("text", "refused", "expected"), FACTS.values(), ids=FACTS)
def test_the_facts_are_fields(text: str, refused: str, expected: dict[str, object]) -> None:
    rejection = RULES.attempt(program(text), move(refused))
    assert isinstance(rejection, Rejection)
    found = rejection.refusal.as_json()
    access = found["access"]
    if isinstance(access, dict):
        found["access"] = access["text"]
    assert {name: found[name] for name in expected} == expected


def test_words_of_packages_stay_words() -> None:
    """Sentences of packages name an access by its text, and arrays by words of their own."""
    refusal = Refusal.of("c0", "x[{0}]", access="x[{0}]", array="x", location="far", names=3)
    assert refusal.access is None and refusal.arrays == ()
    assert "{access} {array} {location} {names}".format(**refusal.sentence_words) == "x[{0}] x far 3"
    counted: dict[str, Any] = {"nodes": 3, "arrays": "a and b", "code": "E7"}
    odd = Refusal.of("c0", **counted)
    assert odd.nodes == ("c0",) and odd.arrays == ()
    assert "{nodes} {arrays} {code}".format(**odd.sentence_words) == "3 a and b E7"
    typed = Refusal.of("c0", Access("x", (AffineExpr.level(0),)), access="it")
    assert typed.access is not None and typed.sentence_words["access"] == "it"


class Looks:
    """A counter of the runs of an analysis."""

    count = 0


class Even(Facts):
    """A scope of an even size."""


class HalveScope(Analysed[Even]):
    """Do nothing to an even scope."""

    name = "halve_scope"
    place = "scope"
    requirements = (
        Requirement("H-0", "it is odd", "{size}", "", None, law="halves"),
        Requirement("H-1", "it is long", "{size}", "", lambda facts: _short(facts), semantic=True),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        yield Move(self.name, "s0")

    def analyse(self, site: Site) -> Even | Refusal:
        Looks.count += 1
        return Refusal.of(site.scope.id, size=site.scope.size) if site.scope.size % 2 else Even(site)

    def rewrite(self, facts: Even, /) -> Program:
        return facts.site.program


def _short(facts: Even) -> Refusal | None:
    scope = facts.site.scope
    return Refusal.of(scope.id, size=scope.size) if scope.size > 9 else None


def own(transformation: Transformation) -> Rules:
    return Rules(DIALECT, {transformation.name: transformation})


def test_an_analysis_runs_once_a_site() -> None:
    Looks.count = 0
    step = own(HalveScope()).attempt(program("8 y[{0}] = x[{0}]"), Move("halve_scope", "s0"))
    assert isinstance(step, Step) and Looks.count == 1


def test_a_requirement_of_the_analysis_costs_its_law() -> None:
    legal = HalveScope().check(program("8 y[{0}] = x[{0}]"), Move("halve_scope", "s0"), DIALECT)
    assert legal == Legal(Kind.DECLARED_LAW, frozenset({"halves"}))


@pytest.mark.parametrize(("size", "code"), [(7, "H-0"), (10, "H-1"), (11, "H-0")])
def test_an_analysis_refuses_for_a_requirement(size: int, code: str) -> None:
    refused = own(HalveScope()).attempt(program(f"{size} y[{{0}}] = x[{{0}}]"), Move("halve_scope", "s0"))
    assert isinstance(refused, Rejection) and (refused.code, refused.why) == (code, str(size))


def test_a_mutant_keeps_the_analysis() -> None:
    mutant = HalveScope().without("H-1")
    assert own(mutant).attempt(program("10 y[{0}] = x[{0}]"), Move("halve_scope", "s0"))
    with pytest.raises(ValueError, match="H-0 is of the analysis"):
        HalveScope().without("H-0")


def test_what_protects_meaning_is_never_of_the_analysis() -> None:
    assert [r.code for _, r in REQUIREMENTS if r.semantic and r.test is None] == []


def test_explain_tells_programs_the_facts(cli: Cli) -> None:
    answer = cli("explain", "softmax[4,8]", "set_location(e, location=stack)", "--json", plugins="").data
    assert answer["legal"]
    answer = cli("explain", "softmax[4,8]", "reuse_dims(e, dim=1)", "--json", plugins="").data
    assert answer["established_by"] == ["join_scopes"]
    assert answer["facts"]["arrays"] == ["e"] and answer["facts"]["access"]["array"] == "e"
    assert answer["facts"]["iterator"] and answer["facts"]["nodes"]


def test_explain_tells_what_became_of_old_names(cli: Cli) -> None:
    answer = cli("explain", "softmax[4,8]", "split_scope(s0, factor=2)", "--json", plugins="").data
    assert answer["became"] == {"s0": ["s0.o", "s0.i"]} and answer["buffers_became"] == {}
