"""A convolution of sequences, softplus, sums of channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(16, 32, 5, dilation=2)

    def forward(self, x):
        return F.softplus(self.conv(x)).sum(dim=1)


def get_inputs():
    return [torch.randn(8, 16, 400)]


def get_init_inputs():
    return []
