"""A model on any machine where its target runs, is emulated or is simulated."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from perfdojo_sdk.library.by_runner import RunnerLibrary, open_library
from perfdojo_sdk.models.model import Model, open_model
from perfdojo_sdk.plugins import Plugins


def open_anywhere(directory: Path, plugins: Plugins | None = None) -> Model:
    """The model in ``directory``, as :func:`.load_model` opens it; where its code does not load in this
    process, the runner of its target runs one kernel after the other.

    ``plugins``: those of the target; by default the installed ones.
    """
    return open_model(directory, partial(open_library, plugins=plugins))


def device_of(model: Model) -> str:
    """The place where a runner runs the model's kernels; "" if this process has loaded them."""
    return model.library.device if isinstance(model.library, RunnerLibrary) else ""
