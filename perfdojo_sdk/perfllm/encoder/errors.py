"""The error that encoders raise."""

from perfdojo_sdk.core.errors import DojoError


class EncoderError(DojoError):
    """An encoder cannot be read, or is none."""
