"""A convolution of volumes, a pooling, logsumexp and a rectifier."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 12, 3, padding=1)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x):
        x = torch.logsumexp(self.pool(self.conv(x)), dim=1, keepdim=True)
        return torch.relu(x)


def get_inputs():
    return [torch.randn(2, 3, 12, 20, 20)]


def get_init_inputs():
    return []
