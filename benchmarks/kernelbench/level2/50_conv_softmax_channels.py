"""A convolution and softmax over channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(32, 64, 3)

    def forward(self, x):
        return F.softmax(self.conv(x), dim=1)


def get_inputs():
    return [torch.randn(4, 32, 272, 272)]


def get_init_inputs():
    return []
