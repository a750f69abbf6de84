"""Headers that were parsed beforehand change how long compiling takes, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.measure import toolchain
from perfdojo_sdk.measure.headers import (
    MOST_KEPT,
    MOST_SETS,
    WORTH_WHILE,
    ParsedHeaders,
    common_includes,
    leading_includes,
)
from perfdojo_sdk.measure.toolchain import Compiled, find_toolchain
from perfdojo_sdk.measure.tools import Ended, run_tool

OWN = "#ifndef OWN_H\n#define OWN_H\nstatic inline int twice(int x) { return 2 * x; }\n#endif\n"
CODE = '/* a comment\n * of two lines */\n\n#include "own.h"\n\nint f(int x) { return twice(x); }\n'
SOURCES = {"k.c": CODE, "own.h": OWN}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (CODE, '#include "own.h"\n'),
        ('#include "a.h"\n#include "b.h"\nint x;\n', '#include "a.h"\n#include "b.h"\n'),
        ('#define N 4\n#include "own.h"\n', ""),
        ("#include <stddef.h>\n", ""),
        ('#include "../../etc/own.h"\n', ""),
        ("int x;\n", ""),
    ],
)
def test_only_what_stands_first_is_parsed_beforehand(code: str, expected: str) -> None:
    assert leading_includes(code) == expected


class Asked:
    """A compiler that notes what it was asked for."""

    def __init__(self, works: bool = True) -> None:
        self.works, self.calls = works, list[list[str]]()

    def __call__(self, arguments: list[str], folder: str) -> bool:
        self.calls.append(arguments)
        return self.works


def options(
    known: ParsedHeaders, asked: Asked, times: int, sources: Mapping[str, str] = SOURCES, flag: str = "-O2"
) -> list[tuple[str, ...]]:
    return [known.options(("gcc",), (flag,), sources, asked) for _ in range(times)]


def test_headers_are_parsed_once_they_come_again_and_again() -> None:
    known, asked = ParsedHeaders(), Asked()
    found = options(known, asked, WORTH_WHILE + 2)
    assert not any(found[: WORTH_WHILE - 1]) and all(f[0] == "-include" for f in found[WORTH_WHILE - 1 :])
    assert len(asked.calls) == 1 and asked.calls[0][0] == "-O2"
    options(known, asked, WORTH_WHILE, flag="-O3")
    options(known, asked, WORTH_WHILE, {**SOURCES, "own.h": OWN + "\n"})
    assert len(asked.calls) == 3, "other flags and other headers are parsed anew"


def test_of_too_many_sets_the_one_used_longest_ago_goes() -> None:
    known, asked = ParsedHeaders(), Asked()
    flags = [f"-D{k}" for k in range(MOST_SETS)]
    made = [options(known, asked, WORTH_WHILE, flag=flag)[-1] for flag in flags]
    assert len(set(made)) == MOST_SETS and len(asked.calls) == MOST_SETS
    [again] = options(known, asked, 1, flag=flags[0])
    assert again == made[0]
    options(known, asked, WORTH_WHILE, flag="-O1")
    folders = [Path(option).parent for _, option in made]
    assert [folder.exists() for folder in folders] == [flag != flags[1] for flag in flags]
    assert options(known, asked, 1, flag=flags[0]) == [again]
    assert options(known, asked, WORTH_WHILE, flag=flags[1])[:2] == [(), ()], "it has to come again and again"


def test_units_that_are_compiled_together_share_the_headers_that_all_begin_with() -> None:
    plain = "/* Links them. */\nconst int kernels = 2;\n"
    known, asked = ParsedHeaders(), Asked()
    units = {f"k{n}.c": CODE for n in range(WORTH_WHILE)}
    [found] = options(known, asked, 1, {"own.h": OWN, "all.c": plain, **units})
    assert found[0] == "-include" and len(asked.calls) == 1
    assert options(known, asked, 1) == [found], "one unit of the same headers"
    assert not common_includes([CODE, CODE.replace("own.h", "other.h")])
    one, other, more = '#include "own.h"\n', '#include "other.h"\n', '#include "more.h"\n'
    assert common_includes([one + other, plain, one + more + "int x;\n", one]) == one
    assert common_includes([one + other + more, one + other]) == one + other
    assert not common_includes([one + other, other + one])
    assert not common_includes([CODE, "#define N 4\n"]) and not common_includes([plain])


def test_a_compiler_that_cannot_is_asked_once() -> None:
    known, asked = ParsedHeaders(), Asked(works=False)
    assert not any(options(known, asked, 3 * WORTH_WHILE)) and len(asked.calls) == 1


def test_what_fails_only_with_parsed_headers_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that breaks off at headers that it parsed itself; a fault of the kernel's own stays one."""
    tried: list[bool] = []

    def run(command: list[str], folder: str, timeout_s: float) -> Ended | None:
        tried.append("-include" in command)
        broken = Ended(1, "internal compiler error")
        return broken if "-include" in command else run_tool(command, folder, timeout_s)

    compiler = find_toolchain()
    if not compiler.is_gcc:
        pytest.skip("needs gcc")
    monkeypatch.setattr(toolchain, "_HEADERS", ParsedHeaders())
    monkeypatch.setattr(toolchain, "run_tool", run)
    for _ in range(WORTH_WHILE + 2):
        assert isinstance(compiler.compile(SOURCES, ("-O2",)), Compiled)
    assert tried.count(True) == 1
    monkeypatch.setattr(toolchain, "run_tool", run_tool)
    for _ in range(WORTH_WHILE + 1):
        broken = compiler.compile({**SOURCES, "k.c": CODE + "nonsense +;\n"}, ("-O3",))
        assert isinstance(broken, Failure) and "nonsense" in broken.detail


# -- kept for later processes --------------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Sources that read a file outside; the cache is a folder of the test."""
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "a header.h").write_text("enum { TWO = 2 };\n")
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    own = OWN.replace("2 *", "TWO *").replace(
        "_H\nstatic", f'_H\n#include "{tmp_path}/system/a header.h"\nstatic'
    )
    return {"k.c": CODE, "own.h": own}


def compiled_with(
    known: ParsedHeaders, sources: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> Path | None:
    """The folder of the headers with which ``sources`` were compiled, in one compilation."""
    compiler, seen = find_toolchain(), list[str]()
    if not compiler.is_gcc:
        pytest.skip("needs gcc")

    def run(command: list[str], folder: str, timeout_s: float) -> Ended | None:
        seen.extend(command)
        return run_tool(command, folder, timeout_s)

    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "_HEADERS", known)
        patch.setattr(toolchain, "run_tool", run)
        made = compiler.compile(sources, ("-O2",))
    assert isinstance(made, Compiled), made
    return Path(seen[seen.index("-include") + 1]).parent if "-include" in seen else None


def test_headers_are_kept_until_a_file_that_they_read_changes(
    sources: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, cache = ParsedHeaders(keeps=True), tmp_path / "cache" / "headers"
    places = [compiled_with(first, sources, monkeypatch) for _ in range(WORTH_WHILE)]
    assert not any(places[:-1]) and places[-1] is not None and places[-1].parent == cache
    assert compiled_with(ParsedHeaders(keeps=True), sources, monkeypatch) == places[-1], "another process"
    assert compiled_with(ParsedHeaders(), sources, monkeypatch) is None, "it keeps nothing and finds nothing"
    header = tmp_path / "system" / "a header.h"
    header.write_text("enum { TWO = 3 };\n")
    later = ParsedHeaders(keeps=True)
    assert compiled_with(later, sources, monkeypatch) is None
    again = [compiled_with(later, sources, monkeypatch) for _ in range(WORTH_WHILE)]
    assert again[-1] == places[-1], "made anew in the same place"
    header.unlink()
    with pytest.raises(AssertionError, match="reason='compile'"):
        compiled_with(ParsedHeaders(keeps=True), sources, monkeypatch)


def test_headers_that_others_may_write_are_not_used(
    sources: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ParsedHeaders(keeps=True)
    place = [compiled_with(first, sources, monkeypatch) for _ in range(WORTH_WHILE)][-1]
    assert place is not None
    place.chmod(0o777)
    assert compiled_with(ParsedHeaders(keeps=True), sources, monkeypatch) is None
    place.chmod(0o755)
    (tmp_path / "cache" / "headers").chmod(0o777)
    other = ParsedHeaders(keeps=True)
    found = [
        compiled_with(other, {**sources, "own.h": sources["own.h"] + "\n"}, monkeypatch) for _ in range(4)
    ]
    assert found[-1] is not None and tmp_path not in found[-1].parents, "a folder of this process"


@pytest.mark.parametrize("content", ["", "[1]", "nonsense", '{"/etc/hostname": 1}'])
def test_headers_with_a_broken_list_are_made_anew(
    content: str, sources: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ParsedHeaders(keeps=True)
    place = [compiled_with(first, sources, monkeypatch) for _ in range(WORTH_WHILE)][-1]
    assert place is not None
    (place / "states.json").write_text(content)
    later = ParsedHeaders(keeps=True)
    assert [compiled_with(later, sources, monkeypatch) for _ in range(WORTH_WHILE)] == [None, None, place]


def test_few_sets_of_headers_are_kept(
    sources: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(MOST_KEPT + 2):
        known, own = ParsedHeaders(keeps=True), {**sources, "own.h": sources["own.h"] + "\n" * k}
        for _ in range(WORTH_WHILE):
            compiled_with(known, own, monkeypatch)
    assert len(list((tmp_path / "cache" / "headers").iterdir())) == MOST_KEPT


def test_the_code_is_the_same_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_HEADERS", ParsedHeaders())
    compiler, made = find_toolchain(), []
    for _ in range(WORTH_WHILE + 1):
        result = compiler.compile(SOURCES, ("-O2",))
        assert isinstance(result, Compiled), result
        made.append(result.content)
    assert len(set(made)) == 1
    broken = compiler.compile({**SOURCES, "k.c": CODE + "nonsense +;\n"}, ("-O2",))
    assert isinstance(broken, Failure) and "nonsense" in broken.detail


def test_the_code_of_several_units_is_the_same_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, made, asked = find_toolchain(), [], list[bool]()
    if not compiler.is_gcc:
        pytest.skip("needs gcc")
    more = {"all.c": "const int kernels = 2;\n", "g.c": CODE.replace("int f(", "int g(")}

    def run(command: list[str], folder: str, timeout_s: float) -> Ended | None:
        asked.append("-include" in command)
        return run_tool(command, folder, timeout_s)

    monkeypatch.setattr(toolchain, "run_tool", run)
    monkeypatch.setattr(toolchain, "_HEADERS", ParsedHeaders())
    for _ in range(WORTH_WHILE):
        result = compiler.compile({**SOURCES, **more}, ("-O2",))
        assert isinstance(result, Compiled), result
        made.append(result.content)
    assert not asked[0] and asked[-1] and len(set(made)) == 1
