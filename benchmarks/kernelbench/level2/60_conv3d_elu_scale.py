"""A convolution of volumes, ELU, a factor for each channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(12, 32, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(32, 1, 1, 1))

    def forward(self, x):
        return F.elu(self.conv(x)) * self.scale


def get_inputs():
    return [torch.randn(2, 12, 40, 84, 84)]


def get_init_inputs():
    return []
