"""Experiments of the paper that any target can repeat; ``perfdojo-sdk reproduce`` runs them."""
