"""This machine: its description by the operating system, and its measured speeds.

:func:`machine` reads names and sizes. :func:`calibrate` measures bandwidths and the peak of fused
multiply-adds with a small C program, once per machine, compiler and flags, and keeps the result
in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.files import read_bounded, write_whole
from perfdojo_sdk.hookspecs.types import Failure, Provenance
from perfdojo_sdk.measure.guarded_files import private_folder
from perfdojo_sdk.measure.kept_files import cache_folder
from perfdojo_sdk.measure.probe_c import PROBE_CODE
from perfdojo_sdk.measure.toolchain import find_toolchain

_CPUS = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
_PROBE_TIMEOUT_S = 60.0
#: Raise when the probe changes, so that old figures are measured again.
_PROBE_VERSION = 6
_DEFAULT_CACHE_BYTES = 32 << 20


@dataclass(frozen=True)
class Cache:
    """One level of data or unified cache, as one processor sees it."""

    level: int
    bytes: int
    shared: bool
    """True if several processors share one instance."""


@dataclass(frozen=True)
class Machine:
    """Names and sizes; nothing measured."""

    model: str
    architecture: str
    cpus: int
    """Processors that this process may use."""
    flags: frozenset[str]
    """Instruction set extensions as /proc/cpuinfo names them."""
    caches: tuple[Cache, ...]
    """Ascending by level."""

    @property
    def last_cache_bytes(self) -> int:
        return self.caches[-1].bytes if self.caches else _DEFAULT_CACHE_BYTES

    @property
    def text(self) -> str:
        """The machine in words, the same on every day: part of each record's key."""
        caches = ", ".join(f"L{c.level} {_size(c.bytes)}" for c in self.caches)
        return f"{self.model}, {self.architecture}, {self.cpus} cpus" + (f", {caches}" if caches else "")


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


@lru_cache
def machine() -> Machine:
    """A description of this machine from /proc and /sys; unknown parts are left out, never guessed."""
    info = _cpuinfo()
    model = info.get("model name") or info.get("cpu model") or _numbered(info) or platform.processor()
    model = model or "unknown processor"
    flags = frozenset((info.get("flags") or info.get("features") or "").split())
    return Machine(
        re.sub(r"\s+", " ", model), platform.machine(), len(os.sched_getaffinity(0)), flags, _caches()
    )


def _numbered(info: dict[str, str]) -> str:
    """A name made of the numbers of designer, part and variant, if the system gives no model name."""
    found = [info.get(f"cpu {what}", "") for what in ("implementer", "part", "variant")]
    return "processor {}:{} variant {}".format(*found) if all(found) else ""


def _cpuinfo() -> dict[str, str]:
    """The fields of the first processor."""
    try:
        block = _CPUINFO.read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _caches() -> tuple[Cache, ...]:
    found = []
    for folder in sorted((_CPUS / "cpu0" / "cache").glob("index*")):
        try:
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            level = int((folder / "level").read_text())
            number, unit = re.fullmatch(r"(\d+)([KM]?)\s*", (folder / "size").read_text()).groups()  # type: ignore[union-attr]
            sharers = (folder / "shared_cpu_list").read_text().strip()
        except (OSError, ValueError, AttributeError):
            continue
        size = int(number) << {"": 0, "K": 10, "M": 20}[unit]
        found.append(Cache(level, size, "," in sharers or "-" in sharers))
    return tuple(sorted(found, key=lambda c: c.level))


@dataclass(frozen=True)
class Calibration:
    """Measured bandwidth and peak of a machine. GB/s count bytes read plus bytes written; copies with
    ordinary stores and with the target's streaming stores, writes with the faster of the two."""

    device: str
    compiler: str
    threads: int
    """Threads behind the figures that end in ``_all``."""
    read_gbs: float
    write_gbs: float
    copy_gbs: float
    stream_copy_gbs: float
    read_gbs_all: float
    write_gbs_all: float
    copy_gbs_all: float
    stream_copy_gbs_all: float
    fma_gflops: float
    """Single-precision fused multiply-adds of one thread, two operations each."""
    fma_gflops_all: float
    cache_read_gbs: tuple[float, ...]
    """One thread, from each level of :attr:`Machine.caches`."""
    provenance: Provenance = "measured"


def calibrate(
    flags: tuple[str, ...], vector_bytes: int, stream_store: str = "", refresh: bool = False
) -> Calibration:
    """Figures of this machine for code compiled with ``flags`` that uses such vectors.

    ``stream_store`` is a C expression in ``to`` and ``value`` that stores one vector past the caches;
    without one, ordinary stores stand in.
    Read from the cache folder where they are; measured otherwise, in about three seconds.
    UnavailableError without a working compiler or when the probe cannot run.
    """
    here, toolchain = machine(), find_toolchain()
    compiler = toolchain.describe(flags)
    key = f"{_PROBE_VERSION}|{here.text}|{compiler}|{vector_bytes}|{stream_store}"
    file = cache_folder() / f"calibration-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    known = None if refresh else _load(file)
    if known and known.device == here.text and known.compiler == compiler:
        return known
    figures = _measure(here, flags, vector_bytes, stream_store)
    calibration = Calibration(here.text, compiler, here.cpus, **figures)  # type: ignore[arg-type]
    _save(file, calibration)
    return calibration


def _measure(
    here: Machine, flags: tuple[str, ...], vector_bytes: int, stream_store: str
) -> dict[str, float | tuple[float, ...]]:
    """Compile the probe and run it in a child process."""
    defines = [f"-DVECTOR_BYTES={vector_bytes}"]
    if stream_store:
        defines.append(f"-DSTREAM_STORE(to, value)={stream_store}")
    compiled = find_toolchain().compile({"probe.c": PROBE_CODE}, ("-O2", *flags, *defines))
    if isinstance(compiled, Failure):
        raise UnavailableError("PD-M003", "the calibration probe does not compile", why=compiled.detail)
    sizes = [4 * here.last_cache_bytes, *(c.bytes // 2 for c in here.caches)]
    call = "import ctypes,sys; n=[int(a) for a in sys.argv[2:]]; sys.exit(ctypes.CDLL(sys.argv[1])"
    call += ".pd_probe(ctypes.c_int(n[0]), ctypes.c_int(len(n)-1), (ctypes.c_long*(len(n)-1))(*n[1:])))"
    with private_folder("probe") as folder:
        library = Path(folder, "probe.so")
        library.write_bytes(compiled.content)
        command = [sys.executable, "-P", "-c", call, str(library), str(here.cpus), *map(str, sizes)]
        try:
            said = subprocess.run(
                command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError("PD-M003", "the calibration probe hangs") from None
    if said.returncode:
        why = said.stderr.strip() or f"status {said.returncode}"
        raise UnavailableError(
            "PD-M003", "the calibration probe cannot run here", why=why,
            hint="a target whose instructions this machine lacks cannot be calibrated on it",
        )  # fmt: skip
    values = {name: float(value) for name, value in (line.split() for line in said.stdout.splitlines())}
    caches = tuple(values.pop(f"cache{k}") for k in range(len(here.caches)))
    return {**values, "cache_read_gbs": caches}


#: Bytes of a stored calibration.
_MOST_STORED = 1 << 16


def _load(file: Path) -> Calibration | None:
    """A stored calibration; None when there is none or the file is not one."""
    try:
        stored = json.loads(read_bounded(file, _MOST_STORED))
        stored["cache_read_gbs"] = tuple(float(v) for v in stored["cache_read_gbs"])
        calibration = Calibration(**stored)
        numbers = [getattr(calibration, f.name) for f in fields(calibration) if f.type == "float"]
        sound = all(isinstance(n, (int, float)) and 0 < n < float("inf") for n in numbers)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return calibration if sound else None


def _save(file: Path, calibration: Calibration) -> None:
    """Write to another file and rename it, so that a reader never sees half a file."""
    try:
        write_whole(file, json.dumps(asdict(calibration), indent=1))
    except OSError:
        return  # With a read-only home, the next process measures again, for three seconds.
