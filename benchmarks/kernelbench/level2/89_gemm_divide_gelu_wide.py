"""A linear layer with many features, a quotient, GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(300, 4096)

    def forward(self, x):
        return F.gelu(self.linear(x) / 4.0)


def get_inputs():
    return [torch.randn(4352, 300)]


def get_init_inputs():
    return []
