"""Other systems beside ours, each in a process of its own, on the same inputs, in turns.

They come with the extra ``bench``; nothing here imports one before its own process does.
"""
