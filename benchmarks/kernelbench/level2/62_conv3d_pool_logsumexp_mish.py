"""A convolution of volumes, maxima of windows, logsumexp, Mish."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(12, 24, 3, padding=1)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x):
        return F.mish(torch.logsumexp(self.pool(self.conv(x)), dim=1))


def get_inputs():
    return [torch.randn(2, 12, 48, 90, 90)]


def get_init_inputs():
    return []
