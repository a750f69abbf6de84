"""Kernels: operators as builders of initial programs, and the syntax that selects them."""
