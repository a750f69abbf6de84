"""The expert for machines with grids and blocks."""
