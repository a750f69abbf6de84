"""Code for machines with grids, blocks, warps and lanes; a plugin defines a few macros in its language."""
