"""The modules of ``benchmarks/kernelbench`` keep the proportions of sizes and kinds."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.kernelbench_sizes import FOLDER, GIVEN, parts, size, sizes  # noqa: E402

#: Modules of each kind in the public set, of which there are ``OF``.
ASKED = {"level1": 71, "level2": 96, "level3": 35, "convolution": 101, "transposed": 36}
OF = 202


def test_proportions() -> None:
    found = sizes(FOLDER)
    part = parts(found)
    assert part["wide"] >= 1 / 4 and part["heavy"] >= 1 / 6
    assert {name: part[name] for name in ASKED} == pytest.approx(
        {n: c / OF for n, c in ASKED.items()}, abs=0.025
    )
    assert part["product"] >= 44 / OF
    assert {name: each.given for name, each in found.items() if each.given > GIVEN} == {}


def test_a_measured_size(tmp_path) -> None:
    """A view makes no array, nor does a change in place; a multiplication and its sum count twice."""
    path = tmp_path / "one.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.linear = torch.nn.Linear(8, 4, bias=False)\n"
        "    def forward(self, x):\n        return self.linear(x.mul_(2)).T.expand(5, 4, 3)\n"
        "def get_inputs():\n    return [torch.randn(3, 8)]\ndef get_init_inputs():\n    return []\n"
    )
    found = size(path)
    assert (found.flops, found.largest, found.given) == (2 * 3 * 8 * 4, 3 * 4 * 4, (3 * 8 + 4 * 8) * 4)
    assert found.kinds == ("product",)
