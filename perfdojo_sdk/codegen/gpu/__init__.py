"""Code for machines of grids, blocks, warps and lanes; a plugin adds the words of its language."""
