"""A convolution, a bound from below, a sum with a bias of its own."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 32, 3)
        self.bias = nn.Parameter(torch.randn(32, 1, 1))

    def forward(self, x):
        return torch.relu(self.conv(x)) + self.bias


def get_inputs():
    return [torch.randn(4, 8, 40, 40)]


def get_init_inputs():
    return []
