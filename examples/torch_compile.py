"""PyTorch's own compiler calls our kernels, and a report says which, and what ran elsewhere."""

import torch

import perfdojo_sdk.torch

net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()).eval()
compiled = torch.compile(net, backend="perfdojo")
x = torch.randn(8, 64)
with torch.no_grad():  # with gradients PyTorch runs the whole graph
    difference = compiled(x) - net(x)  # the first call builds and verifies the kernels
print("largest difference from PyTorch:", difference.abs().max().item())
print(perfdojo_sdk.torch.report(compiled).text)
