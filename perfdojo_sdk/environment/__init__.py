"""The game as an environment for agents: the native one, and Gymnasium's on top of it.

Nothing here is heavy; Gymnasium is imported by :mod:`perfdojo_sdk.environment.gymnasium_env` alone.
"""

from perfdojo_sdk.environment.clock import Clock, ModelClock, RunnerClock, Time
from perfdojo_sdk.environment.environment import Environment, Outcome, Policy, open_environment

__all__ = [
    "Clock",
    "Environment",
    "ModelClock",
    "Outcome",
    "Policy",
    "RunnerClock",
    "Time",
    "open_environment",
]
