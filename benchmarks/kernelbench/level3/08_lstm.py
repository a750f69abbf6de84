"""Two layers of LSTM, and a linear layer on the last step."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(48, 64, 2, batch_first=True)
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(self.lstm(x)[0][:, -1])


def get_inputs():
    return [torch.randn(8, 20, 48)]


def get_init_inputs():
    return []
