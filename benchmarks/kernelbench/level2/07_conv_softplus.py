"""A convolution times the tanh of its softplus, then normalised."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(torch.tanh(F.softplus(y)) * y)


def get_inputs():
    return [torch.randn(4, 8, 36, 36)]


def get_init_inputs():
    return []
