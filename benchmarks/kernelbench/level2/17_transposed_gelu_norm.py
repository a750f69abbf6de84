"""A transposed convolution, GELU, group normalisation."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(16, 16, 3, stride=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        return self.norm(F.gelu(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 16, 24, 24)]


def get_init_inputs():
    return []
