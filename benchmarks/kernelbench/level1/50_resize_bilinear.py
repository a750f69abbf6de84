"""Images of a size that is no multiple of theirs, by lines."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.interpolate(x, size=(100, 120), mode="bilinear", align_corners=False)


def get_inputs():
    return [torch.randn(4, 64, 64, 64)]


def get_init_inputs():
    return []
