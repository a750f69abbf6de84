"""A transposed convolution of volumes, batch normalisation and two average poolings."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(3, 16, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm3d(16)
        self.one = nn.AvgPool3d(2)
        self.two = nn.AvgPool3d(2)

    def forward(self, x):
        return self.two(self.one(self.norm(self.conv(x))))


def get_inputs():
    return [torch.randn(2, 3, 12, 12, 12)]


def get_init_inputs():
    return []
