"""A driver's connection to a cluster: it finds the nodes that can run the target, and gives them its code.

Ray lets a task that no node can run wait for ever, so the driver first checks that there is such a node.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfdojo_sdk.cluster import worker
from perfdojo_sdk.cluster.equipment import Equipment, equipment, packages
from perfdojo_sdk.cluster.offers import A_LITTLE, DEVICE, RUNS, Offer, together
from perfdojo_sdk.core.errors import DojoError, UnavailableError, closest
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest, Target
from perfdojo_sdk.plugins import Plugins

#: Seconds for which the head node may take to accept a connection.
CONNECT_TIMEOUT_S = 5.0
#: Attempts of Ray to connect, one a second, fewer than by default.
CONNECT_ATTEMPTS = "5"
#: Seconds for which a node may take to start a worker and inspect itself.
INSPECT_TIMEOUT_S = 90.0
#: Seconds between two checks whether an awaited result can still come.
LOOK_S = 2.0
#: Seconds for which a driver waits for a device to come back.
PATIENCE_S = 30.0
#: The file in which Ray keeps the token of a cluster.
TOKEN = Path(".ray", "auth_token")


def load_ray() -> Any:
    """The package; :class:`UnavailableError` without it."""
    # Ray must not send usage statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    use_token()
    try:
        import ray
    except ImportError as error:
        hint = "pip install 'perfdojo-sdk[cluster]'"
        raise UnavailableError("PD-N001", "a cluster needs Ray", why=str(error), hint=hint) from None
    return ray


def use_token() -> None:
    """Show the cluster's token where there is one, unless the environment says otherwise."""
    given = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    if given or (Path.home() / TOKEN).exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


@dataclass(frozen=True)
class Node:
    """One node of the cluster that is alive."""

    id: str
    address: str
    offer: Offer


@contextmanager
def session(address: str, modules: list[str] | None = None) -> Iterator[Any]:
    """Ray, connected to the cluster at ``address``; ``auto`` stands for the one that runs on this machine."""
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", CONNECT_ATTEMPTS)
    ray = load_ray()
    _answers(address)
    _keep_stdout_clean(ray)
    environment: dict[str, Any] = {"py_modules": modules} if modules else {}
    try:
        ray.init(
            address,
            runtime_env=environment,
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise _unreachable(address, last_words(error)) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _keep_stdout_clean(ray: Any) -> None:
    """Keep Ray's messages from stdout, which is for results: it prints that a node died, whatever
    ``log_to_driver`` says, and has no public switch for that."""
    ray._private.worker._worker_logs_enabled = False


def _answers(address: str) -> None:
    """Raise at once if nothing listens at the address, where Ray would try for a long time."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        hint = "write HOST:PORT, or auto for the cluster that runs on this machine"
        raise UnavailableError("PD-N002", f"{address!r} is no address of a cluster", hint=hint)
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, f"{host}:{port} does not answer: {error}") from None


def _unreachable(address: str, why: str) -> UnavailableError:
    hint = (
        "start one with `perfdojo-sdk cluster start`, or join one with `perfdojo-sdk cluster join ADDRESS`; "
        "a driver runs on a machine that has joined, with the cluster's token"
    )
    return UnavailableError("PD-N002", f"no connection to a cluster at {address}", why=why, hint=hint)


def nodes(ray: Any) -> list[Node]:
    """The nodes that are alive."""
    return [
        Node(node["NodeID"], node["NodeManagerAddress"], Offer.of(node["Resources"]))
        for node in ray.nodes()
        if node["Alive"]
    ]


# -- one target on one kind of device --------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """A connected cluster, and the kind of device in it that kernels are for."""

    ray: Any = field(repr=False)
    plugins: Plugins = field(repr=False)
    target: Target
    kind: str
    """Short name of the device."""
    wanted: Equipment = field(repr=False)
    report: worker.Report
    """Report of one node with such a device; those of the others differ in their names only."""

    @property
    def claim(self) -> dict[str, float]:
        """The resources that a kernel takes while it runs: one device, alone."""
        return {DEVICE + self.kind: 1, f"{RUNS}{self.target.name}@{self.kind}": A_LITTLE}

    @property
    def devices(self) -> int:
        """The number of such devices now."""
        return together(n.offer for n in nodes(self.ray)).kinds(self.target.name).get(self.kind, 0)

    @property
    def compilers(self) -> int:
        """The number of compilers for each device now."""
        count = together(n.offer for n in nodes(self.ray)).compiles.get(self.target.name, 0)
        return -(-count // max(1, self.devices))

    @property
    def place(self) -> worker.Assignment:
        """The conditions for an episode that is ordered now."""
        return worker.Assignment(self.report.device, self.report.toolchain, self.compilers)

    def wait_for(self, pending: Any, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait until there is a result, or the next one of several; False when ``stopped`` says so.

        :class:`UnavailableError` when no such device has been in the cluster for a while.
        """
        patience = Patience(self)
        while not self.ray.wait([pending], timeout=LOOK_S)[0]:
            if stopped():
                return False
            patience.look()
        return True

    def on_device(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of ``work``, called on a node whose device it has; waits until one is free."""
        task = self.ray.remote(num_cpus=0, max_retries=3, resources=self.claim)(work)
        pending = task.remote(self.wanted, *arguments)
        self.wait_for(pending)
        try:
            answer = self.ray.get(pending)
        except self.ray.exceptions.RayError as error:
            what = "a node did not do what the driver asked for"
            raise UnavailableError("PD-N006", what, why=last_words(error)) from None
        if isinstance(answer, DojoError):
            raise answer
        return answer

    @property
    def runner(self) -> RemoteRunner:
        return RemoteRunner(self)


@dataclass
class Patience:
    """A limited wait for a device to come back."""

    cluster: Cluster
    missing_since: float | None = None

    def look(self) -> None:
        """:class:`UnavailableError` when no such device has been seen for a while."""
        if self.cluster.devices:
            self.missing_since = None
        elif self.missing_since is None:
            self.missing_since = time.monotonic()
        elif time.monotonic() - self.missing_since > PATIENCE_S:
            raise _nobody_left(self.cluster.target.name)


@dataclass(frozen=True)
class RemoteRunner:
    """A runner on the cluster for the driver's own work: it links a library, and checks the kernels in it."""

    cluster: Cluster

    def compile(self, source: KernelSource) -> Artifact | Failure:
        made: Artifact | Failure = self.cluster.on_device(worker.compile_library, source)
        return made

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        measured: Measurement | Failure = self.cluster.on_device(worker.run, artifact, request)
        return measured

    def device(self) -> str:
        return self.cluster.report.device


@contextmanager
def connected(address: str, plugins: Plugins, name: str, device: str = "") -> Iterator[Cluster]:
    """The cluster at ``address`` for target ``name``; ``best`` is the best of those that it can run.

    ``device`` chooses among kinds of devices, by a part of the kind's name. :class:`UnavailableError`, within
    seconds, when no node runs the target or a node has other code than this process.
    """
    with connected_for(address, plugins, [name], device) as [cluster]:
        yield cluster


@contextmanager
def connected_for(
    address: str, plugins: Plugins, names: Sequence[str], device: str = ""
) -> Iterator[list[Cluster]]:
    """The same for several targets at once; see :func:`kinds_for`."""
    with session(address) as ray:
        everyone = together(node.offer for node in nodes(ray))
    targets = [_target(plugins, name, everyone) for name in names]
    kinds = kinds_for([(target.name, everyone.kinds(target.name)) for target in targets], device)
    wanted = [equipment(plugins, target) for target in targets]
    modules = list(dict.fromkeys(path for target in targets for path in packages(plugins, target)))
    with session(address, modules) as ray:
        yield [
            Cluster(ray, plugins, target, kind, each, _inspect(ray, each, kind))
            for target, kind, each in zip(targets, kinds, wanted, strict=True)
        ]


def _target(plugins: Plugins, name: str, everyone: Offer) -> Target:
    if name == "best":
        known = [t for t in plugins.targets.values() if t.name in everyone.targets]
        if known:
            return plugins.target(max(known, key=lambda t: (t.capabilities.rank, t.name)).name)
    target = None if name == "best" else plugins.target(name)
    if target is not None and target.name in everyone.targets:
        return target
    offered = sorted(everyone.targets)
    what = f"no node of the cluster runs {f'target {name}' if target else 'any target known here'}"
    why = f"its nodes run {', '.join(offered)}" if offered else "none of its nodes says that it runs a target"
    hint = "run `perfdojo-sdk cluster join ADDRESS` on a machine that can; `perfdojo-sdk targets` tells"
    raise UnavailableError("PD-N004", what, why=why, hint=hint)


def kinds_for(offered: Sequence[tuple[str, Mapping[str, int]]], device: str) -> list[str]:
    """The kind of device for each target; ``offered``: its name, and the kinds that there are.

    ``device`` chooses for the targets that have such a kind; the others need no choice.
    """

    def fits(kinds: Mapping[str, int]) -> bool:
        return any(device in kind for kind in kinds)

    meant = any(fits(kinds) for _, kinds in offered)
    return [_kind(name, kinds, "" if meant and not fits(kinds) else device) for name, kinds in offered]


def _kind(target: str, kinds: Mapping[str, int], wanted: str) -> str:
    """The kind of device that ``wanted`` names for a target."""
    found = [kind for kind in kinds if wanted in kind]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{kind} ({count})" for kind, count in kinds.items())
    if not found:
        hint = closest(wanted, list(kinds))
        raise UnavailableError("PD-N004", f"no device called {wanted} runs {target}", why=listed, hint=hint)
    what = f"several kinds of devices run target {target}"
    why = f"{listed}; times of different devices cannot be compared"
    raise UnavailableError("PD-N007", what, why=why, hint="choose one with --device")


def _inspect(ray: Any, wanted: Equipment, kind: str) -> worker.Report:
    """Let every node that may get work inspect itself; raises the fault of any of them."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    ours = [n for n in nodes(ray) if (wanted.target, kind) in n.offer.runs]
    helpers = [n for n in nodes(ray) if n not in ours and n.offer.compiles.get(wanted.target)]
    look = ray.remote(num_cpus=0, max_retries=0)(worker.inspect)
    asked = [look.options(scheduling_strategy=On(n.id, soft=False)).remote(wanted) for n in ours + helpers]
    if asked:
        ray.wait(asked, num_returns=len(asked), timeout=INSPECT_TIMEOUT_S)
    reports: list[worker.Report] = []
    for node, answer in zip(ours + helpers, asked, strict=True):
        try:
            report = ray.get(answer, timeout=0)
        except ray.exceptions.TaskUnschedulableError:
            continue  # the node left after it was listed, which is allowed
        except ray.exceptions.RayError as error:
            raise _unfit(node, error) from None
        if isinstance(report, DojoError):
            raise report
        if node in ours:
            reports.append(report)
    if not reports:
        raise _nobody_left(wanted.target)
    for report in reports:
        report.must_equal(reports[0].device, reports[0].toolchain)
    return reports[0]


def _nobody_left(target: str) -> UnavailableError:
    hint = "let one join; the same command then goes on where it stopped"
    return UnavailableError("PD-N004", f"the last node that runs target {target} has left", hint=hint)


def _unfit(node: Node, error: Exception) -> UnavailableError:
    """The error for a node on which even the check of its code fails."""
    hint = "install the SDK and what the target needs there, in the driver's version, for the same Python"
    what = f"the node at {node.address} does not answer as a node for target work should"
    return UnavailableError("PD-N003", what, why=last_words(error), hint=hint)


def last_words(error: Exception) -> str:
    """An error of Ray's, which may hold a whole traceback, in a line or two."""
    return f"{type(error).__name__}: {' '.join(str(error).split()[-60:])}"
