"""Parts that the code generators of several targets share, from program text to source text."""
