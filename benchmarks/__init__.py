"""Programs that time and compare. A package of this name, since others install one too."""
