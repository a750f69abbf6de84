"""Reading of models for commands: the inputs that users give, and the refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfdojo_sdk.cli.console import progress, table
from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.frontends.sizes import fits, renamed, text_of
from perfdojo_sdk.frontends.torch.named import no_name
from perfdojo_sdk.graph.refusals import Malformed

if TYPE_CHECKING:
    from perfdojo_sdk.graph.graph import Graph
    from perfdojo_sdk.graph.rows import FreeRows
    from perfdojo_sdk.models.bucketing import Lengths
    from perfdojo_sdk.models.policy import Policy
    from perfdojo_sdk.models.racing import Offers

_INPUT = re.compile(r"(?P<name>[^=]{1,1000})=(?:(?P<dtype>[a-z0-9]+)?\[(?P<sizes>[A-Za-z0-9_, ]*)\])")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}")

#: A module of PyTorch in a file.
MODULE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_ARCHIVES = (".pt2", ".pt", ".pth", ".ckpt")
_PYTHON = re.compile(r"(?P<file>.+\.py)(:.*)?", re.DOTALL)

Sizes = tuple[int | str, ...]
"""A shape; an open size is a name."""
Inputs = dict[str, tuple[str, Sizes]]
"""Input -> its dtype, or nothing if that is left out, and its shape."""
Row = tuple[str, str, str, str]
"""Node, operator, what, and why."""
Shapes = Mapping[str, tuple[int, ...]]

DEPENDENT = "rows of an open dimension depend on each other, or on their number"


@dataclass(frozen=True)
class Read:
    """A model as a graph, or as one for every number of rows; or what is not supported."""

    graph: Graph | None = None
    """The graph; for one number of rows if they are free."""
    free: FreeRows | None = None
    refused: Sequence[Row] = ()
    operators: Mapping[str, int] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    """Node -> its operator, as far as the model names nodes."""
    dependent: DojoError | None = None
    """The error if rows cannot be free, or shapes depend on values; ``refused`` lists the same nodes."""
    offers: Offers | None = None
    """The model in its own format, if races were asked for."""
    rest: Graph | None = None
    """The part that can be built of a model that is no graph, for a target that may refuse parts of it."""
    lengths: Lengths | None = None
    """The model at every length of a dimension, if buckets were asked for; the rest is for the largest."""


@dataclass(frozen=True)
class Buckets:
    """The lengths of a dimension that a user chose, and what inputs are padded with."""

    name: str
    lengths: tuple[int, ...]
    pads: Mapping[str, float] = field(default_factory=dict)


Lower = Callable[[Shapes], Read]
"""Lowers a model for inputs of these shapes."""


def _no_folder(folder: Path) -> DojoError:
    """The error for a folder in place of a model."""
    hint = "give a model: MODEL.onnx or FILE.py:NAME"
    if not (folder / "model.json").is_file():
        return Malformed(f"{folder} is a folder, and no file of a model", hint=hint)
    why = "it holds a model that was built, which is not built again"
    hint = "give what it was built from, MODEL.onnx or FILE.py:NAME; "
    hint += f"`show {folder}` prints what it takes and gives"
    return Malformed(f"{folder} is no file of a model", why=why, hint=hint)


def read(
    model: str,
    inputs: Inputs,
    most: int | None = None,
    policy: Policy | None = None,
    elsewhere: Mapping[str, str] | None = None,
    weights: Path | None = None,
    buckets: Buckets | None = None,
) -> Read:
    """A file of ONNX or ``FILE.py:NAME``. An outermost size of inputs that is a name, or that the model
    leaves open, is free, up to ``most``.

    ``policy``: its fallback runs what is not supported, and the nodes of ``elsewhere``, for these reasons.
    ``weights``: a checkpoint for a module. ``buckets``: lengths of one more open size, in any dimension.
    """
    module = MODULE.fullmatch(model)
    if module is None and (python := _PYTHON.fullmatch(model)):
        raise no_name(Path(python["file"]))
    if model.lower().endswith(_ARCHIVES):
        what = f"{model} is an archive of PyTorch, which may hold pickles: they run code, and are not read"
        hint = "write FILE.py:NAME of a function that returns torch.export.load(...) of a file that you trust"
        raise DojoError("PD-O023", what, hint=hint)
    if Path(model).is_dir():
        raise _no_folder(Path(model))
    asked = policy is not None and bool(policy.fallback or policy.prefer_faster)
    if asked and module is not None:
        what = f"--fallback and --prefer-faster are for models of ONNX, and {model} is a PyTorch module"
        hint = 'torch.compile(net, backend="perfdojo") runs there what has no kernel'
        raise UnavailableError("PD-O043", what, hint=hint)
    if weights is not None and module is None:
        raise typer.BadParameter("--weights is for modules, FILE.py:NAME; a file of ONNX has its own")
    try:
        if module is not None:
            declared, lower, limits = _of_torch(Path(module["file"]), module["name"], inputs, weights)
        else:
            (declared, lower), limits = _of_onnx(Path(model), inputs, policy, elsewhere), {}
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("onnx", "ml_dtypes", "google", "torch"):
            raise
        kind = "torch" if module is not None else "onnx"
        what = f"models of {'PyTorch' if module is not None else 'ONNX'} need the package {kind}"
        raise UnavailableError("PD-O015", what, hint=f"pip install 'perfdojo-sdk[{kind}]'") from None
    shapes = {**declared, **{name: shape for name, (_, shape) in inputs.items()}}
    longest = _within(shapes, limits)
    if buckets is not None:
        if max(buckets.lengths) > longest.get(buckets.name, max(buckets.lengths)):
            raise _beyond(buckets.name, max(buckets.lengths), longest[buckets.name])
        return _with_buckets(lower, shapes, buckets, most)
    if (name := free_name(shapes)) in longest:
        from perfdojo_sdk.graph.rows import MOST_ROWS

        most = min(most or MOST_ROWS, longest[name])
    return _with_shapes(lower, shapes, most, asked)


def _within(shapes: Mapping[str, Sizes], limits: Mapping[str, Sequence[int | None]]) -> dict[str, int]:
    """Open size -> the most that it may be; a number beyond such a limit is refused."""
    found: dict[str, int] = {}
    for of, shape in shapes.items():
        for size, limit in zip(shape, limits.get(of, ()), strict=False):
            if limit is not None and isinstance(size, str):
                found[size] = min(limit, found.get(size, limit))
            elif limit is not None and size > limit:  # type: ignore[operator]
                raise _beyond(f"a size of {ascii(of)[1:-1][:60]}", size, limit)
    return found


def _beyond(what: str, size: int | str, limit: int) -> DojoError:
    hint = f"give at most {limit}, or export it with a larger Dim(..., max={size})"
    return DojoError(
        "PD-O062", f"{what} is {size}, and the program was exported for at most {limit}", hint=hint
    )


def _with_shapes(lower: Lower, shapes: Mapping[str, Sizes], most: int | None, asked: bool = False) -> Read:
    """The model for inputs of these shapes, one size of which may be free. ``asked``: for help of a peer,
    which free sizes do not have."""
    name = free_name(shapes)
    if not name:
        fixed = {n: tuple(s for s in shape if isinstance(s, int)) for n, shape in shapes.items()}
        return lower(fixed)
    if asked:
        what = f"--fallback and --prefer-faster need fixed sizes, and {ascii(name)[1:-1][:60]} is open"
        raise UnavailableError("PD-O043", what, hint="give every size: --input NAME=DTYPE[SIZES]")
    return _with_free_rows(lower, shapes, name, most)


def _with_buckets(lower: Lower, shapes: Mapping[str, Sizes], buckets: Buckets, most: int | None) -> Read:
    """The model at every length of the dimension, read for the largest bucket."""
    from perfdojo_sdk.models.bucketing import Lengths, checked_buckets

    name, lengths = buckets.name, checked_buckets(buckets.lengths)
    axes = {n: tuple(i for i, size in enumerate(shape) if size == name) for n, shape in shapes.items()}
    if not any(axes.values()):
        names = list(dict.fromkeys(s for shape in shapes.values() for s in shape if isinstance(s, str)))
        shown = ", ".join(ascii(n)[1:-1][:60] for n in names[:20])
        what = f"--buckets {name}=...: no input has a size of this name"
        hint = f"name it in the inputs that have it, such as --input 'ids=i64[1,{name}]'"
        hint += f"; or --buckets {shown.split(', ')[0]}=..." if names else ""
        raise DojoError("PD-O054", what, why=f"the open sizes are {shown}" if names else "", hint=hint)

    def read_at(length: int) -> Read:
        sized = {n: tuple(length if s == name else s for s in shape) for n, shape in shapes.items()}
        return _with_shapes(lower, sized, most)

    def at(length: int) -> Graph | FreeRows:
        found = first if length == lengths[-1] else read_at(length)
        if found.graph is None:
            raise found.dependent or unsupported(f"the model at {name} = {length}", list(found.refused))
        made = found.free or found.graph
        assert made is not None, "a model is read, or refused"
        return made

    first = read_at(lengths[-1])
    having = {n: each for n, each in axes.items() if each}
    return replace(first, lengths=Lengths(name, lengths, having, at, buckets.pads))


def free_name(shapes: Mapping[str, Sizes]) -> str:
    """The name of the one free size, which is the outermost of one or more inputs; empty if none is."""
    names: dict[str, None] = {}
    for of, shape in shapes.items():
        names.update(dict.fromkeys(size for size in shape[:1] if isinstance(size, str)))
        inner = [size for size in shape[1:] if isinstance(size, str)]
        if inner:
            what = f"input {ascii(of)[1:-1][:60]} has the open size {ascii(inner[0])[1:-1][:60]}"
            hint = f"give its shape, with a name for the outermost size at most: --input '{of[:60]}=...'; or"
            hint += f" choose lengths: --buckets {ascii(inner[0])[1:-1][:60]}=16,32,64"
            why = "only the outermost size of an input may be open without buckets"
            raise DojoError("PD-O052", what, why=why, hint=hint)
    if len(names) > 1:
        what = f"the sizes {', '.join(ascii(n)[1:-1][:60] for n in names)} are open"
        hint = "give inputs with as many rows the same name, and the others sizes: --input NAME=DTYPE[SIZES]"
        raise DojoError("PD-O052", what, why="one size may be free", hint=hint)
    return next(iter(names), "")


def _with_free_rows(lower: Lower, shapes: Mapping[str, Sizes], name: str, most: int | None) -> Read:
    from perfdojo_sdk.graph.refusals import Malformed
    from perfdojo_sdk.graph.rows import HINT, LOWERED_AT, MOST_ROWS, RowsDepend, free_rows

    shown = ascii(name)[1:-1][:60]

    def shapes_at(rows: int) -> Shapes:
        return {n: tuple(s if isinstance(s, int) else rows for s in shape) for n, shape in shapes.items()}

    def at(rows: int) -> Read:
        try:
            return lower(shapes_at(rows))
        except Malformed as error:
            why = f"{shown} was tried with {rows} rows" + (f"; {error.why}" if error.why else "")
            raise Malformed(error.what, why, error.hint or HINT) from None

    first = at(LOWERED_AT[0])
    if first.graph is None:
        return first

    def lowered_at(rows: int) -> Graph:
        found = first if rows == LOWERED_AT[0] else at(rows)
        if found.graph is None:
            reasons = [(node, f"{what} ({why})") for node, _, what, why in found.refused]
            raise RowsDepend([(node, f"with {rows} rows: {why}") for node, why in reasons])
        return found.graph

    free = [n for n, shape in shapes.items() if shape[:1] == (name,)]
    try:
        made = free_rows(lowered_at, free, shown, most or MOST_ROWS)
    except RowsDepend as error:
        rows = [(node, first.named.get(node, ""), why, DEPENDENT) for node, why in error.found]
        return Read(None, None, rows, first.operators, dependent=error)
    return Read(first.graph, made, (), first.operators, first.named)


def _of_onnx(
    path: Path, inputs: Inputs, policy: Policy | None, elsewhere: Mapping[str, str] | None
) -> tuple[dict[str, Sizes], Lower]:
    from perfdojo_sdk.frontends.onnx.edges import items_of
    from perfdojo_sdk.frontends.onnx.lowering import lower
    from perfdojo_sdk.frontends.onnx.reading import read_model
    from perfdojo_sdk.frontends.onnx.sizes import declared_dtypes, declared_sizes, sequences_in

    model, folder = read_model(path)
    declared = declared_sizes(model)
    dtypes = declared_dtypes(model)
    for name in sequences_in(model):
        dtypes |= dict.fromkeys(items_of(name, inputs), dtypes.get(name))
    _check_inputs(path.name, inputs, dtypes, declared)
    # A user may call an open size by another name, which then holds for all inputs that share it.
    sizes = renamed(declared, {name: shape for name, (_, shape) in inputs.items()})

    def run(shapes: Shapes) -> Read:
        peer, races = (policy.fallback, bool(policy.prefer_faster)) if policy is not None else ("", False)
        found = lower(model, shapes, folder=folder, peer=peer, elsewhere=elsewhere, races=races, listed=True)
        rows = [(r.node, r.operator, r.what, r.reason.value) for r in found.refusals]
        return Read(
            found.graph, None, rows, found.operators, found.named, found.needed, found.sources, found.rest
        )

    return sizes, run


def _check_inputs(
    name: str, inputs: Inputs, declared: Mapping[str, str | None], sizes: Mapping[str, Sizes]
) -> None:
    """Refuse inputs that a model lacks, and dtypes and sizes other than its own."""
    for of, (dtype, shape) in inputs.items():
        if of not in declared:
            what = f"{name} takes no input {ascii(of)[:60]}"
            shown = ", ".join(ascii(each)[1:-1][:60] for each in list(declared)[:20])
            raise DojoError("PD-O062", what, hint=f"its inputs are {shown}")
        own = declared[of]
        if dtype and own and dtype != own:
            what = f"input {ascii(of)[1:-1][:60]} of {name} is {own}, not {dtype}"
            raise DojoError("PD-O062", what, hint="leave the dtype out: --input NAME=[SIZES]")
        fixed = sizes.get(of)
        if fixed is not None and not fits(shape, fixed):
            sizes_are = f"has the sizes {text_of(fixed)}, not {text_of(shape)}"
            what = f"input {ascii(of)[1:-1][:60]} of {name} {sizes_are}"
            hint = "give sizes only where the file has names; to change others, export the model anew"
            raise DojoError("PD-O062", what, why="a number in the file is fixed", hint=hint)


def _of_torch(
    path: Path, name: str, inputs: Inputs, weights: Path | None
) -> tuple[dict[str, Sizes], Lower, dict[str, Sequence[int | None]]]:
    from torch.export import ExportedProgram

    from perfdojo_sdk.frontends.torch.packaging import exported, given_inputs
    from perfdojo_sdk.frontends.torch.programs import declared_inputs

    net, names = given_inputs(path, name, list(inputs), weights)
    declared = declared_inputs(net) if isinstance(net, ExportedProgram) else {}
    dtypes = {n: inputs[n][0] if n in inputs else "" for n in names}
    dtypes = {n: dtype or (declared[n].dtype if n in declared else "f32") for n, dtype in dtypes.items()}
    sizes = {n: entry.sizes for n, entry in declared.items()}
    if declared:
        _check_inputs(name, inputs, {n: entry.dtype for n, entry in declared.items()}, sizes)

    def run(shapes: Shapes) -> Read:
        given = [(n, dtypes[n], shapes[n]) for n in names]
        made = exported(net, given, f"{path.stem}_{name}")
        rows = [(e.node, e.operator, e.reason, "it has no kernel") for e in made.elsewhere]
        return Read(made.graph, None, rows, made.operators)

    for n, shape in sizes.items():
        for declares, size in zip(shape, inputs[n][1] if n in inputs else shape, strict=True):
            if isinstance(declares, str) and not declares.isidentifier() and isinstance(size, str):
                what = f"the input {ascii(n)[1:-1][:60]} of {name} has the size {declares}"
                example = text_of([s if isinstance(s, int) else 8 for s in shape])
                hint = f"give it a number: --input '{n}={example}'"
                raise DojoError("PD-O052", what, why="a size that is computed cannot be open", hint=hint)
    named = renamed(sizes, {n: shape for n, (_, shape) in inputs.items()})
    return named, run, {n: entry.most for n, entry in declared.items()}


def unsupported(name: str, rows: Sequence[tuple[str, ...]]) -> Exception:
    """The error for what is not supported, after a table of it. ``rows``: node, operator, what, why."""
    if rows:
        progress(table(("node", "operator", "what", "why"), rows, "not supported"))
    kinds = sorted({row[3] for row in rows})
    what = f"{number_of(len(rows), 'parts')} of {name} {'is' if len(rows) == 1 else 'are'} not supported"
    return DojoError("PD-O004", what, why="; ".join(kinds), hint="the table above says where and why")


def inputs_of(given: Sequence[str]) -> Inputs:
    """Dtypes and shapes of inputs, such as ``x=f32[8,3]``, ``x=[8,3]`` or ``x=f32[batch,3]``."""
    found: Inputs = {}
    for text in given:
        match = _INPUT.fullmatch(text.strip())
        sizes = [s.strip() for s in match["sizes"].split(",")] if match and match["sizes"].strip() else []
        if match is None or not all(map(_is_size, sizes)):
            what = f"{text[:80]!r} is no input; write for example x=f32[8,3,224,224] or x=f32[batch,128]"
            raise typer.BadParameter(what)
        if match["name"] in found:
            raise typer.BadParameter(f"{match['name'][:60]} is given twice; write one --input for each input")
        found[match["name"]] = (match["dtype"] or "", tuple(int(s) if s.isdigit() else s for s in sizes))
    return found


def _is_size(text: str) -> bool:
    return text.isascii() and (text.isdigit() and len(text) <= 12 or bool(_NAME.fullmatch(text)))


def buckets_of(texts: Sequence[str], given: Sequence[str]) -> Buckets:
    """Lengths such as ``seq=16,32,64``, given once. ``given``: values to pad inputs with: ``mask=0``."""
    text = texts[0]
    if len(texts) > 1:
        names = list(dict.fromkeys(ascii(each.partition("=")[0].strip())[1:-1][:60] for each in texts))
        what = f"--buckets is given {len(texts)} times, for {' and '.join(names[:5])}"
        hint = f"write all lengths in one: --buckets {names[0]}=16,32,64"
        hint += f"; give {names[1]} a number: --input NAME=DTYPE[SIZES]" if len(names) > 1 else ""
        raise DojoError("PD-O054", what, why="one size of a model has buckets", hint=hint)
    name, _, lengths = text.partition("=")
    parts = [part.strip() for part in lengths.split(",")]
    if not name.strip() or not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise typer.BadParameter(f"{text[:80]!r} are no lengths; write for example --buckets seq=16,32,64")
    pads = {}
    for pad in given:
        of, _, value = pad.rpartition("=")
        try:
            pads[of.strip()] = {"true": 1.0, "false": 0.0}.get(value.strip().lower()) or float(value)
        except ValueError:
            raise typer.BadParameter(f"{pad[:80]!r} is no value; write for example --pad mask=0") from None
    return Buckets(name.strip(), tuple(map(int, parts)), pads)


def numbers_of(text: str) -> list[int]:
    """Numbers of rows, such as ``1,4,16,64``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 6 for part in parts):
        raise typer.BadParameter(f"{text[:80]!r} are no numbers of rows; write for example 1,4,16,64")
    return [int(part) for part in parts]
