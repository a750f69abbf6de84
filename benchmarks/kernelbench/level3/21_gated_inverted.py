"""An inverted block with attention to channels."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64), nn.SiLU())
        self.deep = nn.Sequential(
            nn.Conv2d(64, 64, 5, padding=2, groups=64, bias=False), nn.BatchNorm2d(64), nn.SiLU()
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(64, 4, 1), nn.SiLU(), nn.Conv2d(4, 64, 1), nn.Sigmoid()
        )
        self.last = nn.Sequential(nn.Conv2d(64, 16, 1, bias=False), nn.BatchNorm2d(16))

    def forward(self, x):
        y = self.deep(self.wide(x))
        return x + self.last(y * self.gate(y))


def get_inputs():
    return [torch.randn(4, 16, 270, 270)]


def get_init_inputs():
    return []
