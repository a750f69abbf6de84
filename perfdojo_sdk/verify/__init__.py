"""Verification that a kernel still means what its initial program says, by three independent legs."""
