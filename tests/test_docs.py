"""The documentation is true: its commands print what its pages show.

How a page is read is told in ``pages.py``. With PERFDOJO_UPDATE_GOLDEN=1 the pages are rewritten with what
their commands print.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import ROOT
from pages import CONSOLE, STEP, Reader, agrees, changes
from paper_target import QUICK
from test_candidates import evaluated
from toy_target import perfdojo_toy

from benchmarks.records import conditions
from perfdojo_sdk.cli import COMMANDS
from perfdojo_sdk.hookspecs import specs
from perfdojo_sdk.hookspecs.abilities import ABILITIES
from perfdojo_sdk.hookspecs.imports import IMPORTABLE
from perfdojo_sdk.hookspecs.types import Capabilities
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.measure.toolchain import find_toolchain
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.store.database import Records
from perfdojo_sdk.store.records import LegResult, Verification
from perfdojo_sdk.testing.conformance import CHECKS

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
UPDATE = os.environ.get("PERFDOJO_UPDATE_GOLDEN") == "1"


def guide() -> list[Path]:
    """The chapters of the vendor guide in their order, which is that of the navigation."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    [chapters] = [entry["Vendor guide"] for entry in nav if "Vendor guide" in entry]
    return [ROOT / "docs" / page for entry in chapters for page in entry.values()]


def holds(page: Path, reader: Reader) -> None:
    text = page.read_text(encoding="utf-8")
    now = reader.read(text)
    if UPDATE:
        page.write_text(now, encoding="utf-8")
    assert UPDATE or now == text, page.name


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of kernels and of the machine's figures, which is empty at first."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_print_what_the_page_shows(
    page: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(cache))
    commands = "".join(CONSOLE.findall(page.read_text(encoding="utf-8")))
    plugins = load_plugins()
    for name in re.findall(r"--target (\w+)", commands):
        if name not in plugins.targets:
            pytest.skip(f"the plugin for {name} is not installed")
        if "./main" in commands and (why := plugins.unavailable(plugins.target(name))):
            pytest.skip(f"{name} cannot run here: {why}")
    holds(page, Reader(tmp_path, monkeypatch))


def test_the_kernel_of_the_documentation_is_called_from_c_and_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's own kernel and its C, with plain C as the target; verification is other tests' matter."""
    leg = LegResult(passed=True, detail="not here")
    verified = Verification(exact=leg, numeric=leg, dependence=leg)
    monkeypatch.setattr(verification, "verify", lambda *_: verified)
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    [kernel] = re.findall(r"New file `linear_relu.dojo`:\n\n```text\n(.*?)```", text, re.DOTALL)
    [code] = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    [python, _] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [line] = re.findall(r"^gcc (.*?) && ./main +# (.*)$", text, re.MULTILINE)
    (tmp_path / "linear_relu.dojo").write_text(kernel)
    (tmp_path / "main.c").write_text(code.replace("x86_avx512", "toy"))
    plugins = load_plugins(extra=[perfdojo_toy])
    kernels = select(str(tmp_path / "linear_relu.dojo"), plugins.operators)
    build_library(plugins, plugins.target("toy"), kernels, tmp_path / "mine", QUICK)

    words = line[0].replace("x86_avx512", "toy").replace('"$PWD/mine/lib"', f"{tmp_path}/mine/lib")
    subprocess.run([*find_toolchain().command, *words.split()], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert said.strip() == line[1]

    names: dict[str, Any] = {}
    exec(compile(python.replace('"mine"', repr(str(tmp_path / "mine"))), "library.md", "exec"), names)
    assert (names["y"] == 128).all()


def test_the_records_of_the_documentation_are_found_in_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stored under the name that builds and searches give to the kernel."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    [python] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [kernel] = select("softmax[24576,512]", load_plugins().operators)
    key = conditions().model_copy(update={"kernel": kernel.name, "target": "x86_avx512"})
    with Records("records.sqlite") as records:
        records.candidates.put(evaluated(key=key, search="annealing"))
    exec(compile(python, "records.md", "exec"), {})
    assert capsys.readouterr().out == "0.002 annealing\n"


def test_the_vendor_guide_leads_from_nothing_to_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chapters are one story, told in one folder."""
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PERFDOJO_PLUGINS", "my_chip")
    monkeypatch.setenv("COLUMNS", "110")
    (tmp_path / "work").mkdir()
    reader = Reader(tmp_path / "work", monkeypatch)
    for page in guide():
        holds(page, reader)
    library = tmp_path / "work" / "build" / "library" / "my_chip"
    assert (library / "manifest.json").is_file() and any((library / "lib").iterdir())


def test_every_page_of_the_guide_is_a_chapter() -> None:
    assert sorted(guide()) == sorted((ROOT / "docs" / "guide").glob("*.md"))


def test_dots_stand_for_lines_and_nothing_else() -> None:
    assert agrees("a\nb\nc\n", "a\n...\nc\n") and agrees("a\n", "a\n...\n")
    assert agrees("a bc d\n", "a ... d\n") and not agrees("a b\nc d\n", "a ... d\n")
    assert not agrees("a\nb\n", "a\n") and not agrees("a\nb\n", "...\na\n") and not agrees("", "a\n")


def test_a_change_has_one_place() -> None:
    assert changes("a\nb\nc\n", " a\n-b\n+d\n") == "a\nd\nc\n"
    for lines in ("-e\n+f\n", "-a\n"):
        with pytest.raises(AssertionError):
            changes("a\nb\na\n", lines)


def test_the_guide_for_models_is_done_whole() -> None:
    """All of its blocks are steps of a reader, but for the installation; fifteen minutes are a few pages."""
    text = (ROOT / "docs/your_model.md").read_text(encoding="utf-8")
    rest = STEP.sub("", text)
    [installation] = re.findall(r"^```.*?^```", rest, re.DOTALL | re.MULTILINE)
    assert installation.startswith("```sh\npip install ") and len(installation.splitlines()) == 3
    assert "```" not in rest.replace(installation, "") and len(text.splitlines()) < 300


def test_the_tour_is_played() -> None:
    assert len(CONSOLE.findall((ROOT / "docs/tour.md").read_text(encoding="utf-8"))) >= 8


def test_the_plugin_of_the_documentation_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOJO_PLUGINS", "none_but_the_given_one")
    text = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module = type(os)("documented")
    exec(compile(code, "plugins.md", "exec"), module.__dict__)
    plugins = load_plugins(extra=[module])
    target = plugins.target("abacus")
    assert "v" in plugins.rules(target).dialect.suffixes
    assert plugins.unavailable(target) is not None
    assert [p for p in plugins.problems if p.plugin != "none_but_the_given_one"] == []


def test_every_hook_has_one_line_of_documentation() -> None:
    hooks = [h for name, h in vars(specs).items() if name.startswith("perfdojo_")]
    assert hooks
    for hook in hooks:
        assert len((inspect.getdoc(hook) or "").splitlines()) == 1, hook


def test_the_pages_made_from_the_code_hold_everything() -> None:
    pytest.importorskip("mkdocs")
    from tools import docs_pages

    hooks = docs_pages.hook_reference()
    for name in (n for n in vars(specs) if n.startswith("perfdojo_")):
        assert f"def {name}(" in hooks
    commands = docs_pages.command_reference()
    assert all(f"Usage: perfdojo-sdk {name}" in commands for name in COMMANDS)
    for transformation in docs_pages.GENERIC.values():
        page = docs_pages.move_page(transformation)
        parts = ("**before**", "**after", "## When it applies", "## When it refuses", "## How to undo it")
        assert all(part in page for part in parts), transformation.name
        for r in transformation.requirements:
            said = [docs_pages.spoken(text) for text in (r.title, r.hint)]
            assert r.code in page and all(text in page for text in said), r.code
        assert not re.search(r"\{[a-z]", page.replace("{#", "")), transformation.name
    abilities = docs_pages.ability_reference()
    for declared in ABILITIES:
        assert f"### {declared.name} " in abilities and all(
            name in abilities for name in declared.members if name[0] != "_"
        )
    assert all(f"| `{module}` |" in docs_pages.import_reference() for module in IMPORTABLE)
    checks = docs_pages.check_reference()
    for check in CHECKS:
        assert f"| {check.name} | {check.doc} |" in checks and check.doc.endswith("."), check.name
    fields = docs_pages.target_file_reference()
    assert all(f"| `{name}` |" in fields for name in Capabilities.model_fields)


def test_every_marker_has_a_page_and_is_filled() -> None:
    pytest.importorskip("mkdocs")
    from tools import docs_pages

    texts = [page.read_text(encoding="utf-8") for page in (*PAGES, *guide())]
    for marker in docs_pages.markers():
        [marked] = [text for text in texts if marker in text]
        assert marker not in docs_pages.filled(marked)
    [search] = [text for text in texts if docs_pages.SOURCE.search(text)]
    assert "class Walk:" in docs_pages.filled(search)


def test_links_between_pages_lead_somewhere() -> None:
    """Relative links of the README, which the strict build of the pages does not see."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / target).exists(), target


def test_the_glossary_stays_short() -> None:
    """At most forty terms: who needs more would have to learn a language first."""
    rows = [
        line
        for line in (ROOT / "docs" / "glossary.md").read_text("utf-8").splitlines()
        if line.startswith("| ")
    ]
    terms = [row for row in rows if not row.startswith("| term |")]
    assert 30 < len(terms) <= 40


def test_the_map_of_files_names_files_that_are_there() -> None:
    package = ""
    for line in (ROOT / "docs" / "files.md").read_text(encoding="utf-8").splitlines():
        package = found[1] if (found := re.match(r"  (\w+)/ ", line)) else package
        names = re.findall(r"[\w*/]+\.(?:py|h|c)\b", line)
        missing = [name for name in names if not list((ROOT / "perfdojo_sdk").glob(f"{package}/**/{name}"))]
        outside = [name for name in missing if not (ROOT / "perfdojo_sdk" / name).exists()]
        assert not outside, f"{package}: {outside}"
