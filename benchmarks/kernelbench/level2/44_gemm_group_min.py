"""A linear layer, group normalisation, the least of each row and a bias."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(256, 128)
        self.norm = nn.GroupNorm(8, 128)
        self.bias = nn.Parameter(torch.randn(1, 128, 1, 1))

    def forward(self, x):
        x = torch.min(self.norm(self.lin(x)), dim=1, keepdim=True)[0]
        return x + self.bias


def get_inputs():
    return [torch.randn(32, 256)]


def get_init_inputs():
    return []
