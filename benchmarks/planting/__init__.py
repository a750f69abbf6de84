"""What ``benchmarks/plants.py`` is made of: faults to plant, kernels to plant them in, and a judge."""
