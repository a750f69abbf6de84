"""Graphs of kernels: nodes are programs of the language, edges are arrays."""
