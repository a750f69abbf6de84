"""A convolution, batch normalisation, a factor."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.conv = nn.Conv2d(8, 24, 3, padding=1)
        self.norm = nn.BatchNorm2d(24)
        self.factor = factor

    def forward(self, x):
        return self.norm(self.conv(x)) * self.factor


def get_inputs():
    return [torch.randn(4, 8, 40, 40)]


def get_init_inputs():
    return [2.0]
