"""A linear layer, batch normalisation, a factor, softmax."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(384, 256)
        self.norm = nn.BatchNorm1d(256)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return F.softmax(self.scale * self.norm(self.linear(x)), dim=1)


def get_inputs():
    return [torch.randn(256, 384)]


def get_init_inputs():
    return []
