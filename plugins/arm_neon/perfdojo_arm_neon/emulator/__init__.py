"""Runs the code of 64-bit Arm on another processor: a loader of shared objects, and a machine around them."""
