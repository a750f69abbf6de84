"""A linear layer, batch normalisation, GELU, a rectifier."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2048, 1280)
        self.norm = nn.BatchNorm1d(1280)

    def forward(self, x):
        return torch.relu(F.gelu(self.norm(self.linear(x))))


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return []
