"""An average pooling of volumes."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool3d(3, 2, 1)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(2, 8, 24, 24, 24)]


def get_init_inputs():
    return []
