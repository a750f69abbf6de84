"""A linear layer, swish, a bias of its own, group normalisation."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 384)
        self.bias = nn.Parameter(torch.randn(384))
        self.norm = nn.GroupNorm(12, 384)

    def forward(self, x):
        y = self.linear(x)
        return self.norm(torch.sigmoid(y) * y + self.bias)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
