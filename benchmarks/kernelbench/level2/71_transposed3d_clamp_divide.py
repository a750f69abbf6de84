"""A transposed convolution of volumes in steps, a bound from below, a quotient."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(16, 24, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return torch.clamp(self.conv(x), min=-0.5) / 2.0


def get_inputs():
    return [torch.randn(1, 16, 28, 60, 60)]


def get_init_inputs():
    return []
