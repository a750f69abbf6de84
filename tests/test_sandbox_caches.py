"""Code from a file is loaded only if nobody else can have put it there; locks are one's own."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfdojo_sdk.codegen.gpu.bundle import pack
from perfdojo_sdk.core.files import write_whole
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.library import gpu_loader
from perfdojo_sdk.library.manifest import ArrayEntry, Artefact, KernelEntry, LibraryError, Manifest
from perfdojo_sdk.measure import kept_files, native_runner
from perfdojo_sdk.measure import machine as machine_module
from perfdojo_sdk.measure.kept_files import is_private, kept_code, own_lock
from perfdojo_sdk.measure.machine import calibrate
from perfdojo_sdk.measure.native_runner import one_measurement_at_a_time
from perfdojo_sdk.store.records import sha256

SOMEBODY = 4242


@pytest.fixture(autouse=True)
def own_folder() -> Iterator[None]:
    kept_files._own_folder.cache_clear()
    yield
    if kept_files._own_folder.cache_info().currsize:
        shutil.rmtree(kept_files._own_folder())
    kept_files._own_folder.cache_clear()


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> object:
    """Makes a file somebody else's: the administrator can, others become somebody else themselves."""

    def give(file: Path) -> None:
        if os.getuid() == 0:
            os.chown(file, SOMEBODY, SOMEBODY, follow_symlinks=False)
        else:
            me = os.getuid()
            monkeypatch.setattr(os, "getuid", lambda: me + 1)

    return give


class Maker:
    """Makes code, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> bytes:
        self.count += 1
        return b"the code"


def kept(folder: Path, make: Maker) -> Path:
    return kept_code(folder, "core-1234", ".so", make)


def test_code_is_made_once_and_mended_when_it_is_broken(tmp_path: Path) -> None:
    make, folder = Maker(), tmp_path / "cache"
    first = kept(folder, make)
    assert kept(folder, make) == first and make.count == 1 and first.parent == folder
    for damage in (b"the co", b"", b"the code and more", b"THE code"):
        first.write_bytes(damage)
        assert kept(folder, make).read_bytes() == b"the code"
    assert make.count == 5 and [f.name for f in folder.iterdir()] == [first.name]


@pytest.mark.parametrize("become", ["link", "fifo", "others write"])
def test_code_in_another_shape_is_not_loaded(become: str, tmp_path: Path) -> None:
    make, folder = Maker(), tmp_path / "cache"
    first = kept(folder, make)
    if become == "others write":
        first.chmod(0o777)
    else:
        first.unlink()
        (tmp_path / "elsewhere").write_bytes(b"the code")
        first.symlink_to(tmp_path / "elsewhere") if become == "link" else os.mkfifo(first)
    assert kept(folder, make).read_bytes() == b"the code" and make.count == 2


def test_code_of_somebody_else_is_not_loaded(tmp_path: Path, give_away: object) -> None:
    make, folder = Maker(), tmp_path / "cache"
    give_away(kept(folder, make))  # type: ignore[operator]
    found = kept(folder, make)
    assert make.count == 2 and found.read_bytes() == b"the code"


@pytest.mark.parametrize("fault", ["others", "group", "above", "somebody's", "a file"])
def test_a_folder_that_others_write_is_done_without(fault: str, tmp_path: Path, give_away: object) -> None:
    make, folder = Maker(), tmp_path / "above" / "cache"
    folder.mkdir(parents=True)
    assert is_private(folder)
    first = kept(folder, make)
    if fault == "others":
        folder.chmod(0o777)
    elif fault == "group":
        if os.getuid() == 0:
            os.chown(folder, 0, SOMEBODY)
        folder.chmod(0o770)
    elif fault == "above":
        folder.parent.chmod(0o777)
    elif fault == "a file":
        first.unlink()
        folder.rmdir()
        folder.write_text("")
    else:
        give_away(folder)  # type: ignore[operator]
    if fault == "group" and os.getuid():
        pytest.skip("needs a group with others in it")
    found = kept(folder, make)
    assert folder not in found.parents and found.read_bytes() == b"the code"
    assert found.stat().st_mode & 0o077 == 0 and is_private(found.parent)
    assert make.count == 2 and (fault == "a file" or list(folder.iterdir()) == [first])


def test_a_sticky_folder_above_is_as_good_as_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "tmp" / "cache").mkdir(parents=True)
    (tmp_path / "tmp").chmod(0o1777)
    assert is_private(tmp_path / "tmp" / "cache") and not is_private(tmp_path / "tmp")


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Path, content: bytes, mode: int) -> None:
        if tmp_path in file.parents:
            raise OSError(28, "No space left on device")
        write_whole(file, content, mode=mode)

    monkeypatch.setattr(kept_files, "write_whole", full)
    found = kept(tmp_path / "cache", Maker())
    assert found.read_bytes() == b"the code" and tmp_path not in found.parents


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o000, 0o755)])
def test_permissions_follow_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        file = kept(tmp_path / "cache", Maker())
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == file.parent.stat().st_mode & 0o777 == mode


def test_a_lock_of_somebody_else_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_away: object
) -> None:
    """In a folder that all may write, anybody can make the file, open it and keep the lock."""
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with one_measurement_at_a_time():
        [file] = (tmp_path / "cache").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
    give_away(file)  # type: ignore[operator]
    held = os.open(file, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with one_measurement_at_a_time():
        pass
    os.close(held)


@pytest.mark.parametrize("what", ["fifo", "link", "folder"])
def test_a_lock_that_is_no_file_is_not_used(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for folder in (tmp_path / "cache", tmp_path):
        folder.mkdir(exist_ok=True)
        for name in (f"measuring-{os.getuid()}.lock", f"perfdojo-measuring-{os.getuid()}.lock"):
            place = folder / name
            if what == "link":
                place.symlink_to(tmp_path / "thesis.txt")
            else:
                os.mkfifo(place) if what == "fifo" else place.mkdir()
    with one_measurement_at_a_time():
        assert native_runner._lock_file() is None
    assert not (tmp_path / "thesis.txt").exists()


def test_a_lock_that_others_could_open_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(0o666)
    (tmp_path / "lock").chmod(0o666)
    os.close(own_lock(tmp_path / "lock"))
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_stored_figures_that_block_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path))
    figures = dict.fromkeys(("read_gbs", "write_gbs", "copy_gbs", "stream_copy_gbs", "fma_gflops"), 1.0)
    figures |= {f"{name}_all": 1.0 for name in figures}
    monkeypatch.setattr(machine_module, "_measure", lambda *_: {**figures, "cache_read_gbs": (1.0,)})
    assert calibrate((), 16).read_gbs == 1.0
    [file] = tmp_path.iterdir()
    file.unlink()
    os.mkfifo(file)
    assert calibrate((), 16).read_gbs == 1.0
    assert file.is_file(), "and kept"


def test_a_gpu_s_code_is_what_the_manifest_describes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the loader of shared objects has it: code that was exchanged is not handed to the driver."""
    file, array = tmp_path / "lib" / "k.zip", ArrayEntry(name="x", shape=(4,), dtype="f32")
    file.parent.mkdir()
    good, bad = pack({"kernel.cubin": b"good"}), pack({"kernel.cubin": b"evil"})
    entry = KernelEntry.model_construct(name="k", inputs=(array,), outputs=(array,), code="lib/k.zip")

    def lists(content: bytes) -> None:
        code = Artefact(kind="gpu_bundle", path="lib/k.zip", sha256=sha256(content))
        manifest = Manifest.model_construct(kernels=(entry,), artefacts=(code,))
        monkeypatch.setattr(gpu_loader, "read_manifest", lambda folder: manifest)

    lists(good)
    file.write_bytes(good)
    assert gpu_loader.kernel_files(tmp_path, "k")[0] == {"kernel.cubin": b"good"}
    file.write_bytes(bad)
    with pytest.raises(LibraryError) as caught:
        gpu_loader.kernel_files(tmp_path, "k")
    assert caught.value.code == "PD-L004" and caught.value.hint
    lists(b"no bundle")
    file.write_bytes(b"no bundle")
    with pytest.raises(LibraryError) as caught:
        gpu_loader.kernel_files(tmp_path, "k")
    assert caught.value.code == "PD-L004"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_of_saved_files_follow_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    """Games, records of builds and files of libraries are written by the same function."""
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "game.json", "{}")
    finally:
        os.umask(before)
    assert (tmp_path / "game.json").stat().st_mode & 0o777 == mode
    assert [file.name for file in tmp_path.iterdir()] == ["game.json"]
