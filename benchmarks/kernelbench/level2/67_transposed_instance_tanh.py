"""A transposed convolution in steps, instance normalisation, tanh."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(32, 64, 4, stride=2, padding=1)
        self.norm = nn.InstanceNorm2d(64)

    def forward(self, x):
        return torch.tanh(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 32, 135, 135)]


def get_init_inputs():
    return []
