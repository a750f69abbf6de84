"""A fire module: a squeeze, and two widths of filters joined."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.squeeze = nn.Conv2d(24, 8, 1)
        self.narrow, self.wide = nn.Conv2d(8, 16, 1), nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.narrow(y)), torch.relu(self.wide(y))], 1)


def get_inputs():
    return [torch.randn(4, 24, 370, 370)]


def get_init_inputs():
    return []
