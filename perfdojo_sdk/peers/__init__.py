"""Comparison with other systems, each in a process of its own, on the same inputs, in turns.

The extra ``bench`` installs them; a system is imported only in its own process.
"""
