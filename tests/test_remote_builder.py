"""The driver's side of a cluster, with this process as its nodes: the result is that of a local build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paper_target import QUICK, Paper, build, entry, judged

from perfdojo_sdk.cluster import worker
from perfdojo_sdk.cluster.remote_builder import MOST_LOST, RemoteBuilder
from perfdojo_sdk.cluster.worker import Assignment, Report
from perfdojo_sdk.library.build import BuildResult, Observer
from perfdojo_sdk.plugins import Plugins

HERE = ("desk", "scissors 1.0")


class LostError(Exception):
    """The error that Ray raises for a node that died."""


ERRORS = SimpleNamespace(
    RayError=LostError,
    RayTaskError=type("RayTaskError", (Exception,), {}),
    RuntimeEnvSetupError=type("RuntimeEnvSetupError", (Exception,), {}),
)


@dataclass
class Nodes:
    """Ray, as far as a driver asks it, with as many nodes that die as a test says."""

    plugins: Plugins
    dying: int = 0
    after: int = 3
    """Events that a dying node tells."""
    orders: list[Any] = field(default_factory=list)
    exceptions: Any = field(default_factory=lambda: ERRORS)
    claim: Any = None
    wanted: Any = None

    @property
    def ray(self) -> Nodes:
        return self

    @property
    def report(self) -> Report:
        return Report("here", *HERE, cores=1)

    @property
    def place(self) -> Assignment:
        return Assignment(*HERE, compilers=0)

    @property
    def runner(self) -> Any:
        return self.plugins.runner(self.plugins.target("paper"))

    def wait_for(self, pending: Any, stopped: Callable[[], bool]) -> bool:
        return not stopped()

    def get(self, event: Any) -> Any:
        return event

    def cancel(self, events: Any, force: bool) -> None:
        events.close()

    def remote(self, **_: object) -> Callable[..., Any]:
        return lambda work: SimpleNamespace(remote=partial(self._told, work))

    def _told(self, work: Callable[..., Iterator[Any]], wanted: Any, order: Any) -> Iterator[Any]:
        self.orders.append(order)
        left = self.after if self.dying else -1
        self.dying = max(0, self.dying - 1)
        for event in work(wanted, order):
            if left == 0:
                raise LostError
            left -= 1
            yield event


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    made = judged(Paper(), monkeypatch)
    plugins = made.plugins()
    monkeypatch.setattr(worker, "equipped", lambda wanted: (plugins, plugins.target("paper")))
    return made


class Stages(Observer):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def stage(self, kernel: object, stage: str) -> None:
        self.seen.append(stage)


def away(nodes: Nodes, paper: Paper, folder: Path, **options: Any) -> BuildResult:
    return build(paper, folder, make_builder=partial(RemoteBuilder, nodes), **options)


@pytest.mark.parametrize("search", ["heuristic", "annealing"])
def test_what_nodes_build_is_what_is_built_here(paper: Paper, tmp_path: Path, search: str) -> None:
    settings = replace(QUICK, search=search, evaluations=8)
    nodes = Nodes(paper.plugins())
    found = entry(away(nodes, paper, tmp_path / "away", settings=settings))
    here = entry(build(paper, tmp_path / "here", settings=settings))
    assert len(nodes.orders) == 1
    same = ("moves", "kind", "laws", "notes", "output_sha256", "speed_up", "symbol")
    assert [getattr(found, name) for name in same] == [getattr(here, name) for name in same]
    assert found.build_seconds.keys() == here.build_seconds.keys()


def test_an_episode_that_loses_its_node_is_ordered_again(paper: Paper, tmp_path: Path) -> None:
    nodes, watch = Nodes(paper.plugins(), dying=2), Stages()
    assert entry(away(nodes, paper, tmp_path, observer=watch)).moves
    assert len(nodes.orders) == 3 and watch.seen.count("lost") == 2 and watch.seen.count("waiting") == 3


def test_a_kernel_that_kills_its_nodes_is_given_up(paper: Paper, tmp_path: Path) -> None:
    nodes = Nodes(paper.plugins(), dying=99)
    [failed] = away(nodes, paper, tmp_path).failed
    assert (
        f"{MOST_LOST + 1} nodes in a row were lost" in failed.failure and len(nodes.orders) == MOST_LOST + 1
    )


def test_a_kernel_that_stays_is_judged_again_by_the_driver(paper: Paper, tmp_path: Path) -> None:
    before = entry(build(paper, tmp_path))
    nodes = Nodes(paper.plugins())
    result = away(nodes, paper, tmp_path, kernels="add[2,3]", settings=replace(QUICK, threads=1))
    assert result.manifest and result.fates == {"relu_4x8_f32": "kept", "add_2x3_f32": "new"}
    [kept] = [k for k in result.manifest.kernels if k.name == before.name]
    assert kept.moves == before.moves and [order.kernel.operator for order in nodes.orders] == ["add"]


def test_a_node_that_is_not_like_the_others_is_refused(paper: Paper) -> None:
    with pytest.raises(worker.UnavailableError, match="is not like the others"):
        worker.context_at(None, QUICK, Assignment("another desk", HERE[1], 0))  # type: ignore[arg-type]
    assert worker.context_at(None, QUICK, Assignment(*HERE, 0)).toolchain == HERE[1]  # type: ignore[arg-type]


def test_a_rejected_kernel_is_left_out_with_the_nodes_reason(paper: Paper, tmp_path: Path) -> None:
    paper.verifies = lambda trace: False
    [failed] = away(Nodes(paper.plugins()), paper, tmp_path).failed
    assert "verification failed (exact: as the test says" in failed.failure
