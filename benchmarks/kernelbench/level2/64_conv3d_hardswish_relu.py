"""A convolution of volumes, hard swish, a rectifier, softmax, a mean."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 16, 3)

    def forward(self, x):
        y = F.softmax(torch.relu(F.hardswish(self.conv(x))), dim=1)
        return y.mean(dim=(2, 3, 4))


def get_inputs():
    return [torch.randn(2, 4, 12, 16, 16)]


def get_init_inputs():
    return []
