"""Estimates of a kernel's time on absent hardware: exact instruction counts and a model of the core."""
