"""A convolution of volumes, leaky ReLU, a sum, bounds, GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 12, 3)
        self.sum = nn.Parameter(torch.randn(12, 1, 1, 1))

    def forward(self, x):
        y = F.leaky_relu(self.conv(x), 0.2) + self.sum
        return F.gelu(torch.clamp(y, min=-1.0, max=1.0))


def get_inputs():
    return [torch.randn(2, 4, 12, 16, 16)]


def get_init_inputs():
    return []
