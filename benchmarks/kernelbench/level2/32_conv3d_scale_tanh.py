"""A convolution of volumes with scale, tanh, bias and sigmoid."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 16, 3)
        self.scale = nn.Parameter(torch.randn(16, 1, 1, 1))
        self.bias = nn.Parameter(torch.randn(16, 1, 1, 1))

    def forward(self, x):
        x = torch.tanh(self.conv(x) * self.scale)
        return torch.sigmoid(x * self.bias)


def get_inputs():
    return [torch.randn(2, 3, 12, 20, 20)]


def get_init_inputs():
    return []
