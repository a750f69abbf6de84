"""A convolution of volumes with flat filters."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 16, (3, 5, 7), stride=(1, 2, 1), padding=(1, 0, 2))

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 4, 16, 32, 32)]


def get_init_inputs():
    return []
