"""Two layers of a plain recurrent network with tanh, and a linear layer on each step."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.RNN(32, 48, 2, batch_first=True)
        self.out = nn.Linear(48, 12)

    def forward(self, x):
        return self.out(self.cells(x)[0])


def get_inputs():
    return [torch.randn(8, 20, 32)]


def get_init_inputs():
    return []
