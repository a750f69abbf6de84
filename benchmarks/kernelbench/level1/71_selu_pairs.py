"""SELU of a table of differences."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, a, b):
        return F.selu(a - b)


def get_inputs():
    return [torch.randn(4300, 1), torch.randn(4300)]


def get_init_inputs():
    return []
