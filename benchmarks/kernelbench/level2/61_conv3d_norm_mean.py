"""A convolution of volumes, batch normalisation, a rectifier, the mean of each channel."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(12, 32, 3, padding=1)
        self.norm = nn.BatchNorm3d(32)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))).mean(dim=(2, 3, 4))


def get_inputs():
    return [torch.randn(2, 12, 42, 82, 82)]


def get_init_inputs():
    return []
