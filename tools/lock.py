"""Write `requirements/*.lock`: all that the SDK and its plugins depend on, pinned, with hashes of the files.

    python -m pip install uv && python tools/lock.py [--torch-wheel FILE]

Versions are those of constraints.txt. uv resolves once for all platforms and versions of Python, and lists
the hashes of all files of a version. PyTorch stands apart: the usual index has a build with CUDA
(`torch.lock`, and with `torch-cuda.lock` what only it needs), some have one that is ten times smaller
(`torch-cpu.lock`, the wheel that `--torch-wheel` names).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tomllib
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "requirements"
#: The build system of this repository's packages, installed so that `--no-build-isolation` finds it.
BUILD = "setuptools>=77"
#: Extras that the tests need, by the project that has them; None stands for the SDK.
TESTED = {None: ("dev",), "cuda_gh200": ("nvrtc",), "hip_mi300a": ("zig",)}
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_ONLY_WITH_CUDA = re.compile(r"nvidia-|cuda-|triton")
_HEADER = "# Made by tools/lock.py; do not edit.\n"


def projects() -> dict[str | None, dict[str, object]]:
    """The tables `project` of the SDK (None) and of each plugin."""
    files: dict[str | None, Path] = {None: ROOT / "pyproject.toml"}
    files |= {each.parent.name: each for each in sorted(ROOT.glob("plugins/*/pyproject.toml"))}
    return {name: tomllib.loads(file.read_text(encoding="utf-8"))["project"] for name, file in files.items()}


def name_of(requirement: str) -> str:
    found = _NAME.match(requirement)
    assert found, requirement
    return found[0].lower().replace("_", "-").replace(".", "-")


def requirements(tested: bool) -> list[str]:
    """Requirements of the SDK and its plugins, without each other and PyTorch; ``tested``: with the test
    extras."""
    wanted = [BUILD]
    for name, project in projects().items():
        wanted += project["dependencies"]  # type: ignore[arg-type]
        for extra in TESTED.get(name, ()) if tested else ():
            wanted += project["optional-dependencies"][extra]  # type: ignore[index]
    return sorted({each for each in wanted if name_of(each) not in ("perfdojo-sdk", "torch")})


def resolved(wanted: Iterable[str], constraints: Sequence[str]) -> dict[str, str]:
    """Name -> its lines in a lock file, for everything that ``wanted`` needs."""
    command = ["uv", "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes",
               "--no-annotate", "--no-header", "--quiet", "--no-emit-index-url", "-"]  # fmt: skip
    pins = ROOT / "build" / "lock-constraints.txt"
    pins.parent.mkdir(exist_ok=True)
    pins.write_text("\n".join(constraints) + "\n", encoding="utf-8")
    command += ["--constraints", str(pins)]
    made = subprocess.run(command, input="\n".join(wanted), capture_output=True, text=True, check=True).stdout
    blocks = re.split(r"\n(?=\S)", made.strip())
    found: dict[str, str] = {}
    for block in blocks:  # a package may come in several versions, for different systems
        found[name_of(block)] = found.get(name_of(block), "") + block + "\n"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--torch-wheel", type=Path, help="a wheel of PyTorch without CUDA, for torch-cpu.lock"
    )
    wheel: Path | None = parser.parse_args().torch_wheel

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    [torch_pin] = [pin for pin in pins if name_of(pin) == "torch"]
    torch = resolved([torch_pin], [p for p in pins if not _ONLY_WITH_CUDA.match(p)])
    with_cuda = {name for name in torch if _ONLY_WITH_CUDA.match(name)}
    light = [name for name in torch if name not in with_cuda and name != "torch"]

    base, zig = resolved(requirements(tested=False), pins), resolved(["ziglang"], pins)
    dev = resolved([*requirements(tested=True), *light], pins)
    files = {
        "base": base.values(),
        "dev": [block for name, block in dev.items() if base.get(name) != block],
        "zig": zig.values(),
        "torch": [torch["torch"]],
        "torch-cuda": [torch[name] for name in sorted(with_cuda)],
    }
    if wheel:
        digest = sha256(wheel.read_bytes()).hexdigest()
        files["torch-cpu"] = [f"torch=={wheel.name.split('-')[1]} --hash=sha256:{digest}\n"]
    FOLDER.mkdir(exist_ok=True)
    for name, blocks in files.items():
        (FOLDER / f"{name}.lock").write_text(_HEADER + "".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
