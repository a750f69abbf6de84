"""Kernels: operators as builders of initial programs, and the words that select them."""
