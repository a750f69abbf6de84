"""A target that needs no compiler, for tests of clusters: one operator, computed by NumPy, timed on paper.

Copied into a package of its own, which travels to the nodes. Every compilation and every timed run leaves
a line in ``diary.jsonl`` in the folder PERFDOJO_DIARY: what, of which program, when, and on which node.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs import API_VERSION, hookimpl
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Capabilities,
    Measurement,
    Operator,
    OperatorParameter,
    Target,
)
from perfdojo_sdk.testing.estimate import AnalyticGenerator, AnalyticMachine

PERFDOJO_API = API_VERSION
CAPABILITIES = Capabilities(name="sheet", description="for tests", suffixes=("u", "p"))
TARGET = Target("sheet", CAPABILITIES, CAPABILITIES.dialect(), "perfdojo-sheet")
#: A run takes as long, so that a node can be killed in the middle of one.
RUN_S = 0.03

#: The node's own process; asked now, since a node that dies leaves this one an orphan for a moment.
NODE = os.getppid()


def write(what: str, program: bytes, begin: float) -> None:
    line = {"what": what, "program": sha256(program).hexdigest(), "node": NODE, "code": __file__}
    line |= {"begin": begin, "end": time.time()}
    with Path(os.environ["PERFDOJO_DIARY"], "diary.jsonl").open("a") as diary:
        diary.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class SheetRunner:
    def compile(self, source):
        begin, content = time.time(), source.code.encode()
        time.sleep(RUN_S)
        write("compile", content, begin)
        return Artifact(source.symbol, source.inputs, source.outputs, "program", content, "scissors 1.0")

    def run(self, artifact, request):
        begin = time.time()
        drawn = np.random.default_rng(request.seed).random(artifact.inputs[0].shape, np.float32)
        inputs = request.inputs or {"x": drawn}
        outputs = {"y": np.asarray(inputs["x"]).reshape(artifact.outputs[0].shape) * np.float32(2)}
        if not request.repeats:
            return Measurement(outputs, (), "estimated", self.device(), request.threads)
        time.sleep(RUN_S)
        seconds = AnalyticMachine(TARGET.dialect).seconds(parse(artifact.content.decode(), TARGET.dialect))
        write("run", artifact.content, begin)
        return Measurement(outputs, (seconds,) * request.repeats, "estimated", self.device(), request.threads)

    def device(self):
        return "a sheet of paper"


@hookimpl
def perfdojo_targets():
    return [TARGET]


def twice(n):
    return f"kernel twice(x) -> y\nx f32 [{n}] heap\ny f32 [{n}] heap\n\n{n} y[{{0}}] = x[{{0}}] * 2\n"


@hookimpl
def perfdojo_operators():
    return [Operator("twice", "y = 2 x.", (OperatorParameter("n", "elements"),), twice, ((48,),))]


@hookimpl
def perfdojo_code_generator(target):
    return AnalyticGenerator() if target.name == TARGET.name else None


@hookimpl
def perfdojo_runner(target):
    return SheetRunner() if target.name == TARGET.name else None
