"""PerfLLM: learning to play the game (paper, section 3).

``maxq.py`` is all of the learning in one file, as the paper has it: start there.

A language model turns the text of a program into a vector (``encoder``), a small network says what a move
is worth (``network.py``), and what it learns from is every transition that any search has seen
(``replay.py``, ``learner.py``). ``player.py`` plays with it like any other player; ``trainer.py`` trains
one network on many kernels and targets.

Needs the extra ``learn`` (PyTorch, safetensors); nothing outside this package imports it before it is used.
"""
