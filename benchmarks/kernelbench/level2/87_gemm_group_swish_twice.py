"""A linear layer, group normalisation, swish, weights, swish."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1024, 2048)
        self.norm = nn.GroupNorm(64, 2048)
        self.weight = nn.Parameter(torch.randn(2048))

    def forward(self, x):
        y = F.silu(self.norm(self.linear(x))) * self.weight
        return y * torch.sigmoid(y)


def get_inputs():
    return [torch.randn(2600, 1024)]


def get_init_inputs():
    return []
