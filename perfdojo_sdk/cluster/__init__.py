"""Clusters of many machines, through Ray, which only this package imports.

A *driver* is the command that a person started. It keeps the records and does none of the work: whole
episodes (one search for one kernel, or one kernel of a build) run on the nodes, each next to the device that
it measures on, and send the driver their results as they find them.

- :mod:`.offers`: a node's devices and compilers, as names of Ray's resources.
- :mod:`.nodes`: starting and joining a cluster.
- :mod:`.equipment`: the same code on all nodes.
- :mod:`.connection`: a driver's connection, and the nodes to which it may give work.
- :mod:`.remote_builder`: the driver's side of an episode; a build uses it like the local builder.
- :mod:`.worker`: the node's side of an episode.
- :mod:`.training`: the driver's side of a training; :mod:`.actor` is the nodes' side.
"""
