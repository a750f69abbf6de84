"""The exact leg's machine in C keeps to its memory: random games run in it under the address sanitizer."""

import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import mutants, newly_allowed, random_walk
from perfdojo_sdk.verify import modular_vm
from perfdojo_sdk.verify.exact import verify_exact_trace
from tests.programs import DIALECT, program
from tests.snippets import RULES

SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

#: The same run-time index in two subscripts of one access, beside another.
DIAGONAL = """kernel diagonal(x, n) -> y
x f32 [3,2,3] heap
n i32 [3] heap
y f32 [3] heap

3 y[{0}] = x[clamp(n[{0}] + {0}, 0, 2),clamp(n[{0}], 0, 1),clamp(n[{0}] + {0}, 0, 2)]
"""


def play(seeds: range) -> None:
    """Random games, some with a wrong move at their end, in the machine."""
    verify_exact_trace(Trace(program(DIAGONAL)), DIALECT)
    wrong = mutants(RULES)
    for seed in seeds:
        rng = Random(seed)
        trace = random_walk(rng, random_program(rng, 4), RULES, rng.randrange(6))
        for step in islice(newly_allowed(rng.choice(wrong), RULES, trace.program), 1):
            trace = Trace(trace.root, (*trace.steps, step))
        verify_exact_trace(trace, DIALECT, models=1)


def test_random_games_stay_within_their_memory() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True)
    library = Path(found.stdout.strip())
    if not library.is_absolute():
        pytest.skip("gcc came without its sanitizers")
    environment = {**os.environ, "LD_PRELOAD": str(library), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-m", "tests.test_modular_vm_memory"]
    folder = Path(__file__).parents[1]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "sanitized\n"), ran.stderr[-4000:]


if __name__ == "__main__":
    modular_vm.FLAGS = SANITIZERS
    play(range(60))
    assert modular_vm.available()
    print("sanitized")
