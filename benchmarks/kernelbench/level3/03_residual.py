"""A residual block with a shortcut of strides."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False)
        self.two = nn.Conv2d(64, 64, 3, padding=1, bias=False)
        self.short = nn.Conv2d(32, 64, 1, stride=2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(64) for _ in range(3))

    def forward(self, x):
        y = F.relu(self.norms[0](self.one(x)), inplace=True)
        y = self.norms[1](self.two(y))
        y += self.norms[2](self.short(x))
        return torch.relu(y)


def get_inputs():
    return [torch.randn(6, 32, 256, 256)]


def get_init_inputs():
    return []
