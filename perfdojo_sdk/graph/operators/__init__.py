"""Operators as rules that make programs: one file for each family, shared by all front ends.

A rule takes a :class:`~perfdojo_sdk.graph.builder.Builder`, values and plain arguments, adds kernels and
returns values. Its semantics are those of the ONNX standard.
"""
