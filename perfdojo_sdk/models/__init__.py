"""Models: graphs of kernels built for a target, packaged, loaded and run."""
