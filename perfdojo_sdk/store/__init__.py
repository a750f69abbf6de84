"""Records of kernels and of searches' candidates, so that nothing is searched, verified or measured twice."""
