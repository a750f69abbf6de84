"""A library: verified kernels as sources, a header, a shared object and a manifest that tells how.

From text to shared object, control passes in one direction:

- :mod:`.build`: all kernels, one after the other; :mod:`.settings` and :mod:`.context` are its data.
- :mod:`.builder`: one kernel. :mod:`.tuning` lets a player propose games, and :mod:`.evaluation` answers with
  times; :mod:`.ranking` says which game is tried first, and :mod:`.suspicion` which times are not believed;
  :mod:`.accepting` has it verified (:mod:`.verification`) and records it.
- :mod:`.running`: generator, compiler and runner, as all of these call them.
- :mod:`.existing`: what a library there holds already; :mod:`.package` and :mod:`.manifest`: the new one.

Whoever uses a library needs :mod:`.loader` alone.
"""
