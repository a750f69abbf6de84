"""A library for a processor that this one is not: built, verified, described, and not loaded here."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest
from arm_support import PLUGINS, TARGET, kernel, needs_compiler
from perfdojo_arm_neon import at_home

from perfdojo_sdk.cli.bench import compared
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.by_runner import artifact, stored_request
from perfdojo_sdk.library.loader import load_library
from perfdojo_sdk.library.manifest import LibraryError, Manifest
from perfdojo_sdk.library.settings import Settings

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(at_home(TARGET), reason="on this processor kernels are run, and times measured"),
]

#: Small, and too large to be computed or verified as it is.
SELECTIONS = ("softmax[6,40]", "softmax[2048,2048]")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    folder = tmp_path_factory.mktemp("library")
    settings = replace(Settings(), threads=1)
    result = build_library(PLUGINS, TARGET, [kernel(s) for s in SELECTIONS], folder, settings)
    assert result.manifest is not None and not result.failed, result.failed
    return folder, result.manifest


def test_it_says_what_it_holds(built: tuple[Path, Manifest]) -> None:
    folder, manifest = built
    assert manifest.machine == "aarch64" and "estimated" in manifest.device
    code = (folder / manifest.artefact("shared_object").path).read_bytes()
    assert code[:4] == b"\x7fELF" and int.from_bytes(code[18:20], "little") == 183
    for entry in manifest.kernels:
        assert entry.timing.final is not None and entry.timing.final.provenance == "estimated"
        assert entry.verification.passed and entry.speed_up is not None and entry.speed_up > 1


def test_a_large_kernel_is_verified_at_a_smaller_shape(built: tuple[Path, Manifest]) -> None:
    small, large = built[1].kernels
    assert small.verification.numeric.figures["reduced_shape"] is False
    assert large.verification.numeric.figures["reduced_shape"] is True
    assert "smaller shape, x [" in large.verification.numeric.detail
    assert small.output_sha256 is not None and large.output_sha256 is None
    figures = large.timing.final.details  # type: ignore[union-attr]
    assert figures["vector_instructions"] > 1e6
    parts = [cycles for name, cycles in figures.items() if name.startswith("cycles, ")]
    assert sum(parts) == pytest.approx(figures["cycles"])


def test_it_is_not_loaded_here(built: tuple[Path, Manifest]) -> None:
    with pytest.raises(LibraryError) as refused:
        load_library(built[0])
    assert refused.value.code == "PD-L006"
    assert refused.value.why == f"its code is for aarch64, this processor is {platform.machine()}"
    assert "such a machine" in refused.value.hint


def test_bench_estimates_again(built: tuple[Path, Manifest]) -> None:
    """The packaged code has the same outputs where it is computed, and the same estimate everywhere."""
    folder, manifest = built
    request = stored_request(manifest)
    for entry in manifest.kernels:
        measured = PLUGINS.runner(TARGET).run(artifact(folder, manifest, entry), request)
        result = compared(entry, measured)
        assert result["same_outputs"] and result["ratio"] == 1
        assert result["computed"] is (entry.output_sha256 is not None)
