"""Program text to source text: what the code generators of several targets share."""
