"""The rooms of the house: who may import whom, checked on the source itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of every import in a file, inside functions too, relative ones resolved."""
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


@pytest.mark.parametrize("path", modules(SDK / "core"), ids=lambda p: p.name)
def test_core_imports_the_standard_library_and_itself_only(path: Path) -> None:
    for module, line in imported(path):
        root = module.partition(".")[0]
        inside = module == "perfdojo_sdk.core" or module.startswith("perfdojo_sdk.core.")
        assert inside or root in sys.stdlib_module_names, f"{path.name}:{line} imports {module}"


@pytest.mark.parametrize("path", modules(SDK / "hookspecs"), ids=lambda p: p.name)
def test_the_contract_with_plugins_imports_core_only(path: Path) -> None:
    for module, line in imported(path):
        if module.partition(".")[0] == "perfdojo_sdk":
            allowed = ("perfdojo_sdk.core", "perfdojo_sdk.hookspecs")
            assert module.startswith(allowed), f"{path.name}:{line} imports {module}"


@pytest.mark.parametrize("path", modules(SDK), ids=lambda p: str(p.relative_to(SDK)))
def test_nothing_imports_the_command_line_or_a_plugin(path: Path) -> None:
    for module, line in imported(path):
        assert not module.startswith("perfdojo_") or module.partition(".")[0] == "perfdojo_sdk", (
            f"{path.name}:{line} imports {module}"
        )
        if path.parent != SDK / "cli":
            assert not module.startswith("perfdojo_sdk.cli"), f"{path.name}:{line} imports {module}"


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
