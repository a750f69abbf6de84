"""``python -m perfdojo_sdk.cli`` is ``perfdojo-sdk``."""

from perfdojo_sdk.cli import main

main()
