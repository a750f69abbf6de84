"""A new plugin is complete: scaffolded, built, installed, used, tested and taken out again."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
import yaml
from command_line import ROOT, Outcome, clear

from perfdojo_sdk.hookspecs import API_VERSION
from perfdojo_sdk.plugins.scaffold import FILES, MAX_NAME, ScaffoldError, scaffold
from perfdojo_sdk.testing.conformance import CHECKS

Cli = Callable[..., Outcome]

# -- the files -------------------------------------------------------------------------------------


def test_every_template_has_a_place() -> None:
    templates = resources.files("perfdojo_sdk.plugins").joinpath("templates")
    assert {f"{name}.tmpl" for name in FILES} == {each.name for each in templates.iterdir()}


def test_the_files_are_what_they_seem_and_carry_the_name(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plugin"
    files = scaffold("abacus_2", folder)
    on_disk = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert set(files) == on_disk and Path("perfdojo_abacus_2/abacus_2.yaml") in on_disk
    for path in files:
        text = (folder / path).read_text(encoding="utf-8")
        assert "my_chip" not in text and "my-chip" not in text and "@API@" not in text, path
        if path.suffix == ".py":
            assert ast.get_docstring(ast.parse(text)), path
        elif path.suffix in {".yaml", ".yml"}:
            assert yaml.safe_load(text), path
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "perfdojo-abacus-2"
    points = {"abacus_2": "perfdojo_abacus_2"}
    groups = {"perfdojo_sdk.plugins": points, "perfdojo_sdk.targets": points}
    assert project["entry-points"] == groups
    assert f"PERFDOJO_API = {API_VERSION}" in (folder / "perfdojo_abacus_2/__init__.py").read_text()


BAD_NAMES = ["", "My_chip", "2chip", "my-chip", "my__chip", "_chip", "chip_", "a b", "a/../b", "é", "best"]


@pytest.mark.parametrize("name", [*BAD_NAMES, "a" * (MAX_NAME + 1)])
def test_a_bad_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError) as refused:
        scaffold(name, tmp_path / "folder")
    assert refused.value.code == "PD-G011" and not (tmp_path / "folder").exists()


# -- the command -----------------------------------------------------------------------------------


def test_the_command_says_what_it_wrote_and_what_comes_next(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("plugins", "new", "abacus", "--directory", "here", "--json")
    assert outcome.code == 0 and outcome.data["directory"] == "here"
    assert all((tmp_path / "here" / file).is_file() for file in outcome.data["files"])
    text = cli("plugins", "new", "abacus")
    assert text.code == 0 and (tmp_path / "abacus" / "pyproject.toml").is_file()
    assert 'pip install -e "abacus[test]"' in text.out and "--target abacus" in text.out


@pytest.mark.parametrize("name", ["paper", "toy", "torn", "sdk", "perfdojo_sdk"])
def test_a_taken_name_is_refused(cli: Cli, name: str, tmp_path: Path) -> None:
    outcome = cli("plugins", "new", name)
    clear(outcome, 1, "PD-G012")
    assert not (tmp_path / name).exists()


def test_a_folder_that_holds_something_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for place in ("full", "file"):
        clear(cli("plugins", "new", "abacus", "--directory", place), 1, "PD-G013")
    assert [f.name for f in (tmp_path / "full").iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    assert cli("plugins", "new", "abacus", "--directory", "empty").code == 0


def test_errors_are_json_where_json_was_asked_for(cli: Cli) -> None:
    outcome = cli("plugins", "new", "Not a name", "--json")
    assert outcome.code == 1 and outcome.data["error"]["code"] == "PD-G011"


# -- from nothing to a library, in an environment of its own ---------------------------------------


class Fresh:
    """A virtual environment that has this one's libraries, but none of its plugins and not its SDK."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        [site] = (folder / "venv").glob("lib/python*/site-packages")
        (site / "libraries.pth").write_text(f"{self._libraries()}\n")
        self.bin = folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir()

    def _libraries(self) -> Path:
        """Links to all that is installed here, but for whatever belongs to PerfDojo or builds packages."""
        links = self.folder / "libraries"
        links.mkdir()
        for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for each in Path(place).iterdir():
                ours = "perfdojo" in each.name.lower() or each.suffix in {".pth", ".egg-link"}
                builds = each.name.startswith(("setuptools", "pkg_resources", "_distutils_hack", "pip"))
                if not ours and not builds:
                    (links / each.name).symlink_to(each)
        return links

    def run(self, *words: object) -> str:
        """The output of a command of this environment; the test fails when the command does."""
        hidden = ("PYTHONPATH", "PYTEST_ADDOPTS", "PERFDOJO_PLUGINS")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        environment |= {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}
        environment |= {"PERFDOJO_CACHE": str(self.folder / "cache")}
        done = subprocess.run(
            [str(word) for word in words],
            **{"capture_output": True, "text": True, "cwd": self.work, "env": environment, "timeout": 300},
        )
        assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def pip(self, *words: object) -> str:
        options = ("--disable-pip-version-check", "--quiet")
        return self.run(sys.executable, "-m", "pip", "--python", self.bin / "python", *words, *options)

    def dojo(self, *words: object) -> str:
        return self.run(self.bin / "perfdojo-sdk", *words)

    def wheel(self, project: Path) -> Path:
        before = set(self.work.glob("*.whl"))
        self.pip("wheel", "--no-build-isolation", "--no-deps", "-w", self.work, project)
        [made] = set(self.work.glob("*.whl")) - before
        return made

    def targets(self) -> dict[str, bool]:
        """Target -> whether it can run here."""
        return {t["name"]: t["usable"] for t in json.loads(self.dojo("targets", "--json"))["targets"]}


#: Messages of Python without pip, and of pip without a package index.
NO_INDEX = ("No module named pip", "No matching distribution found")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """An environment with the SDK installed from its wheel."""
    made = Fresh(tmp_path_factory.mktemp("fresh"))
    try:
        made.pip("install", "setuptools>=77")
    except AssertionError as error:
        if any(sign in str(error) for sign in NO_INDEX):
            pytest.skip(f"pip cannot install setuptools>=77 here: {str(error)[-300:]}")
        raise
    source = made.folder / "sdk"
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "perfdojo_sdk", source / "perfdojo_sdk", ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    made.pip("install", "--no-deps", made.wheel(source))
    return made


def test_a_new_plugin_from_nothing_to_a_library_and_away(fresh: Fresh) -> None:
    assert fresh.targets() == {}
    fresh.dojo("plugins", "new", "my_chip")
    fresh.pip("install", "--no-deps", fresh.wheel(fresh.work / "my_chip"))

    assert fresh.targets() == {"my_chip": True}
    # Its exit code says whether all is well; pytest runs the rest of the same checks below.
    fresh.dojo("plugins", "check", "my_chip", "--quick", "--only", "import", "--only", "processes")

    built = fresh.dojo("build-library", "--target", "my_chip", "--kernels", "softmax[8,16]", "--json")
    [kernel] = json.loads(built)["kernels"]
    assert kernel["name"] == "softmax_8x16_f32"
    assert (fresh.work / "build/library/my_chip").is_dir()

    shutil.move(fresh.work / "my_chip/tests", fresh.work / "tests")  # away from the sources
    words = ("-q", "-rs", "-p", "no:cacheprovider", "--conformance", "quick", "tests")
    tested = fresh.run(fresh.bin / "python", "-m", "pytest", *words)
    assert f"{len(CHECKS) - 2} passed, 2 skipped" in tested
    assert "moves of its own" in tested and "legality checks of its own" in tested

    fresh.pip("uninstall", "--yes", "perfdojo-my-chip")
    assert fresh.targets() == {}


def test_a_third_party_adds_to_a_target_and_goes_again(fresh: Fresh) -> None:
    """A move and a veto for a target of somebody else, each from a wheel of its own."""
    x86 = ("--target", "x86_avx512")
    for package in ("plugins/x86_avx512", "tests/third_party_move"):
        source = fresh.folder / Path(package).name
        unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        shutil.copytree(ROOT / package, source, ignore=unwanted)
        fresh.pip("install", "--no-deps", fresh.wheel(source))
    assert "ACME-003" in fresh.dojo("transformations", "acme/reverse_scope", *x86)
    assert "fewer than 4" in fresh.dojo("explain", "softmax[3,8]", "annotate_scope(s0, suffix=p)", *x86)
    fresh.dojo("apply", "softmax[3,8]", "acme/reverse_scope(s0)", *x86, "-o", "game.json")
    fresh.pip("uninstall", "--yes", "perfdojo-acme")
    assert "is legal" in fresh.dojo("explain", "softmax[3,8]", "annotate_scope(s0, suffix=p)", *x86)
    with pytest.raises(AssertionError, match="perfdojo-acme"):
        fresh.dojo("replay", "game.json")
    fresh.pip("uninstall", "--yes", "perfdojo-x86-avx512")
    assert fresh.targets() == {}
