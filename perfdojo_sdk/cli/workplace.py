"""The place where a command's work runs: this machine, or the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from perfdojo_sdk.cli.console import progress

if TYPE_CHECKING:
    from perfdojo_sdk.cluster.connection import Cluster
    from perfdojo_sdk.hookspecs.types import Target
    from perfdojo_sdk.library.builder import MakeBuilder
    from perfdojo_sdk.plugins import Plugins

ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="HOST:PORT",
        help="Work on the nodes of this Ray cluster; auto: of the one that runs here.",
        show_default=False,
    ),
]
DeviceOption = Annotated[
    str, typer.Option(help="Of a cluster: on this kind of device; a part of its name.", show_default=False)
]


def refuse_device_without(cluster: str, device: str) -> None:
    if device and not cluster:
        raise typer.BadParameter("--device is for a --cluster; this machine has what it has")


def tell_of(address: str, cluster: Cluster) -> None:
    devices = f"{cluster.devices} of {cluster.report.device}"
    progress(f"cluster {address}: {cluster.target.name} on {devices}")


@dataclass(frozen=True)
class Workplace:
    """The target, the factory of forges that does the work, and the number of threads."""

    target: Target
    make_builder: MakeBuilder
    threads: int | None = None
    """Threads of the cluster's devices; None: those of this machine."""


@contextmanager
def workplace(plugins: Plugins, target: str, cluster: str, device: str) -> Iterator[Workplace]:
    """This machine when ``cluster`` is empty. Errors when the target cannot run there."""
    refuse_device_without(cluster, device)
    if not cluster:
        from perfdojo_sdk.library.builder import builder_here

        yield Workplace(plugins.require(target), builder_here)
        return
    from perfdojo_sdk.cluster.connection import connected
    from perfdojo_sdk.cluster.remote_builder import RemoteBuilder

    with connected(cluster, plugins, target, device) as found:
        tell_of(cluster, found)
        yield Workplace(found.target, partial(RemoteBuilder, found), found.report.cores)
