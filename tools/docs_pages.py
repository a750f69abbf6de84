"""Pages that the code writes about itself, made whenever the documentation is built.

A hook of mkdocs. Each transformation gets a page from its docstring and its requirements; the errors,
the hooks, the commands, the fields of a target file and whole source files are filled in where their
markers stand.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from perfdojo_sdk import cli
from perfdojo_sdk.cli import COMMANDS, codes
from perfdojo_sdk.cli.transformations import NAMED, WHOLE, summary, usage
from perfdojo_sdk.core.transformation import Requirement, Transformation
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs import specs, types
from perfdojo_sdk.hookspecs.abilities import ABILITIES
from perfdojo_sdk.hookspecs.imports import IMPORTABLE
from perfdojo_sdk.testing import conformance
from perfdojo_sdk.testing.context import BUDGETS, Part

ROOT = Path(__file__).parent.parent
#: Stands for a file of the repository.
SOURCE = re.compile(r"<!-- source (\S+) -->")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the page of every transformation under "Moves"."""
    assert config.nav is not None
    for entry in config.nav:
        if isinstance(entry, dict) and "Moves" in entry:
            entry["Moves"] = ["moves/index.md", *({name: f"moves/{name}.md"} for name in GENERIC)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "moves/index.md", content=moves_index()))
    for transformation in GENERIC.values():
        path = f"moves/{transformation.name}.md"
        files.append(File.generated(config, path, content=move_page(transformation)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return filled(markdown)


def filled(markdown: str) -> str:
    """A page with everything that the code says in place of the markers."""
    for marker, make in markers().items():
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    return SOURCE.sub(lambda found: source(found[1]), markdown)


def markers() -> dict[str, Callable[[], str]]:
    """Marker -> what stands in its place."""
    return {
        "<!-- error codes -->": error_reference,
        "<!-- hooks -->": hook_reference,
        "<!-- abilities -->": ability_reference,
        "<!-- imports -->": import_reference,
        "<!-- commands -->": command_reference,
        "<!-- target file -->": target_file_reference,
        "<!-- checks -->": check_reference,
    }


def source(path: str) -> str:
    """A file of the repository as a block of code."""
    text = (ROOT / path).read_text(encoding="utf-8").rstrip()
    return f"```{Path(path).suffix.removeprefix('.').replace('py', 'python')}\n{text}\n```"


# -- moves -----------------------------------------------------------------------------------------


def moves_index() -> str:
    lines = [
        "# Moves",
        "",
        "A move applies one small transformation at one place. It is offered only when every requirement",
        "of the transformation holds there; each page lists them with their codes. A target's plugin may",
        "bring moves of its own; `perfdojo-sdk transformations --target NAME` lists those too.",
        "",
        "| move | what it does |",
        "|---|---|",
    ]
    lines += [f"| [`{usage(t)}`]({t.name}.md) | {summary(t)} |" for t in GENERIC.values()]
    return "\n".join(lines) + "\n"


def move_page(transformation: Transformation) -> str:
    sentence, _, example = document(transformation).partition("\n\n")
    lines = [f"# {transformation.name}", "", f"`{usage(transformation)}`", "", sentence, ""]
    lines += sections(example)
    if transformation.parameters:
        lines += ["## Parameters", "", "| name | type | meaning |", "|---|---|---|"]
        lines += [f"| `{p.name}` | {p.type.__name__} | {p.doc} |" for p in transformation.parameters]
        lines.append("")
    lines += ["## When it applies", "", *applies(transformation), "", "## When it refuses", ""]
    lines += ["What stands in *italics* is named by the message, with the line of the program.", ""]
    for requirement in transformation.requirements:
        lines += refusal(requirement)
    lines += ["## How to undo it", "", *undoing(transformation)]
    return "\n".join(lines) + "\n"


def applies(transformation: Transformation) -> Iterator[str]:
    where = "scope or statement" if transformation.place == "node" else transformation.place
    yield f"At a {where}, wherever none of the reasons below holds."
    laws = sorted({r.law for r in transformation.requirements if r.law})
    if laws:
        yield f"It uses a law that rounding breaks, `{'`, `'.join(laws)}`; `build-library --allow` says"
        yield "whether such moves may be played."
    yield "`perfdojo-sdk moves SOURCE` lists the places, and `perfdojo-sdk explain SOURCE MOVE` says for one"
    yield "of them why not, or what the move changes there."


def undoing(transformation: Transformation) -> Iterator[str]:
    if transformation.undo != Transformation.undo:
        yield f"Play {transformation.undo.removesuffix(', or ' + Transformation.undo)}."
        yield ""
    yield "In a saved game, `perfdojo-sdk undo GAME.json NUMBER` takes the move out, wherever it stands, and"
    yield "keeps the later ones that still apply."


def refusal(requirement: Requirement[Any]) -> Iterator[str]:
    yield f"### {requirement.code}: {spoken(requirement.title)} {{#{requirement.code.lower()}}}"
    yield ""
    guard = " Without this requirement a result could be wrong." if requirement.semantic else ""
    why = spoken(requirement.why)
    yield f"{why[0].upper()}{why[1:]}.{guard}"
    yield ""
    yield f"*Try:* {spoken(requirement.hint)}."
    yield ""


def spoken(sentence: str) -> str:
    """A requirement's sentence without a case: the words that a case fills in are in italics."""
    if sentence == WHOLE:
        return NAMED
    escaped = re.sub(r"([*<>|])", r"\\\1", sentence)
    return re.sub(r"\{(\w+)\}", r"*\1*", escaped)


def sections(example: str) -> Iterator[str]:
    """The docstring's ``before:`` and ``after: MOVES`` with the programs under them as code."""
    for line in example.splitlines():
        word, colon, moves = line.partition(":")
        if colon and word in ("before", "after"):
            yield from ("", f"**{word}** `{moves.strip()}`" if moves else f"**{word}**", "")
        else:
            yield line
    yield ""


def document(transformation: Transformation) -> str:
    return inspect.getdoc(type(transformation)) or ""


# -- errors ----------------------------------------------------------------------------------------


def error_reference() -> str:
    lines: list[str] = []
    for code, entry in sorted(codes.entries().items()):
        lines += error_entry(code, entry)
    lines += ["## Reasons for refusing a move", "", "| code | move | reason |", "|---|---|---|"]
    for transformation in GENERIC.values():
        for r in transformation.requirements:
            link = f"moves/{transformation.name}.md#{r.code.lower()}"
            lines.append(f"| [{r.code}]({link}) | {transformation.name} | {r.title} |")
    return "\n".join(lines)


def error_entry(code: str, entry: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {code}: {entry['title']} {{#{code.lower()}}}", "", entry["means"].strip(), "")
    yield from (f"*Try:* {entry['try']}", "")
    if "example" in entry:
        yield from ("For example:", "", "```text", entry["example"].rstrip(), "```", "")


# -- the conformance kit ---------------------------------------------------------------------------


def check_reference() -> str:
    """Every check of the kit, what it proves and what it needs; every budget."""
    lines = []
    for about, checks in (
        ("The package", conformance.PACKAGE_CHECKS),
        ("The game", conformance.GAME_CHECKS),
        ("The code", conformance.KERNEL_CHECKS),
        ("The runner", conformance.RUNNER_CHECKS),
    ):
        lines += [f"### {about}", "", "| check | what it proves | needs |", "|---|---|---|"]
        for check in checks:
            needs = ", ".join(part.value for part in check.needs if part is not Part.TARGET)
            lines.append(f"| {check.name} | {check.doc} | {needs} |")
        lines.append("")
    columns = ("", "for", "random games", "moves of each", "shapes of a kernel", "seconds of a check")
    lines += ["### Budgets", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for b in BUDGETS.values():
        name = "no option" if b.name == "default" else f"`--{b.name}`"
        lines.append(f"| {name} | {b.doc} | {b.walks} | {b.moves} | {b.shapes} | {b.seconds:g} |")
    return "\n".join(lines)


# -- hooks and commands ----------------------------------------------------------------------------


def hook_reference() -> str:
    """Every hook with its signature, and how the toy target of the tests implements it."""
    toy = toy_target()
    lines: list[str] = []
    for name, hook in vars(specs).items():
        if not name.startswith("perfdojo_"):
            continue
        signature = inspect.signature(hook)
        lines += [
            f"### {name} {{#{name}}}",
            "",
            "```python",
            f"def {name}{str(signature).replace(chr(39), '')}: ...",
            "```",
            "",
            inspect.getdoc(hook) or "",
            "",
            f"*{answers(hook)}* For example, in the toy target:",
            "",
            "```python",
            inspect.getsource(getattr(toy, name)).strip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def ability_reference() -> str:
    """Every ability: whose, what it is and when the SDK uses it, and its members."""
    lines: list[str] = []
    for declared in ABILITIES:
        lines += [f"### {declared.name} {{#{declared.name.lower()}}}", "", f"Of a {declared.kind}.", ""]
        lines += [(inspect.getdoc(declared.protocol) or "").replace("``", "`"), "", "```python"]
        lines += [_member(declared.protocol, name) for name in declared.members if name[0] != "_"]
        lines += ["```", ""]
    return "\n".join(lines)


def _member(protocol: Any, name: str) -> str:
    """A method, or an attribute, as one writes it."""
    member = vars(protocol)[name]
    if isinstance(member, property):
        return f"{name}: {inspect.signature(member.fget).return_annotation}"  # type: ignore[arg-type]
    return f"def {name}{str(inspect.signature(member)).replace(chr(39), '')}: ..."


def import_reference() -> str:
    """Every module that a plugin may import, and what is in it."""
    lines = ["| module | what a plugin finds in it |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{module}` | {what} |" for module, what in IMPORTABLE.items())])


def answers(hook: Any) -> str:
    """A sentence on how the answers of several plugins are combined."""
    if hook.perfdojo_spec["firstresult"]:
        return "The first answer counts."
    if inspect.signature(hook).return_annotation == "None":
        return "Everybody is told."
    return "All answers are collected."


def toy_target() -> Any:
    """The target of the tests, which implements every hook."""
    folder = str(ROOT / "tests" / "toy_target")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("perfdojo_toy")


def target_file_reference() -> str:
    """Every field of a target file, from the models that check it."""
    lines: list[str] = []
    for model, title in (
        (types.Capabilities, "The file"),
        (types.SuffixFile, "An entry of `extra_suffixes`"),
        (types.LocationFile, "An entry of `extra_locations`"),
        (types.CacheLevel, "An entry of `caches`"),
        (types.MemoryFigures, "`memory`"),
    ):
        lines += [f"### {title}", "", "| field | default | meaning |", "|---|---|---|"]
        meaning = meanings(model)
        for name, field in model.model_fields.items():
            default = "must be given" if field.is_required() else f"`{written(field.default)}`"
            lines.append(f"| `{name}` | {default} | {meaning[name]} |")
        lines.append("")
    return "\n".join(lines)


def meanings(model: type) -> dict[str, str]:
    """Field -> the text under it in the source."""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: below.value.value
        for field, below in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def written(default: object) -> str:
    """A default as the file would have it."""
    if isinstance(default, tuple):
        return f"[{', '.join(map(str, default))}]"
    if default is None or isinstance(default, bool):
        return "none" if default is None else str(default).lower()
    return str(default)


def command_reference() -> str:
    """Every command with its own help text."""
    lines: list[str] = []
    for name, line in COMMANDS.items():
        lines += [f"## {name} {{#{name}}}", "", f"{line[0].upper()}{line[1:]}.", ""]
        for words, command in commands(f"perfdojo-sdk {name}", cli.parser(name)):
            context = command.make_context(words, ["--help"], resilient_parsing=True)
            lines += ["```text", textwrap.dedent(command.get_help(context)), "```", ""]
    return "\n".join(lines)


def commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command and, where it has them, its own commands."""
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(f"{words} {name}", each)
