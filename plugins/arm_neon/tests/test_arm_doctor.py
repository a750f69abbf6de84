"""The doctor's report: tools present, tools missing, and remedies."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from dataclasses import replace

import pytest
from arm_support import PLUGINS, SVE, TARGET, both_targets
from perfdojo_arm_neon import at_home, crosstools, processor
from perfdojo_arm_neon.runner import ArmRunner

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.abilities import Imitates, ability
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.measure.machine import machine
from perfdojo_sdk.measure.native_runner import NativeRunner

pytestmark = pytest.mark.skipif(at_home(TARGET), reason="on this processor nothing is emulated")


def probes(target: Target = TARGET) -> dict[str, tuple[bool, str, str]]:
    return {p.part: (p.ok, p.why, p.remedy) for _, p in PLUGINS.probes(target)}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with neither compiler nor emulator."""

    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv(crosstools.COMPILER_VARIABLE, raising=False)


@both_targets
def test_it_asks_for_a_cross_compiler_an_emulator_and_a_compiler(target: Target) -> None:
    assert set(probes(target)) == {"cross compiler", "emulator", "C compiler"}


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


def test_a_program_that_compiles_nothing_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers --version, and reports success."""
    monkeypatch.setenv(crosstools.COMPILER_VARIABLE, "/bin/true")
    ok, why, remedy = probes()["cross compiler"]
    assert not ok and why.startswith("/bin/true compiles nothing") and crosstools.COMPILER_VARIABLE in remedy


def test_it_is_never_the_best_target_where_it_is_emulated() -> None:
    assert SVE.capabilities.rank < TARGET.capabilities.rank < 0


def host(monkeypatch: pytest.MonkeyPatch, flags: str, bits: int) -> None:
    """As if this were an aarch64 machine with such a processor."""
    there = replace(machine(), flags=frozenset(flags.split()))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr("perfdojo_sdk.measure.machine.machine", lambda: there)
    monkeypatch.setattr(processor, "sve_bits", lambda: bits)


def test_it_says_that_it_emulates() -> None:
    told = ability(ArmRunner(TARGET.capabilities), Imitates)
    assert told is not None and told.imitation == "emulated"


def test_at_home_both_targets_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch, "fp asimd sve", 128)
    assert at_home(TARGET) and at_home(SVE)
    assert set(probes()) == {"processor", "C compiler"} and probes(SVE)["vectors"][0]
    assert PLUGINS.unavailable(SVE) is None
    assert isinstance(PLUGINS.runner(SVE), NativeRunner)


def test_longer_vectors_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch, "fp asimd sve", 256)
    ok, why, remedy = probes(SVE)["vectors"]
    assert not ok and "256 bits here, the target's have 128" in why
    assert "echo 16 > /proc/sys/abi/sve_default_vector_length" in remedy and "arm_neon" in remedy
    lacking = PLUGINS.unavailable(SVE)
    assert lacking is not None and lacking.why == why
    assert PLUGINS.unavailable(TARGET) is None


def test_a_processor_of_the_family_without_sve_emulates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch, "fp asimd", 0)
    assert at_home(TARGET) and not at_home(SVE)
    assert isinstance(PLUGINS.runner(SVE), ArmRunner)
