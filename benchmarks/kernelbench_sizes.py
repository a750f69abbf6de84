"""The sizes and kinds of the modules in ``benchmarks/kernelbench``, without running them.

    python benchmarks/kernelbench_sizes.py [DIR] [--json]

Each module is made and called with meta tensors, which have shapes and no numbers. Counted are the
floating-point operations of products and convolutions (twice the multiplications), the bytes of the largest
array that PyTorch makes on the way or as a result, and those of the inputs and parameters.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from perfdojo_sdk.frontends.torch.modules import problem

FOLDER = Path(__file__).resolve().parent / "kernelbench"
#: Bytes above which an array is wide, operations above which a module is heavy, and bytes that may be given.
WIDE, HEAVY, GIVEN = 1 << 26, 10**10, 1 << 26
#: Operators of ATen that are products of matrices.
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})


@dataclass(frozen=True)
class Size:
    """The cost of one call of a module, and its kinds of operators."""

    flops: int
    largest: int
    """Bytes of the largest array that it makes."""
    given: int
    """Bytes of its inputs, parameters and buffers."""
    kinds: tuple[str, ...]
    """``convolution`` (also ``transposed``, ``3D``), or ``product`` if it has products and no convolution."""


class _Seen(TorchDispatchMode):
    """Notes the largest array and the kinds of operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.kinds = 0, set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = {_place(each) for each in _tensors((args, kwargs))}
        made = (each for each in _tensors(found) if _place(each) not in given)
        self.largest = max([self.largest, *(each.untyped_storage().nbytes() for each in made)])
        name = func.overloadpacket.__name__
        if name == "convolution":
            strides, turned = args[3], args[6]
            self.kinds |= {"convolution"} | ({"transposed"} if turned else set())
            self.kinds |= {"3D"} if len(strides) == 3 else set()
        elif name in PRODUCTS:
            self.kinds.add("product")
        return found


def size(path: Path) -> Size:
    """The size of the module in a file."""
    with torch.device("meta"), torch.no_grad():
        found = problem(path)
        inputs = list(found.draw())
        seen, flops = _Seen(), FlopCounterMode(display=False)
        with flops, seen:
            found.model(*inputs)
    held = [*found.model.parameters(), *found.model.buffers(), *_tensors(inputs)]
    kinds = seen.kinds - ({"product"} if "convolution" in seen.kinds else set())
    given = sum(each.numel() * each.element_size() for each in held)
    return Size(flops.get_total_flops(), seen.largest, given, tuple(sorted(kinds)))


def sizes(folder: Path) -> dict[str, Size]:
    """The size of each module in a folder, by its name in there."""
    return {p.relative_to(folder).with_suffix("").as_posix(): size(p) for p in sorted(folder.rglob("*.py"))}


def parts(found: dict[str, Size]) -> dict[str, float]:
    """The part of the modules of each level and kind, of the wide and of the heavy."""
    counts = Counter(name.split("/")[0] for name in found)
    for each in found.values():
        counts.update(each.kinds)
        counts.update({"wide": each.largest > WIDE, "heavy": each.flops > HEAVY})
    return {name: count / len(found) for name, count in counts.items()}


def _tensors(values: Any) -> Iterable[torch.Tensor]:
    return (each for each in tree_leaves(values) if isinstance(each, torch.Tensor))


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", metavar="DIR", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = sizes(options.directory)
    if options.json:
        print(
            json.dumps({"modules": {n: asdict(s) for n, s in found.items()}, "parts": parts(found)}, indent=1)
        )
        return 0
    for name, each in found.items():
        numbers = (
            f"{each.flops / 1e9:8.2f} GFLOP {each.largest / 1e6:8.1f} MB {each.given / 1e6:7.1f} MB given"
        )
        print(f"{name:45}{numbers}  {', '.join(each.kinds)}")
    print(f"{len(found)} modules: {', '.join(f'{n} {p:.0%}' for n, p in sorted(parts(found).items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
