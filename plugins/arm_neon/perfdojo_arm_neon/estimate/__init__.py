"""How long a kernel would take on hardware that is not here: exact counts of instructions, and a model."""
