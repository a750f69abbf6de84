"""A linear layer with many features, softmax."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(288, 4608)

    def forward(self, x):
        return F.softmax(self.linear(x), dim=1)


def get_inputs():
    return [torch.randn(4000, 288)]


def get_init_inputs():
    return []
