"""The whole contract with vendors: hooks in :mod:`.specs`, the data that they exchange in :mod:`.types`.

Optional abilities of these objects stand in :mod:`.abilities`, what a plugin may import in :mod:`.imports`.
"""

from perfdojo_sdk.hookspecs.specs import API_VERSION, PROVISIONAL, hookimpl

__all__ = ["API_VERSION", "PROVISIONAL", "hookimpl"]
