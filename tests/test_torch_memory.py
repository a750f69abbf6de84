"""Memory of large results of compiled graphs: used again when nothing refers to it, and never before."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perfdojo_sdk.frontends.torch import running  # noqa: E402
from perfdojo_sdk.frontends.torch.memory import ResultMemory  # noqa: E402


def memory(most: int = 1 << 20) -> ResultMemory:
    return ResultMemory(least=1024, most=most)


def test_a_block_holds_a_later_result_when_nothing_refers_to_it() -> None:
    blocks = memory()
    first = blocks.empty((16, 32), torch.float32)
    at = first.data_ptr()
    assert at % 64 == 0 and first.shape == (16, 32) and first.is_contiguous()
    assert blocks.empty((16, 32), torch.float32).data_ptr() != at, "it is in use"
    del first
    second = blocks.empty((512,), torch.int32)
    assert second.data_ptr() == at and second.dtype == torch.int32 and second.shape == (512,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int64, torch.uint8])
def test_results_are_of_any_dtype_and_ordinary_tensors(dtype: Any) -> None:
    made = memory().empty((64, 64), dtype)
    made.fill_(1)
    assert made.dtype == dtype and made._base is None and not made.requires_grad
    assert bool((made == 1).all())


@pytest.mark.parametrize(
    "keep",
    [
        lambda t: t[3:5],
        lambda t: t.detach(),
        lambda t: t.view(-1)[7:],
        lambda t: t.numpy(),
        lambda t: t.untyped_storage(),
        lambda t: torch.from_dlpack(t),
        lambda t: torch.nn.Parameter(t),
        lambda t: memoryview(t.numpy()),
    ],
)
def test_whatever_refers_to_a_result_keeps_its_memory(keep: Callable[[Any], object]) -> None:
    blocks = memory()
    made = blocks.empty((16, 32), torch.float32)
    at, kept = made.data_ptr(), keep(made)
    del made
    assert blocks.empty((16, 32), torch.float32).data_ptr() != at
    del kept
    gc.collect()
    others = [blocks.empty((16, 32), torch.float32) for _ in range(3)]
    assert at in [other.data_ptr() for other in others]


def test_results_of_inference_mode_are_inference_tensors() -> None:
    blocks = memory()
    with torch.inference_mode():
        assert blocks.empty((16, 32), torch.float32).fill_(1).is_inference()
    assert not blocks.empty((16, 32), torch.float32).is_inference()


def test_small_and_too_large_results_are_as_pytorch_allocates_them() -> None:
    blocks = memory()
    blocks.empty((8,), torch.float32)
    blocks.empty((1 << 20,), torch.float32)
    assert blocks.bytes == 0


def test_blocks_stay_within_their_bytes_and_results_within_theirs() -> None:
    """The oldest block is forgotten, free ones first; a result whose block is forgotten keeps elements."""
    blocks = memory(most=8192)
    held = blocks.empty((1024,), torch.float32).fill_(3)
    blocks.empty((512,), torch.float32)
    for size in (1024, 1025, 2048):
        blocks.empty((size,), torch.float32).fill_(5)
        assert blocks.bytes <= 8192
    assert bool((held == 3).all())


def test_threads_never_get_one_block_at_once() -> None:
    blocks, clashes = memory(), list[int]()

    def work(number: int) -> None:
        for _ in range(200):
            made = blocks.empty((1024,), torch.float32).fill_(number)
            clashes.extend([number] if bool((made != number).any()) else [])

    threads = [Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes


def test_compiled_graphs_use_the_memory_of_results_again(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = memory()
    monkeypatch.setattr(running, "RESULTS", blocks)
    compiled = torch.compile(lambda x: x * 2 + 1, backend="perfdojo", options={"threads": 1})
    x = torch.randn(64, 64)
    first = compiled(x)
    at, wanted = first.data_ptr(), x * 2 + 1
    other = compiled(x + 1)
    assert other.data_ptr() != at and torch.equal(first, wanted)
    del first
    assert compiled(x).data_ptr() == at and torch.equal(compiled(x), wanted)
