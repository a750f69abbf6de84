"""A convolution, its own activation and batch normalisation."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x):
        x = self.conv(x)
        x = torch.multiply(torch.tanh(F.softplus(x)), x)
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 8, 32, 32)]


def get_init_inputs():
    return []
