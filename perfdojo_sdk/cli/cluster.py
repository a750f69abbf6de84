"""``cluster``: many machines; see docs/cluster.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, progress, table
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.cluster.connection import Node
    from perfdojo_sdk.cluster.offers import Offer

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Start a cluster, join one, say what it has. Each command takes --json. "
    "Needs Ray: pip install 'perfdojo-sdk[cluster]'.",
)

Targets = Annotated[
    list[str] | None, typer.Option("--target", help="Offer this target, and more. Default: all that work.")
]
Compilers = Annotated[
    int, typer.Option(min=0, max=4096, help="Compile on so many cores for others, at any time.")
]
NoDevice = Annotated[bool, typer.Option("--no-device", help="Run no kernels here.")]
Host = Annotated[str, typer.Option(help="By which address others reach this machine.", show_default=False)]
Block = Annotated[bool, typer.Option("--block", help="Stay in the foreground.")]
Print = Annotated[bool, typer.Option("--print", help="Only print the line for `ray start`.")]


@app.command()
def start(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the cluster is reached.")] = 6379,
    target: Targets = None,
    compilers: Compilers = 0,
    no_device: NoDevice = False,
    host: Host = "",
    block: Block = False,
    only_print: Print = False,
    as_json: Json = False,
) -> None:
    """Start a cluster whose first node is this machine, and offer what it can do.

    Who connects must show the token in ~/.ray/auth_token, which is made if there is none.
    """
    offer = _offer(target, compilers, not no_device)
    _begin("", port, offer, host, block, only_print, as_json)


@app.command()
def join(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Of the cluster's first node.")],
    target: Targets = None,
    compilers: Compilers = 0,
    no_device: NoDevice = False,
    host: Host = "",
    block: Block = False,
    only_print: Print = False,
    as_json: Json = False,
) -> None:
    """Make this machine a node of a cluster, and offer what it can do: the targets that it can run.

    Needs the token of the cluster, in ~/.ray/auth_token or RAY_AUTH_TOKEN.
    """
    _begin(address, 0, _offer(target, compilers, not no_device), host, block, only_print, as_json)


def _offer(targets: list[str] | None, compilers: int, devices: bool) -> Offer:
    """The offer of this machine; reports why targets are missing from it."""
    from perfdojo_sdk.cluster.offers import offer_of_this_machine
    from perfdojo_sdk.plugins import load_plugins

    plugins = load_plugins(targets=targets)
    names = targets or sorted(plugins.targets)
    offer, missing = offer_of_this_machine(plugins, names if devices or compilers else (), devices, compilers)
    for name, why in missing.items():
        progress(f"target {name} is not offered: {why}")
    return offer


def _begin(
    address: str, port: int, offer: Offer, host: str, block: bool, only_print: bool, as_json: bool
) -> None:
    from perfdojo_sdk.cluster.nodes import Start, own_address, start

    wanted = Start(offer, address, port, host, block)
    data = {"command": wanted.text, "offers": _entry(offer)}
    if only_print:
        emit(wanted.text, data, as_json)
        return
    runs = [f"runs {target} on {kind}" for target, kind in sorted(offer.runs)]
    compiles = [
        f"{number_of(count, 'compilers')} for {target}" for target, count in sorted(offer.compiles.items())
    ]
    progress(f"this node offers: {', '.join(runs + compiles) or 'nothing'}")
    start(wanted)
    where = address or f"{host or own_address()}:{port}"
    lines = [f"this machine is a node of the cluster at {where}; `ray stop` ends all nodes on it"]
    if not address:
        lines.append(f"others join with: perfdojo-sdk cluster join {where}")
        lines.append("they need the token in ~/.ray/auth_token of this machine")
    emit("\n".join(lines), {**data, "address": where}, as_json)


@app.command()
def status(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Or auto.")] = "auto",
    as_json: Json = False,
) -> None:
    """Say which nodes a cluster has, and what they offer."""
    from perfdojo_sdk.cluster.connection import nodes, session

    with session(address) as ray:
        found = nodes(ray)
    emit(_text(found), _data(found), as_json)


def _text(nodes: list[Node]) -> str:
    rows = []
    for node in nodes:
        runs = [f"{target} on {kind}" for target, kind in sorted(node.offer.runs)]
        compiles = [f"{target} ({count})" for target, count in sorted(node.offer.compiles.items())]
        rows.append((node.address, "\n".join(runs), "\n".join(compiles)))
    return table(("node", "runs", "compiles for others"), rows)


def _data(nodes: list[Node]) -> dict[str, Any]:
    return {"nodes": [{"address": node.address, **_entry(node.offer)} for node in nodes]}


def _entry(offer: Offer) -> dict[str, Any]:
    return {
        "devices": dict(offer.devices),
        "runs": [{"target": target, "device": kind} for target, kind in sorted(offer.runs)],
        "compiles": dict(offer.compiles),
    }
