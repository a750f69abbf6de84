"""A linear layer, dropout outside of training, softplus, a square root."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        return torch.sqrt(F.softplus(self.dropout(self.linear(x))))


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
