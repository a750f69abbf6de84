"""Rows divided by their Euclidean length."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x / torch.norm(x, p=2, dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(64, 2048)]


def get_init_inputs():
    return []
