"""An experiment anybody can repeat: what each pass makes of a softmax on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.services import Experiment, ExperimentRequest, ExperimentResult
from perfdojo_sdk.hookspecs.types import Failure, RunRequest
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.search.passes import naive

from .performance import expert
from .target import CAPABILITIES, TARGET, Generator


def run(request: ExperimentRequest) -> ExperimentResult:
    """Time each program and write the table as ``passes.csv``."""
    sizes = (64, 128) if request.quick else (1024, 512)
    times = {}
    for name, program in _programs(*sizes).items():
        request.progress(f"timing {name}")
        times[name] = _seconds(program, request.quick)
    table = request.folder / "passes.csv"
    table.write_text("".join(f"{name},{seconds}\n" for name, seconds in times.items()), encoding="utf-8")
    lines = [f"{name:10} {seconds * 1e6:10.1f} us" for name, seconds in times.items()]
    return ExperimentResult("\n".join(lines), {"sizes": list(sizes), "seconds": times}, (table,))


def _programs(rows: int, columns: int) -> Mapping[str, Program]:
    root = parse(SOFTMAX.build(rows, columns), TARGET.dialect)
    rules = Rules(TARGET.dialect, GENERIC)
    return {
        "initial": root,
        "naive": naive(root, rules).program,
        "expert": expert(root, rules, TARGET)[0].program,
    }


def _seconds(program: Program, quick: bool) -> float:
    runner = NativeRunner(CAPABILITIES.compiler_flags)
    artifact = runner.compile(Generator().generate(program, "pd_experiment"))
    request = RunRequest(repeats=5 if quick else 100, budget_s=0.05 if quick else 1.0, want_outputs=False)
    measured = artifact if isinstance(artifact, Failure) else runner.run(artifact, request)
    if isinstance(measured, Failure):
        raise VerificationError("TOY-100", f"{program.name} did not run", why=measured.detail)
    return measured.median


PASSES = Experiment(
    "toy/passes", "Time of a softmax as written, after the naive pass and after the expert.", run
)
