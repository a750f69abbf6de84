"""The order in which files of tests start, where several processes share them."""

from __future__ import annotations

import pytest

#: Files that take half a minute of processor time and more, the longest first. They start first, so that no
#: process is left with one of them in the end (the option ``--no-loadscope-reorder`` keeps this order).
LONG = (
    "test_onnx.py",
    "test_plants.py",
    "test_docs.py",
    "test_models.py",
    "test_frozen_plugin.py",
    "test_snitch_moves.py",
    "test_scaffold.py",
    "test_numeric_faults.py",
    "test_arm_library.py",
    "test_arm_conformance.py",
    "test_cuda_library.py",
    "test_cuda_conformance.py",
    "test_x86_dtypes.py",
    "test_signs_of_zero.py",
    "test_numeric_overflow.py",
    "test_rows.py",
    "test_buckets.py",
)


def long_files_first(items: list[pytest.Item]) -> None:
    """Sort tests by their files: long ones first, the others as they come."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))
