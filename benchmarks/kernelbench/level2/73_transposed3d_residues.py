"""A transposed convolution of volumes, a bias, residues and products with itself."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(8, 12, 3, stride=2, padding=1, output_padding=1)
        self.bias = nn.Parameter(torch.randn(12, 1, 1, 1))

    def forward(self, x):
        y = self.conv(x)
        return ((y + self.bias) + y) * y + y


def get_inputs():
    return [torch.randn(1, 8, 6, 10, 10)]


def get_init_inputs():
    return []
