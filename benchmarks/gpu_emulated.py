"""Verification of the GPU targets' kernels in emulation: the library's own, and each operator at many shapes.

    python benchmarks/gpu_emulated.py [--targets cuda_gh200,hip_mi300a] [--shapes 16] [--instances 200000]
                                      [--allow precision]

The tests do the same for fewer and smaller shapes with one class of inputs; here every class is drawn. Every
access of every kernel is checked. Ends with status 1 if any kernel is wrong. Nothing is timed.
"""

from __future__ import annotations

import argparse
import sys
import time

from perfdojo_sdk.core.transformation import Kind, Rules
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.emulated import Emulated


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", default="cuda_gh200,hip_mi300a", help="names, separated by commas")
    parser.add_argument("--shapes", type=int, default=16, help="awkward shapes of each operator")
    parser.add_argument("--instances", type=int, default=200_000, help="of a kernel of the library, at most")
    parser.add_argument("--allow", choices=["precision"], help="play the games that round, too")
    arguments = parser.parse_args()
    most = Kind.CHANGES_PRECISION if arguments.allow else Rules.most
    names = arguments.targets.split(",")
    plugins = load_plugins(targets=names)
    wrong = 0
    for name in names:
        emulated = Emulated(plugins, plugins.target(name), most)
        begin = time.perf_counter()
        library, awkward = emulated.library(arguments.instances), emulated.awkward(arguments.shapes)
        problems = list(emulated.problems(library, quick=False))
        problems += emulated.problems_together(awkward, quick=False)
        wrong += len(problems)
        for problem in problems:
            print(f"{name}: {problem}", file=sys.stderr)
        seconds = time.perf_counter() - begin
        counts = f"{len(library)} kernels of the library, {len(awkward)} at awkward shapes"
        print(f"{name}: {counts}: {len(problems)} wrong, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
