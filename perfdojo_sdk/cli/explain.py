"""``explain``: why a move is or is not legal, and what an error code means."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from perfdojo_sdk.cli import codes
from perfdojo_sdk.cli.console import Json, emit
from perfdojo_sdk.cli.movetext import parse_move
from perfdojo_sdk.cli.sources import SourceArgument, TargetOption, open_game, plugins_for, rules_for
from perfdojo_sdk.cli.transformations import words
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.transformation import Rejection, Rules, Step

#: A code of the SDK (PD-T121), or of a plugin (ACME-003).
_CODE = re.compile(r"[A-Z]\w*-[A-Z]?\d+", re.IGNORECASE)


def command(
    source: SourceArgument,
    move: Annotated[
        str, typer.Argument(metavar="MOVE", help="A move, such as 'join_scopes(s0)'.", show_default=False)
    ] = "",
    target: TargetOption = "",
    as_json: Json = False,
) -> None:
    """Say why a move is or is not legal in a game; or, given a code such as PD-T121, what it means."""
    if not move:
        if not _CODE.fullmatch(source):
            raise typer.BadParameter("give a source and a move, or an error code")
        _explain_code(source.upper(), target, as_json)
        return
    game = open_game(plugins_for(source, target), source, target)
    result = game.rules.attempt(game.program, parse_move(move, game.rules))
    if isinstance(result, Rejection):
        error = result.error()
        emit(error.render(), {"legal": False, **error.as_json(), **_facts(result)}, as_json)
    else:
        emit(_why_legal(result, game.rules), _legal(result), as_json)


def _facts(rejection: Rejection) -> dict[str, Any]:
    """The facts that a program needs to look for another way: what is at fault, and which moves may help.

    ``established_by`` is null where the requirement, of a package, does not say, and empty where no move can.
    """
    by = rejection.established_by
    try:
        facts = rejection.refusal.as_json()
        return {"facts": facts, "established_by": None if by is None else [str(name) for name in by]}
    except (LookupError, TypeError, ValueError, AttributeError):  # a package's refusal may hold anything
        return {"facts": None, "established_by": None}


def _legal(step: Step) -> dict[str, Any]:
    return {
        "legal": True,
        "move": step.move.as_json(),
        "kind": step.legal.kind.label,
        "laws": sorted(step.legal.laws),
        "after": step.after.text,
        "became": {old: list(new) for old, new in step.made.became.items()},
        "buffers_became": {old: list(new) for old, new in step.made.buffers_became.items()},
    }


def _why_legal(step: Step, rules: Rules) -> str:
    """The requirements that were checked, and the changes the move makes."""
    requirements = rules.transformation(step.move.transformation).requirements
    laws = f" ({', '.join(sorted(step.legal.laws))})" if step.legal.laws else ""
    lines = [
        f"{step.move.text} is legal; its kind is: {step.legal.kind.label}{laws}",
        "",
        "None of these holds:",
    ]
    lines += [f"  {r.code}  {r.title}" for r in requirements]
    return "\n".join([*lines, "", "It changes:", *_changed(step)])


def _changed(step: Step) -> list[str]:
    from difflib import unified_diff

    before, after = step.before.text.splitlines(), step.after.text.splitlines()
    return [line for line in unified_diff(before, after, lineterm="", n=1) if line[:3] not in ("---", "+++")]


def _explain_code(code: str, target: str, as_json: bool) -> None:
    """The page of a code; plugins are asked only for a code that is not the SDK's."""
    entry = codes.entries().get(code) or _requirement(code, rules_for(plugins_for("", target), target))
    if entry is None:
        raise MoveError("PD-C003", f"unknown error code {code}", hint=closest(code, list(codes.entries())))
    lines = [f"{code}: {entry['title']}", "", entry["means"], "", f"try: {entry['try']}"]
    if "example" in entry:
        lines += ["", "for example:", *(f"    {line}" for line in entry["example"].splitlines())]
    emit("\n".join(lines), {"code": code, **entry}, as_json)


def _requirement(code: str, rules: Rules) -> dict[str, str] | None:
    """The reason for refusing that carries ``code``, from the transformation or veto that has it."""
    from perfdojo_sdk.hookspecs.abilities import GivesRequirements, ability

    owners = [(t.name, t.requirements) for t in rules.transformations.values()]
    naming = [ability(veto, GivesRequirements) for veto in rules.vetoes]
    owners += [("the target", tuple(each.requirements)) for each in naming if each]
    for name, requirements in owners:
        for r in requirements:
            if r.code == code:
                means = f"{name} refuses: {words(r.why)}."
                if r.semantic:
                    means += " Without this requirement a result could be wrong."
                return {"title": r.title, "means": means, "try": words(r.hint)}
    return None
