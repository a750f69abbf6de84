"""Tensors of PyTorch as arrays of NumPy, and back; NumPy knows bf16 by the package ``ml_dtypes``."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array


def array_of(tensor: Tensor) -> Array:
    """The elements of a tensor in row-major order, over the same memory where they lie so."""
    plain = tensor.detach().resolve_neg().contiguous()
    if plain.dtype != torch.bfloat16:
        return plain.numpy()
    return plain.view(torch.int16).numpy().view(numpy_dtype("bf16"))


def tensor_of(array: Array) -> Tensor:
    """A tensor over the memory of an array."""
    if array.dtype.name != "bfloat16":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
