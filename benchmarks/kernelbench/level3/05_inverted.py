"""An inverted residual of a mobile network, with squeeze and excitation."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand, self.norm1 = nn.Conv2d(16, 48, 1, bias=False), nn.BatchNorm2d(48)
        self.depth, self.norm2 = nn.Conv2d(48, 48, 3, padding=1, groups=48, bias=False), nn.BatchNorm2d(48)
        self.down, self.up = nn.Conv2d(48, 12, 1), nn.Conv2d(12, 48, 1)
        self.project, self.norm3 = nn.Conv2d(48, 16, 1, bias=False), nn.BatchNorm2d(16)

    def forward(self, x):
        y = F.hardswish(self.norm1(self.expand(x)))
        y = F.hardswish(self.norm2(self.depth(y)))
        weight = F.adaptive_avg_pool2d(y, 1)
        y = y * F.hardsigmoid(self.up(torch.relu(self.down(weight))))
        return x + self.norm3(self.project(y))


def get_inputs():
    return [torch.randn(4, 16, 310, 310)]


def get_init_inputs():
    return []
