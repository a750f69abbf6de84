"""A transposed convolution of volumes, a sum, layer normalisation, means, GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(8, 16, 3, stride=2, padding=1, output_padding=1)
        self.norm = nn.LayerNorm(20)
        self.pool = nn.AvgPool3d(2)

    def forward(self, x):
        return F.gelu(self.pool(self.norm(self.conv(x) + 1.0)))


def get_inputs():
    return [torch.randn(1, 8, 6, 10, 10)]


def get_init_inputs():
    return []
