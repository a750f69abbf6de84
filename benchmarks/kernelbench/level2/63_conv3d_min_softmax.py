"""A convolution of volumes, minima along their depth, softmax over channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 24, 3)

    def forward(self, x):
        return F.softmax(torch.amin(self.conv(x), dim=2), dim=1)


def get_inputs():
    return [torch.randn(8, 3, 26, 66, 66)]


def get_init_inputs():
    return []
