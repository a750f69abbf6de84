"""Options of every command that searches: what the search is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

AgentOption = Annotated[
    Path | None,
    typer.Option(
        "--agent",
        exists=True,
        dir_okay=False,
        help="A trained agent, for a search that learns.",
        show_default=False,
    ),
]
SearchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="A setting of a search that learns.", show_default=False
    ),
]


#: Searches that play with the agent that comes with the SDK, where none is given and it helps.
WITH_SHIPPED = ("perfllm",)


def search_options(
    agent: Path | None, words: list[str] | None, search: str = "", target: str = ""
) -> tuple[tuple[str, str], ...]:
    """The options of a search as sorted (name, value) pairs; an agent's file comes with its SHA-256.

    Errors: typer.BadParameter for words that are no setting, and for a search that takes none.
    """
    if agent is not None or words:
        _refuse_options(search, "--agent" if agent is not None else f"--option {(words or [''])[0]}")
    options = dict[str, str]()
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
            raise typer.BadParameter(f"{word!r} is no NAME=VALUE")
        options[name] = value
    _check_settings(search, options)
    if agent is not None:
        from perfdojo_sdk.perfllm.strategies import agent_options

        options |= agent_options(agent)
    elif search in WITH_SHIPPED and not options.keys() & {"agent", "encoder"}:
        from perfdojo_sdk.perfllm.strategies import shipped_options

        options |= shipped_options(target)
    return tuple(sorted(options.items()))


def _check_settings(search: str, options: Mapping[str, str]) -> None:
    """DojoError where a search that learns has no such setting, before PyTorch is loaded."""
    from perfdojo_sdk.perfllm.strategies import LEARNED

    settings = {name: value for name, value in options.items() if name not in ("agent", "encoder")}
    if settings and search in {strategy.name for strategy in LEARNED}:
        from perfdojo_sdk.perfllm.settings import AgentSettings, changed

        changed(AgentSettings(), settings)


def _refuse_options(search: str, option: str) -> None:
    """Refuse an option that the SDK's own search would ignore, since it does not learn."""
    from perfdojo_sdk.search.strategies import STRATEGIES

    if search in {strategy.name for strategy in STRATEGIES}:
        raise typer.BadParameter(f"--search {search} takes no {option}; --search perfllm and hybrid do")
