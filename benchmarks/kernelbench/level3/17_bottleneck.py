"""A residual block with a narrow middle and a projection."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.na = nn.Conv2d(32, 16, 1, bias=False), nn.BatchNorm2d(16)
        self.b, self.nb = nn.Conv2d(16, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16)
        self.c, self.nc = nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64)
        self.skip = nn.Sequential(nn.Conv2d(32, 64, 1, stride=2, bias=False), nn.BatchNorm2d(64))

    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        y = F.relu(self.nb(self.b(y)))
        return F.relu(self.nc(self.c(y)) + self.skip(x))


def get_inputs():
    return [torch.randn(2, 32, 28, 28)]


def get_init_inputs():
    return []
