"""``transformations``: the moves of the game, described by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, table
from perfdojo_sdk.cli.sources import TargetOption, plugins_for, rules_for
from perfdojo_sdk.core.transformation import Requirement, Transformation


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Describe this one.", show_default=False)] = "",
    target: TargetOption = "",
    as_json: Json = False,
) -> None:
    """List the transformations, or describe one: what it does, on what, and why it may refuse."""
    rules = rules_for(plugins_for("", target), target)
    if name:
        found = rules.transformation(name)
        emit(page(found), describe(found), as_json)
        return
    every = list(rules.transformations.values())
    rows = [(usage(t), summary(t)) for t in every]
    emit(table(("move", "what it does"), rows), {"transformations": [describe(t) for t in every]}, as_json)


def usage(transformation: Transformation) -> str:
    """``split_scope(SCOPE, factor=INT)``"""
    parameters = [f"{p.name}={p.type.__name__.upper()}" for p in transformation.parameters]
    return f"{transformation.name}({', '.join([transformation.place.upper(), *parameters])})"


def summary(transformation: Transformation) -> str:
    """The first sentence of the docstring."""
    return " ".join(transformation.doc.split("\n\n")[0].split())


def describe(transformation: Transformation) -> dict[str, Any]:
    """Everything about a transformation, as data."""
    return {
        "name": transformation.name,
        "version": transformation.version,
        "place": transformation.place,
        "parameters": [
            {"name": p.name, "type": p.type.__name__, "doc": p.doc} for p in transformation.parameters
        ],
        "doc": transformation.doc,
        "requirements": [
            {
                **{"code": r.code, "title": r.title, "why": words(r.why), "try": words(r.hint)},
                **{"semantic": r.semantic, "law": r.law},
                "established_by": None if r.established_by is None else list(r.established_by),
            }
            for r in transformation.requirements
        ],
        "undo": transformation.undo,
    }


def page(transformation: Transformation) -> str:
    """A transformation as a page of text."""
    lines = [usage(transformation), "", transformation.doc]
    if transformation.parameters:
        lines += ["", "Parameters:"]
        lines += [f"  {p.name} ({p.type.__name__}): {p.doc}" for p in transformation.parameters]
    lines += ["", f"It applies at a {transformation.place}. It refuses when"]
    for requirement in transformation.requirements:
        lines += [f"  {requirement.code}  {requirement.title}"]
        lines += [f"           {line}" for line in refusal(requirement)]
    lines += ["", f"To undo it: {transformation.undo}."]
    return "\n".join(lines)


def refusal(requirement: Requirement[Any]) -> Iterator[str]:
    """One reason to refuse, in lines for a person: why, what to try, and a note if it protects results."""
    yield f"why: {words(requirement.why)}"
    yield f"try: {words(requirement.hint)}"
    if requirement.semantic:
        yield "Without this requirement a result could be wrong."
    if requirement.law:
        yield f"Where it holds, the move uses a law that rounding breaks: {requirement.law}"


#: A reason that depends on the case only, and the sentence that replaces it in general.
WHOLE, NAMED = "{what}", "the message names the rule of the language that the result would break"


def words(sentence: str) -> str:
    """A requirement's sentence without a case: the names of its parts are in capitals."""
    if sentence == WHOLE:
        return NAMED
    return re.sub(r"\{(\w+)\}", lambda word: word[1].upper(), sentence)
