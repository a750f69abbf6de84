"""A convolution, group normalisation, a factor, bounds."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(32, 64, 3)
        self.norm = nn.GroupNorm(8, 64)
        self.scale = nn.Parameter(torch.rand(64, 1, 1) + 0.5)

    def forward(self, x):
        return torch.clamp(self.norm(self.conv(x)) * self.scale, -1.5, 1.5)


def get_inputs():
    return [torch.randn(4, 32, 266, 266)]


def get_init_inputs():
    return []
