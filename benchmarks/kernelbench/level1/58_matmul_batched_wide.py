"""Batches of products with short sums and large results."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(24, 900, 64), torch.randn(24, 64, 900)]


def get_init_inputs():
    return []
