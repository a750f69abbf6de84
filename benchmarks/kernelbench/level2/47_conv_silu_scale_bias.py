"""A convolution, swish, a factor and a bias for each channel."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(32, 64, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(64, 1, 1))
        self.bias = nn.Parameter(torch.randn(64, 1, 1))

    def forward(self, x):
        y = self.conv(x)
        return y * torch.sigmoid(y) * self.scale + self.bias


def get_inputs():
    return [torch.randn(4, 32, 264, 264)]


def get_init_inputs():
    return []
