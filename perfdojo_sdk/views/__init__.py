"""The views of a program: the same tree as text, as mathematics, as a graph, as code.

The text is the program's own (``Program.text``). The others are pure functions from a program to a
string, one file for each; the command ``show`` prints them.
"""
