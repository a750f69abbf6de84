"""A contraction of a tensor of four dimensions with a matrix."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.einsum("bijl,lk->bijk", a, b)


def get_inputs():
    return [torch.randn(4, 32, 48, 64), torch.randn(64, 96)]


def get_init_inputs():
    return []
