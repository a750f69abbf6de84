"""A check of installed packages' metadata, which may be anything, before Pydantic reads it."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import entry_points

#: Of Pydantic: which of its own plugins are left out.
VARIABLE = "PYDANTIC_DISABLE_PLUGINS"


@cache
def spare_pydantic() -> None:
    """Let Pydantic look for no plugins where some package's declarations are no UTF-8 text.

    It reads those of all packages when its first model is made, and fails there. Who defines a model calls
    this before.
    """
    if VARIABLE in os.environ:
        return
    try:
        entry_points()
    except UnicodeDecodeError:
        os.environ[VARIABLE] = "__all__"
