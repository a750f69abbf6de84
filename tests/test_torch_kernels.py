"""Verified kernels for ``torch.compile``: built once, by several processes, and kept in one cache."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


from perfdojo_sdk.frontends.torch import workshop as workshops  # noqa: E402
from perfdojo_sdk.frontends.torch.workshop import WORTH_OF_MANY, WORTH_OF_PROOFS, workshop  # noqa: E402
from perfdojo_sdk.graph.writer import parsed  # noqa: E402
from perfdojo_sdk.models.cache import MARK, BuildFailed, CacheError, KernelCache, refuse_strangers  # noqa: E402
from perfdojo_sdk.torch import report  # noqa: E402


@torch.no_grad()
def test_a_verified_kernel_is_built_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    workshop.cache_clear()
    x = torch.randn(4, 8)

    def function(x: Any) -> Any:
        return (torch.relu(x), torch.relu(x + 0).t(), torch.relu(x * 1))[0]

    ours = torch.compile(function, backend="perfdojo", options={"fallback": None, "threads": 1})
    assert torch.equal(ours(x), torch.relu(x)) and torch.equal(ours(x.neg()), torch.relu(-x))
    [graph] = report(ours).graphs
    [kernel] = graph.kernels
    assert kernel.name == "relu" and all(leg.startswith("passed") for leg in kernel.legs.values())
    assert set(kernel.legs) == {"exact", "numeric", "dependence"} and kernel.median_s
    shop = workshop("best", 1, None)
    [program] = [parsed(text) for text, _ in shop.libraries]
    assert shop.built == 1
    cache = KernelCache(tmp_path / "cache" / "kernels")
    [entry] = cache.entries()
    assert entry.kernel.startswith("relu_") and entry.bytes > 1000
    workshop.cache_clear()
    again = workshop("best", 1, None)
    assert not again.prepare([program]) and again.built == 0
    (entry.folder / "lib").rename(entry.folder / "gone")  # damaged: it is not used
    assert cache._found(entry.folder) is None
    assert [e.name for e in cache.clear()] == [entry.name] and not cache.entries()
    workshop.cache_clear()


ADDING = [
    f"kernel k{n}(x) -> y\nx f32 [{n}] heap\ny f32 [{n}] heap\n\n{n} y[{{0}}] = x[{{0}}] + 1\n"
    for n in (4, 5, 6)
]


def test_kernels_of_a_graph_are_built_by_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(workshops, "available_cores", lambda: 2)
    workshop.cache_clear()
    shop = workshop("best", 1, None)
    said: list[str] = []
    assert not shop.prepare([parsed(text) for text in ADDING], said.append)
    assert shop.built == 3 and len(shop.libraries) == 3
    assert 1 <= len(said) <= 2, "what the other process says is not heard here"
    workshop.cache_clear()


@pytest.mark.parametrize(("many", "worth"), [(3, WORTH_OF_PROOFS), (2, WORTH_OF_MANY)])
def test_a_user_who_waits_for_many_kernels_gets_games_with_shorter_proofs(
    monkeypatch: pytest.MonkeyPatch, many: int, worth: float
) -> None:
    class Broken(KernelCache):
        def has(self, *_: Any) -> bool:
            return False

        def library(self, builder: Any, program: Any, *_: Any, **__: Any) -> Any:
            asked.append(builder.context.settings.worth_of_proofs)
            raise BuildFailed("PD-O013", f"{program.name}: no luck")

    asked: list[float] = []
    monkeypatch.setattr(workshops, "available_cores", lambda: 1)
    monkeypatch.setattr(workshops, "MANY", many)
    shop = replace(workshop("best", 1, None), cache=Broken(), libraries={}, failures={})
    failed = shop.prepare([parsed(text) for text in ADDING])
    assert asked == [worth] * 3
    assert [error.what for error in failed.values()] == [f"k{n}: no luck" for n in (4, 5, 6)]
    assert shop.prepare([parsed(ADDING[0])]) == {parsed(ADDING[0]).text: failed[parsed(ADDING[0]).text]}


def stored(folder: Path, name: str, size: int, used: float) -> None:
    (folder / name).mkdir()
    mark = folder / name / MARK
    mark.write_text(json.dumps({"kernel": name, "target": "t", "bytes": size}))
    os.utime(mark, (used, used))


def test_the_entry_used_least_recently_goes_first(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    for k in range(4):
        stored(folder, f"k{k}", 100, 1000.0 + k)
    (folder / "unfinished").mkdir()
    (folder / "k9").mkdir()
    (folder / "k9" / MARK).write_text("[]")
    cache = KernelCache(folder)
    assert [e.name for e in cache.entries()] == ["k3", "k2", "k1", "k0"]
    assert [e.name for e in cache.shrink(250)] == ["k1", "k0"]
    assert [e.name for e in cache.shrink(50, keep="k2")] == ["k3"]
    shown = cli("cache", "show", "--json")
    assert json.loads(shown.out)["bytes"] == 100 and "k2" in cli("cache", "show").out
    assert "removed 1 kernel" in cli("cache", "clear").out and not cache.entries()


@torch.no_grad()
def test_a_cache_that_cannot_be_made_is_told_once_for_each_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    shop = replace(workshop("best", 1, None), cache=KernelCache(tmp_path / "file" / "kernels"), libraries={})
    shop = replace(shop, failures={})
    with pytest.warns(UserWarning, match=r"no kernels are built: error\[PD-O020\].* cannot be made"):
        [error] = shop.prepare([parsed(ADDING[0])]).values()
    assert isinstance(error, CacheError) and "PERFDOJO_CACHE" in error.hint


def test_a_cache_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    refuse_strangers(folder)
    with pytest.raises(CacheError, match="belongs to user"):
        refuse_strangers(folder, owner=lambda: os.geteuid() + 1)
    folder.chmod(0o770)
    with pytest.raises(CacheError, match="others may write"):
        KernelCache(folder).entries()
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(CacheError, match="a link or a file"):
        refuse_strangers(tmp_path / "link")
