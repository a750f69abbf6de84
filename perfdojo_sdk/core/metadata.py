"""A check of installed packages' metadata, which may be anything, before Pydantic reads it."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import entry_points

#: The environment variable of Pydantic that names its plugins to leave out.
VARIABLE = "PYDANTIC_DISABLE_PLUGINS"


@cache
def spare_pydantic() -> None:
    """Keep Pydantic from looking for plugins if the declarations of some package are no UTF-8 text.

    Pydantic reads those of all packages when its first model is made, and would fail. Call this before
    defining a model.
    """
    if VARIABLE in os.environ:
        return
    try:
        entry_points()
    except UnicodeDecodeError:
        os.environ[VARIABLE] = "__all__"
