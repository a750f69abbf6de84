"""A library: verified kernels as sources, a header, a shared object and a manifest that describes them.

From text to shared object, control passes in one direction:

- :mod:`.build`: all kernels, one after the other; :mod:`.settings` and :mod:`.context` are its data.
- :mod:`.builder`: one kernel. :mod:`.tuning` lets a player propose games, and :mod:`.evaluation` answers with
  times; :mod:`.ranking` says which game is tried first, and :mod:`.suspicion` which times are not believed;
  :mod:`.accepting` verifies it (:mod:`.verification`) and records it.
- :mod:`.running`: calls of generator, compiler and runner, for all of these.
- :mod:`.existing`: the library that is in the folder already.
- :mod:`.package` and :mod:`.manifest`: the new library.

To use a library, :mod:`.loader` alone is enough.
"""
