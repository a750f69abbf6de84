"""Two linear layers with a wide layer of squared rectifiers between them."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(144, 4096)
        self.down = nn.Linear(4096, 144)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)) ** 2)


def get_inputs():
    return [torch.randn(4400, 144)]


def get_init_inputs():
    return []
