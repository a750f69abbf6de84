"""PerfDojo SDK: optimising a kernel as a game over a readable tree IR."""

__version__ = "0.1.0"
