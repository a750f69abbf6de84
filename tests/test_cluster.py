"""A cluster of several Ray nodes on this machine: work spreads, nodes die, and records stay what they are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, Outcome, clear

from perfdojo_sdk.cluster.connection import kinds_for
from perfdojo_sdk.cluster.equipment import equipment, equipped
from perfdojo_sdk.cluster.nodes import SETTINGS
from perfdojo_sdk.cluster.offers import Offer, kind_of, offer_of_this_machine, together
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.library.build import Observer, build_library
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import SearchStatus
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.store.candidates import Candidate
from perfdojo_sdk.store.database import Records

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module", autouse=True)
def token() -> Iterator[None]:
    """Ray reads it when it is imported, so before any test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        yield


# -- without Ray -----------------------------------------------------------------------------------------


def test_offers_are_resources_and_back() -> None:
    runs = frozenset({("a", "cpu-1"), ("b", "cpu-1"), ("c", "card-2")})
    offer = Offer({"cpu-1": 1, "card-2": 4}, runs, {"a": 8})
    named = {"device:cpu-1": 1, "device:card-2": 4, "compiles:a": 8}
    assert offer.resources == {**named, "runs:a@cpu-1": 1, "runs:b@cpu-1": 1, "runs:c@card-2": 1}
    assert Offer.of({**offer.resources, "CPU": 8.0, "node:10.0.0.1": 1.0}) == offer
    both = together([offer, Offer({"cpu-1": 1}, frozenset({("a", "cpu-1")}), {"a": 2})])
    assert both.kinds("a") == {"cpu-1": 2} and both.compiles == {"a": 10} and both.targets == {"a", "b", "c"}
    gone = Offer({}, frozenset({("a", "cpu-1")}))
    assert not gone.targets and not gone.kinds("a")


def test_a_device_is_chosen_for_the_targets_that_have_several() -> None:
    processor, card = ("a", {"cpu-1": 1, "cpu-2": 3}), ("b", {"card-2": 1})
    assert kinds_for([processor, card], "cpu-2") == ["cpu-2", "card-2"]
    assert kinds_for([card], "") == ["card-2"]
    for offered, device, code in (
        ([processor, card], "", "PD-N007"),
        ([processor, card], "card", "PD-N007"),
        ([processor, card], "gold", "PD-N004"),
    ):
        with pytest.raises(UnavailableError) as refused:
            kinds_for(offered, device)
        assert refused.value.code == code


def test_equal_devices_have_equal_names_and_others_have_not() -> None:
    assert kind_of("a chip, 2 cpus") == kind_of("a chip, 2 cpus") != kind_of("a chip; 2 cpus")
    assert set(kind_of("x (R) 7 @ 4.1 GHz/ß" * 9)) <= set("xRGHz0123456789abcdef-")


@pytest.fixture
def sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the plugin ``sheet``, installed; also where the diary is kept."""
    return install(tmp_path, monkeypatch)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = folder / "perfdojo_sheet"
    package.mkdir()
    shutil.copy(ROOT / "tests" / "sheet_plugin.py", package / "__init__.py")
    installed(folder, "sheet", "perfdojo_sheet")
    for name in [name for name in sys.modules if name.partition(".")[0] == "perfdojo_sheet"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PERFDOJO_PLUGINS", "sheet")
    monkeypatch.setenv("PERFDOJO_DIARY", str(folder))
    return folder


def installed(folder: Path, name: str, module: str) -> None:
    """Metadata, as of a plugin with a target of the same name."""
    info = folder / f"perfdojo_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: perfdojo-{name}\nVersion: 1.0\n")
    groups = [f"[perfdojo_sdk.{group}]\n{name} = {module}\n" for group in ("plugins", "targets")]
    (info / "entry_points.txt").write_text("\n".join(groups))


def test_code_is_compared_by_version_and_content(sheet: Path) -> None:
    plugins = load_plugins(targets=["sheet"])
    wanted = equipment(plugins, plugins.target("sheet"))
    assert equipped(wanted)[1].name == "sheet"
    [packed] = wanted.plugins
    others = {
        "perfdojo-sdk on node": replace(wanted, sdk="0.0.1+000000000000"),
        "plugin sheet on node": replace(wanted, plugins=(replace(packed, fingerprint="2.0+000000000000"),)),
        "plugin sheet does not import": replace(wanted, plugins=(replace(packed, module="not_there"),)),
    }
    for what, other in others.items():
        with pytest.raises(UnavailableError, match=what) as refused:
            equipped(other)
        assert refused.value.code == "PD-N003" and refused.value.why


def test_a_node_offers_what_it_can_do(sheet: Path) -> None:
    plugins = load_plugins(targets=["sheet"])
    offer, missing = offer_of_this_machine(plugins, ["sheet", "nowhere"])
    kind = kind_of("a sheet of paper")
    assert offer == Offer({kind: 1}, frozenset({("sheet", kind)})) and set(missing) == {"nowhere"}
    helper, _ = offer_of_this_machine(plugins, ["sheet"], devices=False, compilers=3)
    assert helper == Offer(compiles={"sheet": 3})


def test_without_ray_the_extra_is_named(cli: Any, sheet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = cli("tune", "twice[48]", "--target", "sheet", "--cluster", "auto", plugins="sheet")
    clear(outcome, 3, "PD-N001")
    assert "perfdojo-sdk[cluster]" in outcome.err


def test_the_line_for_ray_start_is_printed(cli: Any, sheet: Path) -> None:
    outcome = cli("cluster", "join", "10.0.0.1:6379", "--compilers", "2", "--print", plugins="sheet")
    assert outcome.code == 0 and " ray start --address=10.0.0.1:6379 " in outcome.out
    assert f'"runs:sheet@{kind_of("a sheet of paper")}": 1' in outcome.out
    assert '"compiles:sheet": 2' in outcome.out


def test_addresses_at_which_nobody_listens(cli: Any, sheet: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    words = ("tune", "twice[48]", "--target", "sheet", "--cluster")
    for address in ("127.0.0.1:9", "nobody", "127.0.0.1:x", "http://127.0.0.1:1", "127.0.0.1:99999"):
        begin = time.monotonic()
        clear(cli(*words, address, plugins="sheet"), 3, "PD-N002")
        assert time.monotonic() - begin < 15
    assert cli("tune", "twice[48]", "--target", "sheet", "--device", "x", plugins="sheet").code == 2


def test_a_training_too_says_at_once_that_nobody_listens(cli: Any, sheet: Path) -> None:
    for needed in ("ray", "torch"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    words = ("train", "--target", "sheet", "--kernels", "twice[48]")
    clear(cli(*words, "--cluster", "127.0.0.1:9", plugins="sheet"), 3, "PD-N002")
    assert cli(*words, "--device", "x", plugins="sheet").code == 2


# -- with Ray --------------------------------------------------------------------------------------------


@dataclass
class Running:
    """The cluster, and what its nodes wrote into their diary."""

    cluster: Any
    folder: Path
    device: Offer
    few: dict[str, Any]
    """Arguments that start a node with a device."""
    workers: dict[int, Any] = field(default_factory=dict)
    """The nodes with a device, by the process whose children their workers are."""

    def join(self) -> None:
        """One more node with a device."""
        node = self.cluster.add_node(wait=False, resources=self.device.resources, **self.few)
        self.workers[raylet(node)] = node

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    @property
    def work(self) -> Path:
        """The folder in which drivers are started and leave their files."""
        return self.folder / "work"

    def diary(self) -> list[dict[str, Any]]:
        file = self.folder / "diary.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """The command line as a driver of its own."""
        path = os.pathsep.join([str(self.folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [sys.executable, "-m", "perfdojo_sdk.cli", *words],
            cwd=self.work,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that runs the tests in the background lets all of them ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *words: str, **environment: str) -> Outcome:
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=200)
        return Outcome(process.returncode, out, err)


def raylet(node: Any) -> int:
    """The process whose children are the node's workers."""
    return int(node.all_processes["raylet"][0].process.pid)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A head that compiles, and two nodes with a device each. None of them has the plugin on its path."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFDOJO_CACHE", str(folder / "cache"))
        install(folder, patch)
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        (folder / "work").mkdir()
        device, _ = offer_of_this_machine(load_plugins(targets=["sheet"]), ["sheet"])
        few = {"num_cpus": 0, "object_store_memory": 80 << 20}
        head = {**few, "include_dashboard": False, "resources": Offer(compiles={"sheet": 1}).resources}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            running = Running(cluster, folder, device, few)
            running.join()
            running.join()
            cluster.wait_for_nodes(60)
            (folder / "diary.jsonl").unlink()  # what was tried here
            yield running
        finally:
            cluster.shutdown()


def test_who_asks_for_a_target_that_nobody_has_hears_it_at_once(running: Running, cli: Any) -> None:
    words = ["tune", "softmax[8,8]", "--cluster", running.address]
    begin = time.monotonic()
    clear(cli(*words, "--target", "paper"), 3, "PD-N004")
    assert time.monotonic() - begin < 20
    outcome = cli(*words, "--target", "sheet", "--device", "gold", plugins="sheet")
    clear(outcome, 3, "PD-N004")
    clear(cli("train", "--target", "paper", "--cluster", running.address), 3, "PD-N004", "PD-L301")
    assert "no device called gold" in outcome.err and "a-sheet-of-paper" in outcome.err


def test_who_has_not_the_token_does_not_get_in(running: Running, cli: Any) -> None:
    nodes = cli("cluster", "status", running.address, "--json").data["nodes"]
    assert [[run["target"] for run in node["runs"]] for node in nodes].count(["sheet"]) == 2
    assert {"sheet": 1} in [node["compiles"] for node in nodes]
    outcome = running.run("cluster", "status", running.address, RAY_AUTH_TOKEN="f" * 32)
    clear(outcome, 3, "PD-N002")
    assert "with the cluster's token" in outcome.err


def tune(running: Running, *more: str) -> list[str]:
    where = ["--cluster", running.address, "--target", "sheet", "--threads", "1"]
    return ["tune", "twice[48]", *where, "--budget", "24", *more]


def test_a_plugin_that_does_not_arrive_whole_is_refused(running: Running) -> None:
    package = running.folder / "perfdojo_sheet"
    (package / "figures.yaml").write_text("peak: 1\n")
    (package / ".gitignore").write_text("*.yaml\n")
    try:
        outcome = running.run(*tune(running))
    finally:
        (package / "figures.yaml").unlink()
        (package / ".gitignore").unlink()
    clear(outcome, 3, "PD-N003")
    assert "plugin sheet on node" in outcome.err and "1.0+" in outcome.err
    assert not running.diary(), "nothing was played"


def kept(running: Running, folder: str) -> dict[str, Candidate]:
    """Program -> its record; one for each."""
    with Records(running.work / folder / "records.sqlite", create=False) as records:
        every = [c for size in (48, 60, 72) for c in records.candidates.of(f"twice_{size}_f32", "sheet")]
    assert len({c.key.digest for c in every}) == len(every)
    return {c.key.program_sha256: c for c in every}


def test_a_node_that_leaves_while_nodes_are_looked_at_is_no_fault(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfdojo_sdk.cluster import connection

    def with_one_that_left(ray: Any) -> list[connection.Node]:
        found = listed(ray)
        return [replace(next(n for n in found if n.offer.runs), id="1" * 56), *found]

    listed = connection.nodes
    monkeypatch.setattr(connection, "nodes", with_one_that_left)
    with connection.connected(running.address, load_plugins(targets=["sheet"]), "best") as cluster:
        assert cluster.target.name == "sheet"


def test_ctrl_c_stops_everything_and_resume_goes_on(running: Running) -> None:
    words = tune(running, "--output", "one", "--json")
    # So many that it is never done before it is interrupted.
    process = running.start(*words, "--budget", "100000")
    state = running.work / "one" / "tuned" / "twice_48_f32.auto.0.state.json"
    until(lambda: state.exists() and json.loads(state.read_text())["evaluations"] >= 8, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume goes on" in said and "Traceback" not in said, said
    before = kept(running, "one")
    assert len(before) >= 6
    count = len(running.diary())
    time.sleep(1)
    assert len(running.diary()) <= count + 1, "the node works on"
    budget = json.loads(state.read_text())["evaluations"] + 8
    again = running.run(*words, "--budget", str(budget), "--resume")
    assert again.code == 0, again.err
    assert again.data["search"]["resumed"] and again.data["search"]["evaluations"] == budget
    assert again.data["verified"] and again.data["device"] == "a sheet of paper"
    assert before.keys() < kept(running, "one").keys()


def until(holds: Any, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Killer(Observer):
    """Kills the node that ran last, as soon as a search has done some rounds."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.lock = threading.Lock()  # each kernel tells of its rounds in a thread of its own
        self.killed: int | None = None
        self.before: dict[str, Candidate] = {}
        self.stages: list[tuple[str, str]] = []
        self.done: dict[str, int] = {}

    def stage(self, kernel: Kernel, stage: str) -> None:
        self.stages.append((kernel.name, stage))

    def round(self, kernel: Kernel, status: SearchStatus) -> None:
        with self.lock:
            self.done[kernel.name] = status.evaluations
            if status.evaluations < 8 or self.killed is not None:
                return
            self.before = kept(self.running, "many")
            self.killed = [line["node"] for line in self.running.diary() if line["what"] == "run"][-1]
            self.running.cluster.remove_node(self.running.workers[self.killed], allow_graceful=False)


class Undertaker:
    """Keeps the records of a training, and replaces the node that ran last once there are a few."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.store: Any = None
        self.killed: int | None = None
        self.told: list[Candidate] = []
        """Until then."""

    def put(self, candidate: Candidate) -> None:
        self.store.put(candidate)
        if self.killed is not None:
            return
        self.told.append(candidate)
        if len({c.key.digest for c in self.told}) == 10:
            self.killed = [line["node"] for line in self.running.diary() if line["what"] == "run"][-1]
            self.running.cluster.remove_node(self.running.workers.pop(self.killed), allow_graceful=False)
            self.running.join()

    @property
    def once_fastest(self) -> set[str]:
        """Programs told that were faster than all before them; a job that begins again runs them again."""
        found, best = set(), dict[str, float]()
        for candidate in self.told:
            kernel, seconds = candidate.key.conditions.kernel, candidate.seconds
            if seconds is not None and seconds < best.get(kernel, float("inf")):
                best[kernel] = seconds
                found.add(candidate.key.program_sha256)
        return found


def test_a_training_goes_on_when_a_node_dies_and_measures_nothing_twice(
    running: Running, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="learning is not installed")
    from perfdojo_sdk.cluster import training
    from perfdojo_sdk.perfllm import agent_files

    undertaker, actors = Undertaker(running), training.ClusterActors

    def watched(clusters: Any, store: Any, lost: Any) -> Any:
        undertaker.store = store
        return actors(clusters, undertaker, lost)

    monkeypatch.setattr(training, "ClusterActors", watched)
    (running.folder / "diary.jsonl").unlink(missing_ok=True)
    folder = running.work / "trained"
    where = ["--cluster", running.address, "--db", str(folder / "records.sqlite"), "--no-tensorboard"]
    agent = folder / "agent.safetensors"
    words = ["--kernels", "twice[48] twice[60]", "--budget", "32", "--output", str(agent), "--json"]
    outcome = cli("train", *words, *where, plugins="sheet")
    assert outcome.code == 0, outcome.err
    assert undertaker.killed is not None and "its games are ordered again" in outcome.err
    assert [kernel["evaluations"] for kernel in outcome.data["kernels"]] == [32, 32]
    assert outcome.data["steps"] == agent_files.read(agent)[0].card.steps == 128
    after, before = kept(running, "trained"), {c.key.program_sha256: c for c in undertaker.told}
    assert before.keys() < after.keys() and len(after) == 64, "each has one record, also the dead node's"
    anew = {program for program, candidate in before.items() if after[program].at != candidate.at}
    assert anew <= undertaker.once_fastest < before.keys(), "what was on record was measured again"
    nodes = {line["node"] for line in running.diary() if line["what"] == "run"}
    assert undertaker.killed in nodes and nodes & running.workers.keys()


# The last one, for it leaves a node less.
def test_a_node_dies_and_nothing_is_lost_or_measured_twice(running: Running) -> None:
    from perfdojo_sdk.cluster.connection import connected
    from perfdojo_sdk.cluster.remote_builder import RemoteBuilder

    (running.folder / "diary.jsonl").unlink(missing_ok=True)
    plugins = load_plugins(targets=["sheet"])
    killer = Killer(running)
    with connected(running.address, plugins, "best") as cluster:
        assert cluster.devices == 2 and cluster.compilers == 1
        kernels = select("twice[48] twice[60] twice[72]", plugins.operators, cluster.target.dialect)
        settings = Settings(threads=1, search="auto", evaluations=16)
        make = partial(RemoteBuilder, cluster)
        folder = running.work / "many"
        result = build_library(plugins, cluster.target, kernels, folder, settings, killer, make_builder=make)
    assert killer.killed is not None and any(stage == "lost" for _, stage in killer.stages)
    assert result.manifest and len(result.manifest.kernels) == 3 and not result.failed
    assert set(killer.done.values()) == {16}, "every search came to its end"

    after, diary = kept(running, "many"), running.diary()
    assert killer.before and killer.before.keys() <= after.keys()
    # When a search resumes, only programs that were the fastest run again, as without a cluster.
    anew = [p for p, candidate in killer.before.items() if after[p].at != candidate.at]
    assert len(anew) <= 6, "what was on record was measured again"
    runs = [line for line in diary if line["what"] == "run"]
    assert {line["node"] for line in runs} == set(running.workers)
    for device in running.workers:
        spans = sorted((line["begin"], line["end"]) for line in runs if line["node"] == device)
        assert all(one[1] <= other[0] for one, other in pairwise(spans)), "two kernels on one device"
    compiled = {line["node"] for line in diary if line["what"] == "compile"}
    assert compiled == {*running.workers, raylet(running.cluster.head_node)}, "nobody helped to compile"
    code = {Path(line["code"]) for line in diary}
    assert not [file for file in code if file.is_relative_to(running.folder)], "nothing travelled"
