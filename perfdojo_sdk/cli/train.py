"""``train``: train an agent on kernels of one or more targets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, place_option, progress, seconds
from perfdojo_sdk.cli.paths import output_option
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.cli.tune import duration
from perfdojo_sdk.cli.workplace import ClusterOption, DeviceOption, refuse_device_without, tell_of
from perfdojo_sdk.core.files import refuse_links
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.actors import Actors
    from perfdojo_sdk.perfllm.plan import TrainingPlan
    from perfdojo_sdk.perfllm.training import Report, Training
    from perfdojo_sdk.perfllm.training_task import TrainingTask
    from perfdojo_sdk.plugins import Plugins
    from perfdojo_sdk.store.candidates import CandidateLog

#: Seconds between two lines of progress.
_QUIET_S = 5.0


def command(
    target: Annotated[
        list[str] | None, typer.Option(help="Train for this target; may be given several times.")
    ] = None,
    kernels: Annotated[
        str, typer.Option(help="'softmax matmul[64,64,64]'; default: the target's own list.")
    ] = "",
    budget: Annotated[
        int | None,
        typer.Option(min=1, max=10**7, help="Programs to evaluate for each kernel.", show_default="1000"),
    ] = None,
    limit: Annotated[
        str, typer.Option("--time", help="Most time for it all: 90s, 10m, 2h.", show_default=False)
    ] = "",
    config: Annotated[
        Path | None, typer.Option(help="A plan in YAML; options given here win.", show_default=False)
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the agent: objective=sum."),
    ] = None,
    recorded: Annotated[
        int | None, typer.Option(min=0, help="Recorded games of each kernel to learn from first.")
    ] = None,
    passes: Annotated[
        bool, typer.Option("--passes", help="Let the targets' own passes play first, for --recorded.")
    ] = False,
    plateau: Annotated[
        int | None, typer.Option(min=1, help="Give a kernel up after so many evaluations without a new best.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="The only source of chance.")] = None,
    threads: Annotated[int | None, threads_option(help="Of each kernel.")] = None,
    output: Annotated[Path, output_option(help="The agent; its checkpoint lies beside it.")] = Path(
        "build/agent.safetensors"
    ),
    start_from: Annotated[
        Path | None, typer.Option("--agent", help="Go on with this one, on other kernels.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    tensorboard: Annotated[bool, typer.Option(help="Write events for TensorBoard, beside the agent.")] = True,
    db: Annotated[str, place_option("build/records.sqlite")] = "",
    cluster: ClusterOption = "",
    device: DeviceOption = "",
    as_json: Json = False,
) -> None:
    """Train an agent: play, evaluate, learn, again; every program evaluated is recorded.

    Ctrl-C loses what was learned since the last checkpoint: a minute, or the round of corrected games that it
    was in. --resume goes on from there.
    `tune --search perfllm --agent FILE` plays with what it has learned. With --cluster the nodes play; the
    learner and the records stay here.
    """
    from perfdojo_sdk.perfllm.strategies import limit_torch_threads, require_learning

    require_learning()
    limit_torch_threads()
    refuse_device_without(cluster, device)
    from perfdojo_sdk.perfllm import checkpoints
    from perfdojo_sdk.perfllm.plan import read_plan
    from perfdojo_sdk.perfllm.settings import changed
    from perfdojo_sdk.perfllm.trainer import train
    from perfdojo_sdk.plugins import load_plugins
    from perfdojo_sdk.store.database import Records

    changes: dict[str, Any] = {
        "evaluations": budget,
        "seconds": duration(limit) if limit else None,
        "recorded": recorded,
        "passes": passes or None,
        "plateau": plateau,
        "seed": seed,
        "threads": threads,
    }
    if target or kernels:
        changes["lessons"] = [{"target": name, "kernels": kernels} for name in target or ["best"]]
    plan = read_plan(config, {name: value for name, value in changes.items() if value is not None})
    plan = plan.model_copy(update={"agent": changed(plan.agent, _words(setting or []))})
    plugins = load_plugins(targets=[lesson.target for lesson in plan.lessons])
    output.parent.mkdir(parents=True, exist_ok=True)
    refuse_links(output.parent, (output.with_suffix(".events").name,))
    watch = Lines(plan.evaluations, output.with_suffix(".events") if tensorboard else None)
    try:
        with (
            Records(db or Path("build/records.sqlite")) as records,
            _actors(plugins, plan, cluster, device, records.candidates) as actors,
        ):
            training = train(plugins, plan, output, records.candidates, watch, resume, start_from, actors)
    except KeyboardInterrupt:
        checkpoint = checkpoints.beside(output)
        if checkpoint.exists():
            progress(f"what was learned until then is in {checkpoint}; --resume goes on")
        raise
    finally:
        watch.close()
    emit(_text(training.tasks, training.evaluations, output), _data(training, output), as_json)


@contextmanager
def _actors(
    plugins: Plugins, plan: TrainingPlan, cluster: str, device: str, store: CandidateLog
) -> Iterator[Actors | None]:
    """The actors of a cluster; None without one: this process plays."""
    if not cluster:
        yield None
        return
    from perfdojo_sdk.cluster.connection import connected_for
    from perfdojo_sdk.cluster.training import ClusterActors

    names = list(dict.fromkeys(lesson.target for lesson in plan.lessons))
    with connected_for(cluster, plugins, names, device) as found:
        for each in found:
            tell_of(cluster, each)
        yield ClusterActors(dict(zip(names, found, strict=True)), store, progress)


def _words(settings: list[str]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise typer.BadParameter(f"{name!r} has no value; write NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


class Lines:
    """Reports on stderr, a line now and then, and to TensorBoard after each round."""

    def __init__(self, budget: int, events: Path | None) -> None:
        self.budget, self.said, self.written = budget, 0.0, 0
        self.writer = _writer(events) if events is not None else None

    def recalled(self, name: str, games: int, beyond: tuple[str, ...]) -> None:
        progress(f"{name}: {number_of(games, 'recorded games')}")
        if beyond:
            kinds = ", ".join(beyond)
            progress(f"warning: better games of {name} play moves outside the repertoire: {kinds}")

    def corrected(self, name: str, states: int, slips: int) -> None:
        self._now_and_then(
            f"{name}: a game of {number_of(states, 'states')} with {number_of(slips, 'slips')}"
        )

    def studied(self, steps: int, count: int, loss: float | None) -> None:
        self._now_and_then(
            f"learning from records: {steps} of {number_of(count, 'steps')}, loss {loss or 0:.3f}"
        )

    def round(self, report: Report) -> None:
        if self.writer is not None:
            for name, value in _figures(report).items():
                self.writer.add_scalar(name, value, report.evaluations)
        self._now_and_then(_line(report, self.budget))

    def _now_and_then(self, line: str) -> None:
        now = monotonic()
        if now - self.said > _QUIET_S:
            self.said = now
            progress(line)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def _writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        progress(f"nothing is written for TensorBoard: {error}; pip install 'perfdojo-sdk[learn]'")
        return None
    return SummaryWriter(str(folder))


def _figures(report: Report) -> dict[str, float]:
    found = {"epsilon": report.epsilon, "evaluations a minute": report.per_minute}
    if report.loss is not None:
        found["loss"] = report.loss
    if report.task.speed_up is not None:
        found[f"speed-up/{report.task.name}"] = report.task.speed_up
    return found


def _line(report: Report, budget: int) -> str:
    task = report.task
    best = seconds(task.best_s) if task.best_s else "nothing yet"
    gained = f" ({task.speed_up:.2f}x)" if task.speed_up else ""
    loss = f"{report.loss:.3f}" if report.loss is not None else "-"
    return (
        f"{report.evaluations:7}  {task.name}: {task.evaluations}/{budget}, best {best}{gained}"
        f"  epsilon {report.epsilon:.2f}  loss {loss}  {report.per_minute:.0f} evaluations a minute"
    )


def _text(tasks: list[TrainingTask], evaluations: int, output: Path) -> str:
    lines = []
    for task in tasks:
        best = seconds(task.best_s) if task.best_s else "nothing ran"
        gained = f", {task.speed_up:.2f}x the initial program's speed" if task.speed_up else ""
        lines.append(f"{task.name}: {best}{gained} after {number_of(task.evaluations, 'evaluations')}")
    return "\n".join([*lines, f"{number_of(evaluations, 'evaluations')} in all", f"agent: {output}"])


def _data(training: Training, output: Path) -> dict[str, Any]:
    learner = training.agent.learner
    return {
        "agent": str(output),
        "evaluations": training.evaluations,
        "elapsed_s": round(training.elapsed_s, 3),
        "steps": learner.steps,
        "transitions": len(learner.replay.seen),
        "kernels": [
            {
                "name": task.kernel.name,
                "target": task.context.target.name,
                "evaluations": task.evaluations,
                "initial_seconds": task.initial_s,
                "seconds": task.best_s,
                "failures": dict(task.evaluator.tally.failures),
            }
            for task in training.tasks
        ],
    }
