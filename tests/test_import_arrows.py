"""The layers of packages: the permitted imports, checked on the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from perfdojo_sdk.hookspecs.imports import IMPORTABLE, instead_of
from perfdojo_sdk.testing.imported import sdk_imports

ROOT = Path(__file__).parent.parent
SDK = ROOT / "perfdojo_sdk"
PLUGINS = sorted(p.parent for p in ROOT.glob("plugins/*/pyproject.toml"))
PLUGIN_SOURCES = sorted(p.parent for p in ROOT.glob("plugins/*/perfdojo_*/__init__.py"))

#: Modules that importing the SDK, or asking for help, must not load.
HEAVY = {"jax", "numpy", "onnx", "onnxruntime", "pluggy", "pydantic", "ray", "rich", "sqlalchemy"} | {
    "islpy",
    "torch",
    "transformers",
    "typer",
    "yaml",
}


def modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


@cache
def imported(path: Path) -> tuple[tuple[str, int], ...]:
    """(module, line) of every import in a file, inside functions too, relative ones resolved."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[tuple[str, int]]:
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield module, node.lineno
            # `from perfdojo_sdk import cli` names a module too.
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


#: The packages of the SDK from the bottom up. A file imports its own package and those before it, inside
#: functions too. The SDK's own hooks (``builtin``) are found by name, like every plugin.
LAYERS = (
    "core",
    "hookspecs",
    "store",
    "kernels",
    "graph",
    "codegen",
    "search",
    "experts",
    "measure",
    "verify",
    "plugins",
    "views",
    "game",
    "library",
    "models",
    "frontends",
    "onnx",
    "torch",
    "environment",
    "testing",
    "perfllm",
    "peers",
    "experiments",
    "builtin",
    "gym",
    "cluster",
    "cli",
)
#: Rooms with modules that a plugin may import; which ones, says the contract.
OF_PLUGINS = (*LAYERS[: LAYERS.index("library") + 1], "experiments")
#: Files that hold each other, and are still to be taken apart. The list only becomes shorter.
CYCLES: tuple[set[str], ...] = ()


def room(module: str) -> str:
    """The room of a module of the SDK; empty for the package itself and for all other modules."""
    parts = module.split(".")
    return parts[1] if parts[0] == "perfdojo_sdk" and len(parts) > 1 and parts[1] in LAYERS else ""


def test_every_room_has_its_layer() -> None:
    there = {p.stem for p in SDK.iterdir() if p.is_dir() or p.suffix == ".py"}
    assert there - {"__init__", "__pycache__"} == set(LAYERS)


@pytest.mark.parametrize("path", modules(SDK), ids=lambda p: str(p.relative_to(SDK)))
def test_a_file_imports_what_lies_below_it(path: Path) -> None:
    own = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
    if not own:
        return  # the package itself, which opens the library on demand
    allowed = LAYERS[: LAYERS.index(own) + 1]
    for module, line in imported(path):
        assert not room(module) or room(module) in allowed, f"{path.name}:{line} imports {module}"
        assert module.partition(".")[0] == "perfdojo_sdk" or not module.startswith("perfdojo_"), (
            f"{path.name}:{line} imports a plugin: {module}"
        )


@pytest.mark.parametrize("path", modules(SDK / "core"), ids=lambda p: p.name)
def test_core_imports_the_standard_library_and_itself_only(path: Path) -> None:
    for module, line in imported(path):
        root = module.partition(".")[0]
        assert room(module) == "core" or root in sys.stdlib_module_names, f"{path.name}:{line}: {module}"


@pytest.mark.parametrize("folder", PLUGIN_SOURCES, ids=lambda p: p.name)
def test_a_plugin_imports_what_plugins_may(folder: Path) -> None:
    """The modules that the contract lists, and of plugins itself alone."""
    for path, line, module in sdk_imports(folder):
        assert not instead_of(module), f"{path.name}:{line}: {module}; use {instead_of(module)}"
    for path in modules(folder):
        for module, line in imported(path):
            other = module.startswith("perfdojo_") and module.partition(".")[0] != "perfdojo_sdk"
            assert not other or module.partition(".")[0] == folder.name, f"{path.name}:{line}: {module}"


def test_the_list_for_plugins_is_of_modules_that_are_there_and_used() -> None:
    """By a plugin of this repository, by the guide, or by what the scaffold writes."""
    used = {module for folder in PLUGIN_SOURCES for _, _, module in sdk_imports(folder)}
    used |= {module for _, _, module in sdk_imports(ROOT / "tests" / "toy_target" / "perfdojo_toy")}
    texts = [*(SDK / "plugins" / "templates").iterdir(), *(ROOT / "docs" / "guide").glob("*.md")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in texts)
    used |= set(re.findall(r"from (perfdojo_sdk[\w.]*) import", text))
    used |= {name.rpartition(".")[0] for name in re.findall(r"`(perfdojo_sdk[\w.]+)", text)}
    for module in IMPORTABLE:
        assert room(module) in OF_PLUGINS and find_spec(module), module
        assert module in used, f"nobody needs {module}: take it off the list"


def test_the_guide_imports_what_plugins_may() -> None:
    """In what it writes into a plugin; its tests use the rooms that are for tests."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "guide").glob("*.md")]
    found = {module for text in texts for module in re.findall(r"from (perfdojo_sdk[\w.]*) import", text)}
    assert len(found) > 15
    wrong = {module for module in found if instead_of(module) and room(module) not in ("testing", "verify")}
    assert not wrong


def test_what_a_plugin_reads_of_the_sdk_is_found_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import perfdojo_sdk.cli\nfrom perfdojo_sdk import core\n"
        "from perfdojo_sdk.core import program, text\n"
        "from perfdojo_sdk.verify.exact import verify\ndef f():\n    from perfdojo_sdk import __version__\n"
        "from . import b\nimport numpy\n"
    )
    (tmp_path / "b.py").write_text("import (\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "c.py").write_text("import perfdojo_sdk.testing\n")
    found = {(line, module.removeprefix("perfdojo_sdk.")) for _, line, module in sdk_imports(tmp_path)}
    assert found == {
        (1, "cli"),
        (2, "core"),
        (3, "core.program"),
        (3, "core.text"),
        (4, "verify.exact"),
        (6, "perfdojo_sdk"),
    }


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("perfdojo_sdk.cli.bench", "a plugin adds no commands"),
        ("perfdojo_sdk.measure.answer", "perfdojo_sdk.measure.native_runner or"),
        ("perfdojo_sdk.verify.exact", "the plugin's tests"),
        ("perfdojo_sdk.nonsense", "the hooks"),
        ("perfdojo_sdk.core.program", ""),
    ],
)
def test_a_module_that_is_not_for_plugins_has_another_in_its_place(module: str, words: str) -> None:
    assert words in instead_of(module) and bool(words) == bool(instead_of(module))


def held_by(path: Path, names: Collection[str]) -> set[str]:
    """The modules of the SDK that a file imports, inside functions and for type checkers too."""
    found = {module for module, _ in imported(path) if module in names}
    # `from package import module` is an import of the module; the package has been loaded by then.
    return {module for module in found if not any(other.startswith(f"{module}.") for other in found)}


def reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found, waiting = set[str](), [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_files_do_not_hold_each_other() -> None:
    """No cycle of imports, those inside functions and for type checkers included."""
    files = {str(p.relative_to(ROOT).with_suffix("")).replace("/", "."): p for p in modules(SDK)}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph = {name: held_by(path, files) - {name} for name, path in files.items()}
    reach = {name: reached(graph, name) for name in graph}
    cycles = {frozenset(other for other in reach[n] if n in reach[other]) for n in graph if n in reach[n]}
    names = [{name.removeprefix("perfdojo_sdk.") for name in cycle} for cycle in cycles]
    assert sorted(map(sorted, names)) == sorted(map(sorted, CYCLES))


def test_only_the_cluster_imports_ray() -> None:
    for path in modules(SDK):
        if "cluster" not in path.parts:
            assert not [m for m, _ in imported(path) if m.partition(".")[0] == "ray"], path


def test_only_the_command_line_imports_the_cluster() -> None:
    for path in modules(SDK):
        if path.parent not in (SDK / "cli", SDK / "cluster"):
            assert not [m for m, _ in imported(path) if m.startswith("perfdojo_sdk.cluster")], path


def test_the_sdk_names_no_target() -> None:
    """Targets are the plugins' own: neither their names nor instruction sets stand in the SDK."""
    names = {p.name for p in PLUGINS} | {p.name.removeprefix("perfdojo_") for p in PLUGIN_SOURCES}
    names |= {file.stem for p in PLUGIN_SOURCES for file in p.glob("*.yaml")}
    assert names, "there are plugins in this tree"
    words = names | {"avx", "x86", "sse4", "neon", "snitch", "nvidia", "_mm256", "_mm512", "immintrin"}
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in sorted(SDK.rglob("*"))
        if path.suffix in {".py", ".yaml", ".c", ".h", ".dojo", ".tmpl"}
        for word in words
        if word in path.read_text(encoding="utf-8").lower()
    ]
    assert not found, found


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after ``code``."""
    script = f"{code}\nimport sys\nprint('\\n'.join({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_importing_the_sdk_is_light() -> None:
    assert not loaded_by("import perfdojo_sdk") & HEAVY


def test_importing_core_is_light() -> None:
    assert not loaded_by("import perfdojo_sdk.core.text, perfdojo_sdk.core.transformations") & HEAVY


def test_help_is_light() -> None:
    code = "import perfdojo_sdk.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass"
    assert not loaded_by(code) & HEAVY


def test_asking_what_is_installed_loads_no_figures() -> None:
    words = "['plugins', 'list', '--no-import']"
    code = f"import perfdojo_sdk.cli as c\ntry: c.main({words})\nexcept SystemExit: pass"
    assert not loaded_by(code) & {"numpy", "sqlalchemy"}
