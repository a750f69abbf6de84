"""A convolution of 5 x 5, batch normalisation, ELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 64, 5, padding=2, bias=False)
        self.norm = nn.BatchNorm2d(64)

    def forward(self, x):
        return F.elu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 16, 266, 266)]


def get_init_inputs():
    return []
