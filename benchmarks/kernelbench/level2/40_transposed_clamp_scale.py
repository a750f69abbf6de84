"""A transposed convolution, a bias, limits, a scale, limits and a division."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(8, 16, 3, stride=2, padding=1, output_padding=1)
        self.bias = nn.Parameter(torch.randn(16, 1, 1))

    def forward(self, x):
        x = torch.clamp(self.conv(x) + self.bias, min=0.0, max=1.0) * 2.0
        return torch.clamp(x, min=0.0, max=1.0) / 2.0


def get_inputs():
    return [torch.randn(4, 8, 20, 20)]


def get_init_inputs():
    return []
