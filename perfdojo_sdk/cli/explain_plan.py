"""``explain-plan``: what the target's expert decides for a kernel, and which kernels of a model it joins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, memory, progress, seconds, table
from perfdojo_sdk.cli.models import MODULE, inputs_of, read, unsupported
from perfdojo_sdk.cli.sources import OutputOption, TargetOption, choose_target, open_game, plugins_for, save
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.core.errors import DojoError, UnavailableError, closest
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.core.dialect import Dialect, Group
    from perfdojo_sdk.core.program import Program
    from perfdojo_sdk.experts.balance import Share
    from perfdojo_sdk.graph.graph import Graph
    from perfdojo_sdk.hookspecs.services import Plan
    from perfdojo_sdk.hookspecs.types import Target
    from perfdojo_sdk.models.fusion import Edge
    from perfdojo_sdk.plugins import Plugins


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A saved game (GAME.json), a program (FILE.dojo), a kernel, a model (MODEL.onnx or"
            " FILE.py:NAME), or the folder of a model that was built.",
        ),
    ],
    target: TargetOption = "",
    threads: Annotated[
        int,
        threads_option(help="Plan for so many threads, and say how they share the work."),
    ] = 1,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", help="The shape of an input that a model leaves open: x=f32[8,3,224,224]."),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Explain this kernel of a model, with its constants, instead of the arrays between kernels.",
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An input of a program that stays as it is from call to call, such as a weight: work on"
            " it alone is then done once. May be repeated. Known for kernels of a model.",
        ),
    ] = None,
    output: OutputOption = None,
    number: Annotated[
        int, typer.Option("--game", min=1, metavar="N", help="Save this one of the expert's games.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Print what the target's expert decides for a kernel and why, and how threads share its first game.

    For a model: for each array between two kernels, whether they become one, why, the bytes that are not
    moved then, and their time; with --kernel, the plan of one of its kernels. Nothing is compiled or run.
    Numbers are estimated from the target's figures. With --output, the expert's game is saved, to be
    replayed, changed and continued; a build times all of its games, of which --game N saves another than the
    first, the likeliest. The exit code is 3 when the target's expert does not tell.
    """
    if output is not None and output.resolve() == Path(source).resolve():
        raise typer.BadParameter(f"--output would replace {source}, which is the source: name another file")
    if not is_model(source):
        asked = _of_source(source, target, given, kernel, constant or [])
    elif constant:
        raise typer.BadParameter("--constant is for programs; which inputs are constant, a model says itself")
    elif kernel is not None:
        asked = _of_model(source, target, given or [], kernel)
    else:
        if output is not None:
            raise typer.BadParameter(
                f"--output saves a game of one kernel; {source} is a model: add --kernel NAME"
            )
        rows, kernels = _edges(source, target, given or [])
        data = {"model": source, "edges": [asdict(row) for row in rows], "kernels": kernels}
        emit(_edges_text(source, rows, kernels), data, as_json)
        return
    _explain(asked, threads, output, number, as_json)


@dataclass(frozen=True)
class _Asked:
    """A kernel whose plan is asked for."""

    plugins: Plugins
    target: Target
    played: Trace
    """The moves so far; the plan goes on from there."""
    constants: tuple[str, ...]

    @property
    def program(self) -> Program:
        return self.played.program


def _of_source(
    source: str, target: str, given: list[str] | None, kernel: str | None, constants: Sequence[str]
) -> _Asked:
    """A program, a kernel, or what a game has come to; files of a model that was built know its constants."""
    from perfdojo_sdk.models.one_kernel import constants_of_file

    for option, value in (("--input", given), ("--kernel", kernel)):
        if value:
            what = f"{option} is for models, and {source} is a program or a kernel"
            if option == "--input":
                what += ", which says the shapes of its inputs itself"
            raise typer.BadParameter(what)
    plugins = plugins_for(source, target)
    game = open_game(plugins, source, target)
    program = game.program
    takes = [name for name in program.given if name in program.read_only]
    for name in constants:
        if name not in takes:
            raise _no_constant(program, name, takes)
    known = constants_of_file(plugins, Path(source), program) if Path(source).is_file() else ()
    return _Asked(plugins, game.target, game.trace, tuple(dict.fromkeys([*known, *constants])))


def _no_constant(program: Program, name: str, takes: list[str]) -> DojoError:
    what = f"--constant {ascii(name)[1:-1][:60]}: {program.name} has no such input"
    if name in program.given:
        what = f"--constant {name}: {program.name} writes into this input, so that it does not stay as it is"
    return DojoError("PD-C013", what, hint=closest(name, takes))


def _of_model(source: str, target: str, given: Sequence[str], name: str) -> _Asked:
    """One kernel of a model: as the package in a folder has it, or as `optimize` would build it."""
    from perfdojo_sdk.models.blocks import SIZES
    from perfdojo_sdk.models.manifest import read_model_manifest
    from perfdojo_sdk.models.one_kernel import kernel_of_graphs, kernel_of_package
    from perfdojo_sdk.models.optimise import prepared
    from perfdojo_sdk.plugins import load_plugins

    if Path(source).is_dir():
        manifest = read_model_manifest(Path(source))
        if target and target != manifest.target:
            raise typer.BadParameter(f"{source} was built for {manifest.target}, not for {target}")
        plugins = load_plugins(targets=[manifest.target])
        found, chosen = kernel_of_package(plugins, Path(source), name), plugins.target(manifest.target)
    else:
        graphs = _graphs(source, given, SIZES)
        plugins = load_plugins(targets=[target] if target else None)
        chosen = choose_target(plugins, target)
        graphs = [prepared(plugins, chosen, graph, fuse=True, freeze=False)[0] for graph in graphs]
        found = kernel_of_graphs(plugins, chosen, graphs, name)
    return _Asked(plugins, chosen, Trace(found.program), found.constants)


def _explain(asked: _Asked, threads: int, output: Path | None, number: int, as_json: bool) -> None:
    """Print the plan of a kernel, and save one of its games."""
    from perfdojo_sdk.experts.balance import shares
    from perfdojo_sdk.hookspecs.abilities import ExplainsPlans, KnowsConstants, ability

    target, constants = asked.target, asked.constants
    played = asked.plugins.guarded_pass(target)
    knows = ability(played, KnowsConstants) if constants else None
    expert = ability(knows.knowing(constants) if knows is not None else played, ExplainsPlans)
    if expert is None:
        what = f"the expert of target {target.name} does not explain its plans"
        raise UnavailableError("PD-G016", what, hint="`build-library` plays and measures its games")
    if constants and knows is None:
        progress(f"the expert of target {target.name} plans the same, whichever inputs are constant")
    known = target.on(asked.plugins.machine_figures(target), threads)
    plan = expert.plan(asked.program, asked.plugins.rules(target), known)
    if output is not None or number > 1:
        _save(asked, plan, output, number)
    shared = shares(plan.games[0].program, target.dialect, threads) if plan.games else ()
    grouped = [list(grouped_in(game.program, target.dialect)) for game in plan.games]
    name = asked.program.name
    data = {"constants": list(constants), **_data(name, target.name, plan, shared, threads, grouped)}
    text = _text(name, plan, target.dialect, shared, threads, grouped)
    if constants:
        text += f"\nconstant from call to call: {', '.join(constants)}"
    emit(text, data, as_json)


def _save(asked: _Asked, plan: Plan, output: Path | None, number: int) -> None:
    """Save a game of the plan: after the moves of the game that it goes on from, if any."""
    from perfdojo_sdk.game import Game

    if number > len(plan.games):
        raise typer.BadParameter(f"--game {number}: the expert plays {number_of(len(plan.games), 'games')}")
    if output is None:
        raise typer.BadParameter("--game needs --output, which says where to save it")
    steps = (*asked.played.steps, *plan.games[number - 1].steps)
    save(Game(asked.target, asked.plugins.rules(asked.target), Trace(asked.played.root, steps)), output)


@dataclass(frozen=True)
class Grouped:
    """A scope of a game's program that one instruction adds up, with its declaration by the target."""

    place: str
    statement: str
    group: Group


def grouped_in(program: Program, dialect: Dialect) -> Iterator[Grouped]:
    """The sums in groups of a program, in program order."""
    from perfdojo_sdk.core.groups import group_of

    for _, scope in program.scopes:
        suffix = dialect.suffixes.get(scope.suffix)
        for leaf in scope.leaves if suffix is not None and suffix.groups else ():
            group = group_of(leaf.statement, suffix.groups if suffix else (), scope.size)
            if group is not None:
                yield Grouped(scope.id, leaf.statement.id, group)


def is_model(source: str) -> bool:
    """True for a file or module that holds a model, and for the folder of one that was built."""
    return source.lower().endswith(".onnx") or bool(MODULE.fullmatch(source)) or Path(source).is_dir()


def _graphs(source: str, given: Sequence[str], sizes: Sequence[int]) -> list[Graph]:
    """The graph of a model, or one for each of ``sizes`` rows if they are free."""
    found = read(source, inputs_of(given))
    if found.free is not None:
        return [found.free.at(size) for size in sizes]
    if found.graph is None:
        error = unsupported(Path(source).name, list(found.refused))
        raise found.dependent or error
    return [found.graph]


def _edges(source: str, target: str, given: Sequence[str]) -> tuple[list[Edge], list[str]]:
    """The verdicts on the arrays of a model, and the names of its kernels: those that it was built by, or
    those for a target now."""
    from perfdojo_sdk.graph.codes import with_codes_moved
    from perfdojo_sdk.graph.integers import unit_of, with_integer_sums
    from perfdojo_sdk.graph.passes import without_duplicates
    from perfdojo_sdk.models.blocks import SIZES
    from perfdojo_sdk.models.fusion import Edge, fused
    from perfdojo_sdk.models.manifest import read_model_manifest
    from perfdojo_sdk.models.optimise import kernels_of, plan_for
    from perfdojo_sdk.plugins import load_plugins

    if Path(source).is_dir():
        manifest = read_model_manifest(Path(source))
        edges = [Edge(**entry.model_dump()) for entry in manifest.edges]
        return edges, list(dict.fromkeys(manifest.kernels))
    [graph] = _graphs(source, given, SIZES[-1:])
    plugins = load_plugins(targets=[target] if target else None)
    chosen = choose_target(plugins, target)
    graph = with_codes_moved(without_duplicates(graph))
    graph, _ = with_integer_sums(graph, unit_of(chosen.dialect), laws=False)
    plan = plan_for(plugins, chosen, graph)
    return list(plan.edges), [kernel.name for kernel in kernels_of(fused(graph, plan))]


def decision(edge: Edge) -> str:
    """The verdict on an array between two nodes."""
    return "one kernel" if edge.fused else "apart"


def _edges_text(source: str, edges: Sequence[Edge], kernels: Sequence[str]) -> str:
    rows = [
        (
            edge.value,
            edge.producer,
            edge.consumer,
            decision(edge),
            edge.why,
            f"{edge.bytes / 1024:.1f}",
            seconds(edge.seconds),
        )
        for edge in edges
    ]
    joined = [edge for edge in edges if edge.fused]
    spared, time = sum(edge.bytes for edge in joined), sum(edge.seconds for edge in joined)
    columns = ("array", "from", "to", "decision", "why", "KiB", "time")
    lines = [
        table(columns, rows, width=WIDEST) if rows else "no kernel reads what another one writes",
        f"{Path(source).name}: {len(joined)} of {number_of(len(edges), 'arrays')} stay inside of a kernel",
        f"estimated for one thread: {memory(spared)} are not moved, {seconds(time)} spared",
    ]
    if kernels:
        lines.append(f"--kernel NAME explains the plan of one of {number_of(len(kernels), 'kernels')}:")
        lines += [f"  {name}" for name in kernels]
    return "\n".join(lines)


#: Most columns of a table where no terminal reads it: reasons are sentences, which a line of a file or a mail
#: does not hold whole.
WIDEST = 160

#: A word of the table -> its meaning in plain words; those that the table uses are printed below it. These
#: are ways to plan, in the column of decisions.
WAYS: Mapping[str, str] = {
    "contraction": "a sum of products whose factors are used for many results each, such as a matrix "
    "product; or one of distances between two elements, or of other short values of them",
    "rows": "loops along rows of arrays, one whole row after the other",
    "nests": "loops that are planned one by one, each with all that it holds",
    "stencil": "results that read the neighbours of one element",
    "block rows": "loops of which a few rows go through all, one after the other",
    "recurrence": "a loop whose iterations need what the one before made",
}
#: Kinds of statements, in the column of reasons.
KINDS: Mapping[str, str] = {
    "map": "a statement that makes each element by itself",
    "reduction": "a statement that combines many elements into one, such as a sum or a maximum",
    "window": "a sum over neighbours, such as a convolution",
    "scan": "a statement in which each element needs the one before it",
    "gather": "a statement that reads elements at computed positions",
    "transpose": "a copy that changes the order of dimensions",
}
#: Words of any column.
WORDS: Mapping[str, str] = {
    "{N}": "the iterator of loop number N of the nest; {0} is the outermost",
    "nests": "loops at the root of the program, each with all that it holds",
    "parts": "loops that are planned together, and the way to do that",
    "tiles": "blocks of results that stay in vector registers while their sums are computed",
    "lanes": "the elements of a vector, which one instruction computes together",
    "at least": "the time that no order of loops can beat, by the target's figures",
    "most reads of one element": "how often one nest of loops uses the same element of an array, at most",
    "iterations": "how often statements run, all loops counted",
    "packed": "copied once, into the order in which the loops read it",
    "second cache": "the second-level cache, which each core has for itself",
}


def _text(
    kernel: str,
    plan: Plan,
    dialect: Dialect,
    shared: tuple[Share, ...],
    threads: int,
    grouped: Sequence[Sequence[Grouped]],
) -> str:
    rows = [
        (d.rule, d.place, d.choice, d.reason, ", ".join(_number(k, v) for k, v in d.numbers.items()))
        for d in plan.decisions
    ]
    lines = [table(("rule", "place", "decision", "why", "numbers"), rows, width=WIDEST)]
    lines += [f"  {word}: {means}" for word, means in _legend(plan, rows, dialect).items()]
    counts = in_words([str(len(game.steps)) for game in plan.games])
    games = f"{kernel}: {number_of(len(plan.games), 'games')}" + (f", of {counts} moves" if counts else "")
    lines.append(games + ("; a build times each of them" if len(plan.games) > 1 else ""))
    for number, game in enumerate(grouped, 1):
        where = f"game {number}: " if len(grouped) > 1 else ""
        for row, places in _by_group(game).items():
            lines.append(f"{where}{row} ({', '.join(places)})")
    if threads > 1 and shared:
        lines.append(f"{'the game' if len(plan.games) == 1 else 'game 1'} on {threads} threads:")
        lines += [f"  {_shared(share)}" for share in shared]
    return "\n".join(lines)


def in_words(items: Sequence[str]) -> str:
    """The items in one sentence: ``1``, ``1 and 2``, ``1, 2 and 3``."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def _legend(plan: Plan, rows: Sequence[Sequence[str]], dialect: Dialect) -> dict[str, str]:
    """The words of a table that a reader may not know, and what they mean. Those of a target are its own."""
    planned = [d for d in plan.decisions if d.rule in ("whole", "parts")]
    places = " ".join(d.choice for d in plan.decisions if d.rule == "streaming")
    texts = (
        (WAYS, " ".join(d.choice for d in planned)),
        (KINDS, " ".join(d.reason for d in planned if d.rule == "parts")),
        ({name: where.doc for name, where in dialect.locations.items()}, places),
        (WORDS, " ".join(cell for row in rows for cell in row)),
    )
    found: dict[str, str] = {}
    for words, text in texts:
        for word, means in words.items():
            if word not in found and _is_used(word, text):
                found[word] = means
    return found


def _is_used(word: str, text: str) -> bool:
    pattern = r"\{\d+\}" if word == "{N}" else rf"\b{re.escape(word)}\b"
    return re.search(pattern, text) is not None


def _by_group(found: Sequence[Grouped]) -> dict[str, list[str]]:
    """The work of an instruction, in words -> the scopes where it does that."""
    places: dict[str, list[str]] = {}
    for each in found:
        group = each.group
        said = f"{group.instruction or 'one instruction'} adds up {group.size} products"
        said += f" of {group.factors[0]} and {group.factors[1]} at a time in each sum of {group.total}"
        places.setdefault(said, []).append(each.place)
    return places


def _shared(share: Share) -> str:
    """The way in which threads share one node at the root of a game's program."""
    if not share.place:
        return f"{share.root}: one of them does it, and the others wait"
    busy = f"{100 * share.balance:.0f} % of their time is work"
    return f"{share.root}: they share {share.iterations:,} iterations of {share.place}; {busy}"


#: Names of figures that are bytes without saying so.
_SIZES = frozenset(("largest cache", "second cache"))


def _number(name: str, value: float | str) -> str:
    """A figure with its name, in the unit that suits it."""
    if isinstance(value, str):
        return f"{name} {value}"
    if name.startswith("us "):
        return f"{name.removeprefix('us ')} {seconds(value * 1e-6)}"
    if name in _SIZES or re.match(r"bytes\b", name):
        return f"{re.sub('^bytes', 'data', name)} {memory(value)}"
    return f"{name} {value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{name} {value:.4g}"


def _data(
    kernel: str,
    target: str,
    plan: Plan,
    shared: tuple[Share, ...],
    threads: int,
    grouped: Sequence[Sequence[Grouped]],
) -> dict[str, Any]:
    return {
        "name": kernel,
        "target": target,
        "threads": threads,
        "decisions": [
            {
                "rule": d.rule,
                "place": d.place,
                "choice": d.choice,
                "reason": d.reason,
                "numbers": dict(d.numbers),
            }
            for d in plan.decisions
        ],
        "games": [[step.move.text for step in game.steps] for game in plan.games],
        "groups": [
            [
                {
                    "place": each.place,
                    "statement": each.statement,
                    "factors": list(each.group.factors),
                    "total": each.group.total,
                    "size": each.group.size,
                    "instruction": each.group.instruction,
                }
                for each in game
            ]
            for game in grouped
        ],
        "shares": [
            {"root": s.root, "place": s.place, "iterations": s.iterations, "balance": s.balance}
            for s in shared
        ],
    }
