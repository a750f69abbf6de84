"""Registration of the kernels with Gymnasium, by an import: an id for each operator on each target.

    import gymnasium, perfdojo_sdk.gym
    environment = gymnasium.make("PerfDojo/softmax-TARGET-v0", most_moves=32)

or at once, ``gymnasium.make("perfdojo_sdk.gym:PerfDojo/softmax-TARGET-v0")``. Any other kernel, at
any size and from any file: ``PerfDojo/Kernel-v0`` with ``kernel`` and ``target``. Nothing of a target is
imported before one of its environments is made.
"""

from __future__ import annotations

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "perfdojo_sdk.gym needs Gymnasium; try: pip install 'perfdojo-sdk[gym]'", name=error.name
    ) from None

from perfdojo_sdk.kernels.operators import OPERATORS
from perfdojo_sdk.plugins import installed

_ENTRY = "perfdojo_sdk.environment.gymnasium_env:KernelEnv"


def _register() -> None:
    gymnasium.register("PerfDojo/Kernel-v0", _ENTRY)
    for target in sorted({name for plugin in installed() for name in plugin.targets}):
        for operator in OPERATORS:
            options = {"kernel": operator.name, "target": target}
            gymnasium.register(f"PerfDojo/{operator.name}-{target}-v0", _ENTRY, kwargs=options)


_register()
