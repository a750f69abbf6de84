"""Many machines, through Ray, which nobody else imports.

A *driver* is the command that a person started. It keeps the records and does none of the work: whole
episodes (one search for one kernel, or one kernel of a build) run on the nodes, each beside the device that
it measures on, and tell the driver what they find as they find it.

- :mod:`.offers`: what a node has, as names of Ray's resources.
- :mod:`.nodes`: starting and joining a cluster.
- :mod:`.equipment`: the same code on all of them.
- :mod:`.connection`: a driver's way in, and whom it may give work.
- :mod:`.remote_builder`: the driver's side of an episode; to a build it is a builder like the local one.
- :mod:`.worker`: the node's side.
- :mod:`.training`: who plays for a training; :mod:`.actor` is what runs on the nodes then.
"""
