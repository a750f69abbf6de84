"""Experts: ``cpu`` for processors with vectors and caches, ``gpu`` for grids and blocks."""
