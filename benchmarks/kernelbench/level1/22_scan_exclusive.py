"""Running sums of what lies before each element."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        return torch.cumsum(before, dim=1)


def get_inputs():
    return [torch.randn(128, 2000)]


def get_init_inputs():
    return []
