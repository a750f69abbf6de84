"""What an expert plays: ``cpu`` on processors with vectors and caches, ``gpu`` on grids and blocks."""
