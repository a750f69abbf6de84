"""The meanings of error codes; transformations document their own reasons for refusing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def entries() -> Mapping[str, Mapping[str, str]]:
    """Code -> ``title``, ``means``, ``try`` and, for some, ``example``."""
    import yaml

    text = files(__package__).joinpath("errors.yaml").read_text(encoding="utf-8")
    loaded: Mapping[str, Mapping[str, str]] = yaml.safe_load(text)
    return loaded
