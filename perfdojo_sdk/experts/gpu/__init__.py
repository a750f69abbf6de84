"""What an expert of machines with grids and blocks would play, in the game's own moves."""
