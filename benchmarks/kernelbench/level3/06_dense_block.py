"""A dense block: each convolution sees all before it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(16 + 8 * k) for k in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(16 + 8 * k, 8, 3, padding=1, bias=False) for k in range(3))

    def forward(self, x):
        found = [x]
        for norm, conv in zip(self.norms, self.convs):
            found.append(conv(torch.relu(norm(torch.cat(found, 1)))))
        return torch.cat(found, 1)


def get_inputs():
    return [torch.randn(4, 16, 360, 360)]


def get_init_inputs():
    return []
