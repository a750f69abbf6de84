"""Checkpoints of modules: tensors in safetensors files, in their own dtypes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.torch.modules import ModuleError
from perfdojo_sdk.frontends.torch.packaging import exported_file
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.models.checkpoints import read_checkpoint

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 6), torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
"""


def tensors(dtype: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    shapes = {"first.weight": (6, 4), "first.bias": (6,), "second.weight": (3, 6), "second.bias": (3,)}
    return {name: torch.randn(shape).to(dtype) for name, shape in shapes.items()}


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "net.py"


def split(folder: Path, dtype: Any) -> Path:
    """The checkpoint in two files, with an index."""
    found = tensors(dtype)
    names = {name: f"part{name.startswith('second'):d}.safetensors" for name in found}
    for file in set(names.values()):
        save_file({n: found[n] for n in found if names[n] == file}, folder / file)
    (folder / "index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return folder / "index.json"


@pytest.mark.parametrize(
    ("name", "dtype"), [("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_a_checkpoint_in_several_files_keeps_its_dtype(
    module: Path, tmp_path: Path, name: str, dtype: Any
) -> None:
    made = exported_file(module, "Net", {"x": (name, (2, 4))}, split(tmp_path, dtype))
    assert made.graph is not None, made.elsewhere
    assert {made.graph.values[c].dtype for c in made.graph.constants} == {name}
    x, w = torch.randn(2, 4).to(dtype), tensors(dtype)
    given = x.view(torch.int16).numpy() if dtype == torch.bfloat16 else x.numpy()
    [value] = made.graph.inputs
    from perfdojo_sdk.graph.arrays import numpy_dtype

    [y] = run_graph(made.graph, {value.name: given.view(numpy_dtype(name))})
    wide = {n: t.double() for n, t in w.items()}
    hidden = torch.relu(x.double() @ wide["first.weight"].T + wide["first.bias"])
    wanted = (hidden @ wide["second.weight"].T + wide["second.bias"]).numpy()
    assert np.allclose(y.astype(np.float64), wanted, rtol=0.03, atol=0.06 if dtype != torch.float32 else 1e-5)


def test_one_file_is_a_checkpoint_as_well(tmp_path: Path) -> None:
    save_file(tensors(torch.float32), tmp_path / "all.safetensors")
    found = read_checkpoint(tmp_path / "all.safetensors")
    assert np.array_equal(found["first.bias"], tensors(torch.float32)["first.bias"].numpy())


@pytest.mark.parametrize(
    ("index", "what"),
    [
        ("{", "no index"),
        ("[]", "no index"),
        ('{"weight_map": {"a": 1}}', "no index"),
        ('{"weight_map": {"a": "../all.safetensors"}}', "names the file"),
        ('{"weight_map": {"a": "all.safetensors"}}', "has the tensor"),
        ('{"weight_map": {"a": "none.safetensors"}}', "cannot read"),
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, index: str, what: str) -> None:
    save_file(tensors(torch.float32), tmp_path / "all.safetensors")
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(LibraryError, match=what):
        read_checkpoint(tmp_path / "index.json")
    with pytest.raises(LibraryError, match="cannot read"):
        read_checkpoint(tmp_path / "other.json")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfdojo_sdk.models.checkpoints.MOST_FILES", 1)
    with pytest.raises(LibraryError, match="names 2 files"):
        read_checkpoint(split(tmp_path, torch.float32))


def test_tensors_of_another_module_are_refused(module: Path, tmp_path: Path) -> None:
    save_file({"other": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ModuleError, match="no checkpoint of this module") as error:
        exported_file(module, "Net", {"x": ("f32", (2, 4))}, tmp_path / "other.safetensors")
    assert error.value.code == "PD-O046" and isinstance(error.value, DojoError)
