"""A network of two convolutions for digits."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.three, self.four = nn.Linear(256, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.one(x)), 2)
        x = F.max_pool2d(torch.relu(self.two(x)), 2).flatten(1)
        return self.four(torch.relu(self.three(x)))


def get_inputs():
    return [torch.randn(16, 1, 28, 28)]


def get_init_inputs():
    return []
