"""A convolution of volumes, a quotient, maxima of windows, a mean, a bias, a sum."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 12, 3)
        self.pool = nn.MaxPool3d(2)
        self.bias = nn.Parameter(torch.randn(12, 1, 1, 1))

    def forward(self, x):
        y = F.adaptive_avg_pool3d(self.pool(self.conv(x) / 2.0), 1)
        return (y + self.bias).sum(dim=1)


def get_inputs():
    return [torch.randn(2, 4, 14, 18, 18)]


def get_init_inputs():
    return []
