"""The whole contract with vendors: hooks in :mod:`.specs`, the data they exchange in :mod:`.types`."""

from perfdojo_sdk.hookspecs.specs import API_VERSION, hookimpl

__all__ = ["API_VERSION", "hookimpl"]
