"""A transposed convolution of volumes, two poolings and a sum of channels."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(8, 12, 5, stride=2, padding=2)
        self.one = nn.MaxPool3d(2)
        self.two = nn.MaxPool3d(3)

    def forward(self, x):
        x = self.two(self.one(self.conv(x)))
        return torch.sum(x, dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(2, 8, 8, 12, 12)]


def get_init_inputs():
    return []
