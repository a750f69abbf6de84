"""Front ends: models of other systems as graphs of kernels. Each needs an extra of its own."""
