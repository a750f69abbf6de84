"""A product with a long sum."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(1408, 2048), torch.randn(2048, 1792)]


def get_init_inputs():
    return []
