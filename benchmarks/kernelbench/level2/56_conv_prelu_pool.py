"""A convolution, PReLU, means of windows."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 24, 3)
        self.slope = nn.PReLU(24)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        return self.pool(self.slope(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 8, 34, 34)]


def get_init_inputs():
    return []
