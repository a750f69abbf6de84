"""The parts of ``benchmarks/plants.py``: faults to plant, kernels to plant them in, and a judge."""
