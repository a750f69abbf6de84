"""What the doctor says: what this machine has for the target, what it lacks, and what mends it."""

from __future__ import annotations

import importlib.metadata
import importlib.util

import pytest
from arm_support import PLUGINS, TARGET
from perfdojo_arm_neon import at_home, crosstools

from perfdojo_sdk.core.errors import UnavailableError

pytestmark = pytest.mark.skipif(at_home(), reason="on this processor nothing is emulated")


def probes() -> dict[str, tuple[bool, str, str]]:
    return {p.part: (p.ok, p.why, p.remedy) for _, p in PLUGINS.probes(TARGET)}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with neither compiler nor emulator."""

    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv(crosstools.COMPILER_VARIABLE, raising=False)


def test_it_asks_for_a_cross_compiler_an_emulator_and_a_compiler() -> None:
    assert set(probes()) == {"cross compiler", "emulator", "C compiler"}


def test_what_is_missing_comes_with_a_remedy(bare: None) -> None:
    found = probes()
    assert not any(ok for ok, _, _ in found.values())
    assert "pip install ziglang" in found["cross compiler"][2]
    assert "apt install gcc-aarch64-linux-gnu" in found["cross compiler"][2]
    assert found["emulator"][2] == "pip install 'perfdojo-arm-neon[emulation]'"
    lacking = PLUGINS.unavailable(TARGET)
    assert lacking is not None and "aarch64-linux-gnu-gcc" in lacking.why


def test_a_compiler_that_is_none_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crosstools.COMPILER_VARIABLE, "/nowhere/cc --fast")
    with pytest.raises(UnavailableError) as refused:
        crosstools.find_cross_compiler()
    assert refused.value.code == "PD-M001" and "/nowhere/cc --fast" in refused.value.why


def test_it_is_never_the_best_target_where_it_is_emulated() -> None:
    assert TARGET.capabilities.rank < 0
