"""A transposed convolution of volumes, swish, group normalisation, hard swish."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(4, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 8)

    def forward(self, x):
        y = self.conv(x)
        return F.hardswish(self.norm(torch.sigmoid(y) * y))


def get_inputs():
    return [torch.randn(1, 4, 10, 12, 12)]


def get_init_inputs():
    return []
