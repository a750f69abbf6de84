"""Products of short dtypes on a GPU's matrix units, beside PyTorch in one run.

    python benchmarks/gpu_products.py [--sizes 4096,4096,4096;768,1024,1024] [--dtypes bf16,f16,i8]
    python benchmarks/gpu_products.py --compile-only     # the compiler's report on each game, and no times

Each product is timed with the right factor as rows of steps and as rows of columns (`turned`). Calls are
timed as in ``gpu_table3.py``, each as a graph that finds nothing in the caches; the result is compared with a
product in f64. PyTorch's product of i8 is ``torch._int_mm``. Without a GPU the program ends with status 3.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gpu_table3 import NO_GPU, TorchGpu, what_is_missing
from perfdojo_sdk.codegen.gpu.figures import read, read_workspace
from perfdojo_sdk.codegen.gpu.tiles import MATRIX
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.measure.gpu_runner import DeviceCode
from perfdojo_sdk.plugins import load_plugins

#: dtype of the factors -> of the sums.
TOTALS = {"bf16": "f32", "f16": "f32", "i8": "i32"}
REPEATS = 30


@dataclass(frozen=True)
class Product:
    rows: int
    columns: int
    steps: int
    dtype: str
    turned: bool
    """True if a row of the right factor is a step of all columns."""

    @property
    def name(self) -> str:
        sizes = f"{self.rows}x{self.columns}x{self.steps}"
        return f"{self.dtype} {sizes}{' turned' if self.turned else ''}"

    @property
    def result(self) -> str:
        return TOTALS[self.dtype] if self.dtype == "i8" else self.dtype

    @property
    def text(self) -> str:
        m, n, k, total = self.rows, self.columns, self.steps, TOTALS[self.dtype]
        shape, at = (f"{k},{n}", "{2},{1}") if self.turned else (f"{n},{k}", "{1},{2}")
        back = "t[{0},{1}]" if self.result == total else f"{self.result}(t[{{0}},{{1}}])"
        return (
            f"kernel product(a, b) -> c\na {self.dtype} [{m},{k}] heap\nb {self.dtype} [{shape}] heap\n"
            f"t {total} [{m},{n}] heap\nc {self.result} [{m},{n}] heap\n\n"
            f"{m} {n}\n| t[{{0}},{{1}}] = 0\n"
            f"| {k} t[{{0}},{{1}}] += {total}(a[{{0}},{{2}}]) * {total}(b[{at}])\n"
            f"{m} {n} c[{{0}},{{1}}] = {back}\n"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cuda_gh200")
    parser.add_argument("--sizes", default="4096,4096,4096", help="rows,columns,steps; separated by ;")
    parser.add_argument("--dtypes", default=",".join(TOTALS))
    parser.add_argument("--compile-only", action="store_true")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.dtypes.split(",")) - set(TOTALS):
        parser.error(f"no matrix unit multiplies {', '.join(sorted(unknown))}; {', '.join(TOTALS)}")
    sizes = [tuple(map(int, size.split(","))) for size in asked.sizes.split(";")]
    products = [
        Product(*size, dtype, turned)
        for size in sizes
        for dtype in asked.dtypes.split(",")
        for turned in (False, True)
    ]
    missing = "" if asked.compile_only else what_is_missing(asked.target)
    if missing:
        print(f"nothing was measured: {missing}", file=sys.stderr)
        return NO_GPU
    games = Games(asked.target)
    gpu = None if asked.compile_only else TorchGpu(games.target)
    if gpu:
        print("\n".join(gpu.about()))
    for product in products:
        contenders = list(games.of(product))
        if gpu is None:
            for number, (code, _) in enumerate(contenders):
                print(f"{product.name} {number}: {'; '.join(each.text for each in code.resources)}")
        else:
            print(timed(product, contenders, gpu), flush=True)
    return 0


class Games:
    """The expert's games on matrix units."""

    def __init__(self, target: str) -> None:
        self.plugins = load_plugins(targets=[target])
        self.target = self.plugins.target(target)

    def of(self, product: Product) -> Iterator[tuple[DeviceCode, Any]]:
        """Machine code and source of each game on matrix units."""
        plugins, target = self.plugins, self.target
        expert, root = plugins.heuristic_pass(target), parse(product.text, target.dialect)
        assert expert is not None, f"{target.name} has an expert"
        for game in expert(root, plugins.rules(target), target):
            if on_matrix_units(game):
                source = plugins.code_generator(target).generate(game.program, "product")
                code = plugins.runner(target).compile_for_device(source)  # type: ignore[attr-defined]
                assert isinstance(code, DeviceCode), code
                yield code, source


def on_matrix_units(game: Trace) -> bool:
    return any(scope.suffix == MATRIX for _, scope in game.program.scopes)


def timed(product: Product, contenders: Sequence[tuple[DeviceCode, Any]], gpu: Any) -> str:
    """A line of the report: both times and rates, and the error of our fastest game."""
    torch = gpu.torch
    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8, "i32": torch.int32}
    scale = 40 if product.dtype == "i8" else 1
    right = (product.steps, product.columns) if product.turned else (product.columns, product.steps)
    a, b = (
        (scale * torch.randn(*shape, device="cuda")).to(dtypes[product.dtype])
        for shape in ((product.rows, product.steps), right)
    )
    across = b if product.turned else b.T
    multiply = torch._int_mm if product.dtype == "i8" else torch.matmul
    theirs = median(gpu, lambda: gpu._keep(multiply(a, across)))
    expected = a.double() @ across.double()
    found = []
    for code, source in contenders:
        files = {
            "launches.json": json.dumps([asdict(launch) for launch in read(source.code)]).encode(),
            "workspace.json": json.dumps(read_workspace(source.code)).encode(),
            **code.files,
        }
        kernel = gpu.loader.kernel_of(gpu.driver, files, (*source.inputs, *source.outputs))
        out = torch.zeros(expected.shape, device="cuda", dtype=dtypes[product.result])

        def call(kernel: Any = kernel, out: Any = out) -> None:
            kernel(a, b, out, stream=torch.cuda.current_stream().cuda_stream)

        seconds = median(gpu, call)
        found.append((seconds, float((out.double() - expected).norm() / expected.norm())))
    if not found:
        return f"{product.name}: no tile divides it"
    ours, error = min(found)
    operations = 2 * product.rows * product.columns * product.steps
    rates = [f"{1e6 * s:.1f} us, {operations / s / 1e12:.0f} T/s" for s in (ours, theirs)]
    return f"{product.name}: ours {rates[0]}; PyTorch {rates[1]}; {theirs / ours:.2f}x; error {error:.1e}"


def median(gpu: Any, call: Any) -> float:
    once = gpu.timer(call)
    return statistics.median(once() for _ in range(REPEATS))


if __name__ == "__main__":
    sys.exit(main())
