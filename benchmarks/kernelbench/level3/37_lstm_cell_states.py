"""Two layers of LSTM; the result is what their cells hold at the end."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(24, 40, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.cells(x)[1][1]


def get_inputs():
    return [torch.randn(4, 16, 24)]


def get_init_inputs():
    return []
