"""Players of the game: passes, which play by rule, and searches."""
