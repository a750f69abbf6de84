"""A linear layer, group normalisation, bounds."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 512)
        self.norm = nn.GroupNorm(16, 512)

    def forward(self, x):
        return F.hardtanh(self.norm(self.linear(x)), -2.0, 2.0)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
