"""Players of the game. Passes play by rule; searches will join them here."""
