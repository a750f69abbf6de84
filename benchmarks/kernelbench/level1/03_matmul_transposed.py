"""A product with both operands transposed."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a.T @ b.T


def get_inputs():
    return [torch.randn(384, 512), torch.randn(320, 384)]


def get_init_inputs():
    return []
