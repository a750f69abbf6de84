"""A convolution of volumes in groups."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(8, 16, 3, stride=2, padding=1, groups=4, dilation=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 8, 12, 16, 16)]


def get_init_inputs():
    return []
