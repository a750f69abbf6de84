"""A convolution of volumes, group normalisation, bounds."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 16, 3)
        self.norm = nn.GroupNorm(8, 16)

    def forward(self, x):
        return torch.clamp(torch.minimum(self.norm(self.conv(x)), torch.tensor(0.5)), min=0.0)


def get_inputs():
    return [torch.randn(2, 3, 12, 16, 16)]


def get_init_inputs():
    return []
