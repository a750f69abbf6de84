"""A transposed convolution, a sum, a bound from above, GELU, a factor."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(16, 12, 4, stride=2)

    def forward(self, x):
        y = torch.min(self.conv(x) + 0.5, torch.tensor(0.0, device=x.device))
        return F.gelu(y) * 2.0


def get_inputs():
    return [torch.randn(4, 16, 18, 18)]


def get_init_inputs():
    return []
