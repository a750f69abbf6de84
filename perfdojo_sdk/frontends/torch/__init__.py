"""The PyTorch front end: graphs of Dynamo and of ``torch.export`` as graphs of kernels."""
