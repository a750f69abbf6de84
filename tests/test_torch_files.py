"""Files of PyTorch modules: folders in the form of KernelBench, a module as a graph, names in a file."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from command_line import clear  # noqa: E402
from test_torch import Net, close  # noqa: E402

from perfdojo_sdk import load_model  # noqa: E402
from perfdojo_sdk.cli.kernelbench import _key as known_key  # noqa: E402
from perfdojo_sdk.core.errors import DojoError  # noqa: E402
from perfdojo_sdk.frontends.torch.kernelbench import excess, main, widened  # noqa: E402
from perfdojo_sdk.frontends.torch.modules import loaded, network  # noqa: E402
from perfdojo_sdk.frontends.torch.named import named_in  # noqa: E402
from perfdojo_sdk.frontends.torch.packaging import exported_file  # noqa: E402
from perfdojo_sdk.graph.running import run_graph  # noqa: E402

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, 2)
        self.rnn = nn.GRU(2, 3)
    def forward(self, x):
        return self.rnn(self.linear(x))[0]
class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
class Fourier(nn.Module):
    def forward(self, x, y):
        return torch.fft.fft(x).real + y
class Nothing(nn.Module):
    def forward(self):
        return torch.ones(3)
class Keyword(nn.Module):
    def forward(self, x, *, k=2):
        return x * k
def make():
    return Model(4)
def get_inputs():
    return [torch.randn(5, 2, 4)]
def get_init_inputs():
    return [4]
"""


def test_a_folder_of_problems_is_run_and_goes_on(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "set" / "one").mkdir(parents=True)
    (tmp_path / "set" / "one" / "good.py").write_text(PROBLEM)
    first = cli("kernelbench", "set", "--interpret", "--json", "-o", "out")
    [row] = json.loads(first.out)["problems"]
    assert (row["problem"], row["status"], row["kernels"]) == ("one/good", "right", 3), row
    assert row["error"] < 1 and "good ..." in first.err
    assert row["eager_s"] is row["ours_s"] is row["compile_s"] is None, "an interpreter has no speed"
    again = cli("kernelbench", "set", "--interpret", "--only", "one/*", "-o", "out")
    assert again.code == 0 and "good ..." not in again.err and "1 problem: 1 right" in again.out
    assert "nothing is timed" in again.out
    assert not any(word in again.out for word in ("times as fast", "eager", "ours", "compiled in"))
    assert cli("kernelbench", "set", "--interpret", "--inductor", "-o", "out").code == 2
    file, place = tmp_path / "set" / "one" / "good.py", tmp_path / "out" / "results" / "one" / "good.json"
    times = {"eager_s": 1e-3, "ours_s": 1e-3, "inductor_s": 2e-3, "compile_s": 1.0, "rivals": ["inductor"]}
    key = known_key(file, {"target": "toy", "threads": 1})
    place.write_text(json.dumps(row | times | {"key": key}))
    words = ("kernelbench", "set", "--target", "toy", "-o", "out")
    raced = cli(*words, "--inductor", plugins="toy")
    assert "good ..." not in raced.err, "what is known is not run again"
    words = (
        "1.00 times as fast as eager (not slower in 100% of",
        "2.00 times as fast as inductor",
        "1.00 times as fast as the",
        "times are measured",
    )
    assert all(each in raced.out for each in words)
    (tmp_path / "bad.py").write_text(PROBLEM.replace("class Model", "class Mode"))
    main(["bad.py", "bad.json", "{}"])
    bad = json.loads((tmp_path / "bad.json").read_text())
    assert bad["status"] == "failed" and "has no Model" in bad["what"]
    assert cli("kernelbench", "out").code == 5
    (tmp_path / "out" / "tool.py").write_text("raise SystemExit('not a problem')\n")
    nothing = cli("kernelbench", "out")
    assert nothing.code == 5 and "class Model, get_inputs()" in nothing.err
    (tmp_path / "set" / "tool.py").write_text("raise SystemExit('not a problem')\n")
    beside = cli("kernelbench", "set", "--interpret", "--only", "one/*", "-o", "out")
    assert beside.code == 0 and "left out, without Model and get_inputs: tool.py" in beside.err


def test_modules_are_widened_with_the_tensors_that_they_hold() -> None:
    net = Net()
    net.state, net.parts = torch.zeros(2), [torch.zeros(1), (torch.zeros(3, dtype=torch.int32), "name")]
    wide = widened(net)
    assert wide.state.dtype == wide.parts[0].dtype == wide.linear.weight.dtype == torch.float64
    assert wide.parts[1][0].dtype == torch.int32 and wide.parts[1][1] == "name"


def test_a_file_that_leaves_the_process_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(DojoError, match=r"leaves\.py:2 does not run\n.*SystemExit: 3"):
        network(tmp_path / "leaves.py", "Net")


def test_errors_are_measured_against_what_is_allowed() -> None:
    exact = torch.tensor([1.0, 100.0], dtype=torch.float64)
    eager = exact.float()
    assert excess(eager, eager, exact) == 0
    assert 0.4 < excess(eager + torch.tensor([0.001, 0]), eager, exact) < 0.6
    assert excess(eager + torch.tensor([0.01, 0]), eager, exact) > 1
    assert excess(eager + 0.01, eager + 0.002, exact) < 1  # eager is no better
    assert excess(eager.double(), eager, exact) == excess(eager[:1], eager, exact) == float("inf")
    nan = torch.tensor([float("nan"), 100.0])
    assert excess(nan, nan, nan.double()) == 0 and excess(eager, nan, nan.double()) == float("inf")
    assert excess(nan, eager, exact) == float("inf")
    assert excess(torch.tensor([1]), torch.tensor([2]), torch.tensor([1])) == float("inf")


def test_a_module_of_a_file_becomes_a_graph(tmp_path: Path, cli: Any) -> None:
    file = tmp_path / "m.py"
    file.write_text(PROBLEM)
    torch.manual_seed(0)
    made = exported_file(file, "make", {"x": ("f32", (5, 2, 4))})
    assert made.graph is not None and [v.name for v in made.graph.inputs] == ["x"]
    assert {"linear.weight", "linear.bias", "rnn.weight_ih_l0"} <= made.graph.constants.keys()
    torch.manual_seed(0)
    net, x = network(file, "make"), torch.randn(5, 2, 4)
    [found] = run_graph(made.graph, {"x": x.numpy()})
    with torch.no_grad():
        assert close(torch.from_numpy(found), net(x))
    listed = cli(
        "optimize",
        "m.py:Fourier",
        "--input",
        "x=f32[4]",
        "--input",
        "y=[4]",
        "--list",
        "--json",
        plugins="toy",
    )
    assert listed.code == 1 and {r["operator"] for r in json.loads(listed.out)["refused"]} == {
        "fft_fft",
        "real",
    }
    assert cli("optimize", "m.py:make", "--input", "x=f32[5,2,4]", "--list", plugins="toy").code == 0
    for name, words in {
        "make": "the size of input x",
        "Fourier --input x=f32[4]": "the size of input y",
        "Fourier": "--input 'x=f32[SIZES]' --input 'y=f32[SIZES]'",
        "Nothing": "takes no inputs",
        "Keyword": "the size of input x",
        "Keyword --input k=f32[4]": "takes no input 'k'",
        "Absent": "has no Absent",
        "Model": "makes no module",
        "Branch --input x=f32[2]": "Branch decides by elements of tensors",
        "make --input z=f32[2]": "takes no input 'z'",
        "make --input x=u16[2]": "no tensors of u16",
    }.items():
        refused = cli("optimize", *f"m.py:{name}".split(), plugins="toy")
        assert refused.code == 1 and words in refused.err, refused.err
    file.write_text("1 / 0\n")
    assert "does not run" in cli("optimize", "m.py:make", plugins="toy").err


BESIDE = """
from __future__ import annotations
from dataclasses import dataclass
import torch
from block_of_a_neighbour import Block

@dataclass
class Sizes:
    width: int = 4

def net(): return torch.nn.Sequential(torch.nn.Linear(Sizes().width, 3), Block())
"""


def test_a_file_may_have_data_classes_and_import_files_beside_it(tmp_path: Path) -> None:
    before = list(sys.path)
    (tmp_path / "m.py").write_text(BESIDE)
    (tmp_path / "block_of_a_neighbour.py").write_text("from torch.nn import ReLU as Block\n")
    made = exported_file(tmp_path / "m.py", "net", {"input": ("f32", (2, 4))})
    assert made.graph is not None and made.graph.outputs[0].shape == (2, 3)
    assert sys.path == before and "block_of_a_neighbour" not in sys.modules


OWN = """
from importlib import import_module
import torch
import helpers_of_a_model.parts
import helpers_of_a_model.parts as same
import string, open_folder.inside
from helper_of_a_model import factor, sizes
from .helper_of_a_model import factor as again

class Net(torch.nn.Module):
    def forward(self, x):
        from helpers_of_a_model import parts
        assert same is parts is helpers_of_a_model.parts and factor == again == open_folder.inside.factor
        assert string.digits and len(sizes()) == 2
        return x * factor + parts.term() + open_folder.inside.term(x)

def plainly():
    return import_module("helpers_of_a_model.parts").term
"""


def models_of_two_folders(tmp_path: Path, text: str = OWN) -> list[Path]:
    """Files with equal names in two folders, which differ in their numbers."""
    for folder, factor in (("one", 2), ("two", 3)):
        package = tmp_path / folder / "helpers_of_a_model"
        package.mkdir(parents=True)
        (tmp_path / folder / "m.py").write_text(text)
        (tmp_path / folder / "string.py").write_text("1 / 0\n")  # the standard library goes before
        helper = f"factor = {factor}\ndef sizes():\n    from m import Net\n    return [Net, factor]\n"
        (tmp_path / folder / "helper_of_a_model.py").write_text(helper)
        (package / "__init__.py").write_text("from helper_of_a_model import factor\n")
        (package / "parts.py").write_text("from . import factor\ndef term(): return 10 * factor\n")
        (tmp_path / folder / "open_folder").mkdir()
        inside = "from helper_of_a_model import factor\ndef term(x): return min(x.numel(), 100) * factor\n"
        (tmp_path / folder / "open_folder" / "inside.py").write_text(inside)
    return [tmp_path / folder / "m.py" for folder in ("one", "two")]


def test_files_of_two_folders_have_their_own_helpers(tmp_path: Path) -> None:
    """At once and later, by plain and by relative names, of files and packages."""
    files = models_of_two_folders(tmp_path)
    models = [network(file, "Net") for file in files]
    x = torch.ones(1)
    assert [float(model(x)) for model in models] == [2 + 20 + 2, 3 + 30 + 3]
    for file, expected in zip(files, (24, 36), strict=True):
        made = exported_file(file, "Net", {"x": ("f32", (1,))})
        assert made.graph is not None and run_graph(made.graph, {"x": x.numpy()})[0] == [expected]


@torch.no_grad()
def test_pytorch_traces_functions_of_helpers(tmp_path: Path) -> None:
    text = OWN.replace("        from helpers_of_a_model import parts\n", "")
    text = text.replace("same is parts is helpers_of_a_model.parts and ", "")
    text = text.replace("parts.term()", "same.term()").replace("len(sizes()) == 2", "True")
    for file, expected in zip(models_of_two_folders(tmp_path, text), (24, 36), strict=True):
        options = {"fallback": None, "interpret": True}
        net = torch.compile(network(file, "Net"), backend="perfdojo", options=options)
        assert float(net(torch.ones(1))) == expected


def test_a_name_without_a_file_that_asks_has_to_be_of_one_folder(tmp_path: Path) -> None:
    text = OWN.replace("of_a_model", "of_some_model")
    one, two = models_of_two_folders(tmp_path, text)
    for folder in (one.parent, two.parent):
        (folder / "helpers_of_a_model").rename(folder / "helpers_of_some_model")
        helper = (folder / "helper_of_a_model.py").read_text()
        (folder / "helper_of_some_model.py").write_text(helper)
    first = loaded(one)
    assert first.plainly()() == 20 and first.plainly() is first.same.term
    second = loaded(two)
    with pytest.raises(ImportError, match="is in .*one and in .*two: only an import statement says"):
        second.plainly()


SEEN = """
import sys
from importlib import import_module
import torch
from twin.parts import factor
import seen_helper, twin
sys.modules["seen_helper"].factor *= 10
assert import_module("seen_helper") is seen_helper is seen_helper.me and twin.parts.factor == factor

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = sys.modules["seen_helper"].factor + sys.modules["twin.parts"].factor
    def forward(self, x):
        return x * self.factor

class Later(Net):
    def forward(self, x):
        return x * sys.modules["seen_helper"].factor

class Replaced(Net):
    def __init__(self):
        super().__init__()
        del sys.modules["seen_helper"]
        import seen_helper as anew
        sys.modules["seen_helper"] = stand_in = type(sys)("stand_in")
        stand_in.factor = self.factor + anew.factor
    def forward(self, x):
        import seen_helper
        return x * seen_helper.factor
"""


def test_a_file_beside_a_package_of_its_name_sees_names_of_modules_as_a_script_does(tmp_path: Path) -> None:
    """Each loaded file its own, twice in turns; nothing of that stays in the process."""
    for folder, factor in (("one", 2), ("two", 3)):
        package = tmp_path / folder / "twin"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "parts.py").write_text(f"factor = {factor}\n")
        (tmp_path / folder / "twin.py").write_text(SEEN)
        helper = f"import sys\nme = sys.modules['seen_helper']\nfactor = {factor}\n"
        (tmp_path / folder / "seen_helper.py").write_text(helper)
    before = sys.modules["seen_helper"] = types.ModuleType("seen_helper")
    try:
        one, two = tmp_path / "one" / "twin.py", tmp_path / "two" / "twin.py"
        models = [network(file, name) for name in ("Net", "Replaced") for file in (one, two)]
        x = torch.ones(1)
        assert [float(model(x)) for model in models] == [22, 33, 24, 36]
        for file, expected in ((one, 20), (two, 30)):
            made = exported_file(file, "Later", {"x": ("f32", (1,))})
            assert made.graph is not None and run_graph(made.graph, {"x": x.numpy()})[0] == [expected]
        assert sys.modules["seen_helper"] is before and "twin" not in sys.modules
    finally:
        del sys.modules["seen_helper"]


@pytest.mark.parametrize(
    ("given", "tried"),
    [
        ("x=f32[5]", "--input 'x=f32[SIZES]'"),
        ("ids=f32[5]", "--input 'ids=i64[5]'"),
        ("ids=i64[2,5]", "--input 'ids=i64[SIZES]'"),
        ("mask=f32[5]", "--input 'mask=bool[5]'"),
    ],
)
def test_hints_keep_the_dtype_unless_pytorch_asks_for_another(
    given: str, tried: str, tmp_path: Path, cli: Any
) -> None:
    bodies = {
        "x": "x + torch.ones(4)",
        "ids": "torch.ones(4)[ids] + torch.ones(4)",
        "mask": "torch.where(mask, 1.0, 2.0)",
    }
    name = given.partition("=")[0]
    (tmp_path / "m.py").write_text(
        f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, {name}): return {bodies[name]}\n"
    )
    refused = cli("optimize", "m.py:Net", "--input", given, "-o", "out", plugins="toy")
    assert refused.code == 1 and tried in refused.err, refused.err


def test_errors_of_helpers_name_their_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("x = 1\nfrom mistaken_helper import Net\n\ndef make(): return Net(4)\n")
    for text, where, why in (
        ("x = 1\n\ny = x / 0\n", "mistaken_helper.py:3 does not run", "ZeroDivisionError: division by zero"),
        ("def f():\n    x = = 1\n", "mistaken_helper.py:2 does not run", "SyntaxError: invalid syntax"),
        ("import torch\n\ntorch.zeros(-1)\n", "mistaken_helper.py:3 does not run", "RuntimeError"),
        ("import absent_module\n", "mistaken_helper.py:1 does not run", "No module named 'absent_module'"),
        ("Name = 1\n", "m.py:2 does not run", "cannot import name 'Net' from 'mistaken_helper'"),
        (
            "def Net(n):\n    return [0][n]\n",
            "make of m.py makes no module",
            "mistaken_helper.py:2: IndexError",
        ),
    ):
        (tmp_path / "mistaken_helper.py").write_text(text)
        with pytest.raises(DojoError) as error:
            network(Path("m.py"), "make")
        assert where in str(error.value) and why in str(error.value), str(error.value)
    (tmp_path / "m.py").write_text("x = 1\n\nx.y\n")
    with pytest.raises(DojoError, match=r"m\.py:3 does not run"):
        network(Path("m.py"), "make")


NAMES = """
import torch
import torch.nn as nn
from torch.nn import functional as F, Linear as L
raise SystemExit("this file is not to be run")

class Base(nn.Module):
    def __init__(self, size, *, deep=False):
        super().__init__()

class Derived(Base): pass
class Small(torch.nn.Sequential):
    def __init__(self, size=3): pass
class Data(torch.utils.data.Dataset): pass

made = Small(4).eval()
line: nn.Module = L(2, 3)
number = F.relu(torch.zeros(1))
weight = nn.Parameter(torch.zeros(1))
def make(): return Base(3).to("cpu")
def make_for(size): return Base(size)
def other(): return 1
"""


def test_a_file_without_a_name_lists_the_modules_of_its_text(tmp_path: Path, cli: Any) -> None:
    found = {each.name: each.needs for each in named_in(NAMES)}
    assert found == {
        "Base": True, "Derived": True, "Small": False, "made": False, "line": False,
        "make": False, "make_for": True,
    }  # fmt: skip
    (tmp_path / "m.py").write_text(NAMES)
    for given in ("m.py", "m.py:", "m.py:a.b"):
        refused = cli("optimize", given, plugins="toy")
        clear(refused, 1, "PD-O023")
        assert "m.py:Small" in refused.err and "made, line, make" in refused.err, refused.err
        assert "Base, Derived, make_for: name a function" in refused.err
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "bad.py").write_text("x = = 1\n")
    for given, words in {
        "none.py": "defines no torch.nn.Module", "bad.py": "is no Python file", "absent.py": "cannot read",
    }.items():  # fmt: skip
        refused = cli("optimize", given, plugins="toy")
        clear(refused, 1, "PD-O023")
        assert words in refused.err, refused.err


def test_commands_say_what_to_do_with_files_that_others_take(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "p.dojo").write_text(
        "kernel p(x) -> y\nx f32 [5] heap\ny f32 [5] heap\n\n5 y[{0}] = x[{0}]\n"
    )
    (tmp_path / "m.py").write_text("import torch\nclass Net(torch.nn.Module): pass\n")
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "model.json").write_text("{}")
    (tmp_path / "plain").mkdir()
    for words, code, hint in (
        (
            ("replay", "p.dojo"),
            "PD-J002",
            "`show p.dojo` prints it, and `apply p.dojo MOVE --output GAME.json`",
        ),
        (("bench", "m.py"), "PD-K009", "`optimize m.py:NAME` builds a model"),
        (("bench", "m.py:Net"), "PD-K009", "`optimize m.py:Net` builds a model"),
        (("bench", "net.onnx"), "PD-K009", "`optimize net.onnx` builds a model"),
        (
            ("optimize", "built"),
            "PD-O002",
            "what it was built from, MODEL.onnx or FILE.py:NAME; `show built`",
        ),
        (("optimize", "plain"), "PD-O002", "give a model: MODEL.onnx or FILE.py:NAME"),
    ):
        refused = cli(*words, plugins="toy")
        assert refused.code not in (0, 70) and code in refused.err and hint in refused.err, refused.err


def test_a_model_of_no_elements_is_built_and_says_so(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
    )
    made = cli("optimize", "m.py:Net", "--input", "x=f32[0,4]", "-o", "out", plugins="toy")
    assert made.code == 0, made.err
    said = "the results are empty, since an input has no elements (f32[0,4]); the model returns empty arrays"
    assert said in made.err
    assert load_model(tmp_path / "out")(torch.zeros(0, 4).numpy()).shape == (0, 4)
