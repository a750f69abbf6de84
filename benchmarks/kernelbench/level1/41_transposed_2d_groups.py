"""A transposed convolution in steps, groups and with gaps."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(
            16, 32, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=4
        )

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 16, 20, 24)]


def get_init_inputs():
    return []
