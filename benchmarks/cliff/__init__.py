"""Random programs of the shapes people write, each with the same computation in PyTorch."""
