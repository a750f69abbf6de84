"""Which of several attempts wins, and how often the winner is timed."""

from __future__ import annotations

import pytest

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement
from perfdojo_sdk.library.attempts import Attempt
from perfdojo_sdk.library.ranking import PATIENCE, first_unbeaten, timed_again

GAME = Trace(parse("kernel copy(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = x[{0}]\n"))


def taking(*seconds: float) -> Attempt:
    measured = Measurement({}, seconds, "measured", "here", threads=1)
    return Attempt(GAME, artifact=Artifact("copy", (), (), "paper", b"", ""), measured=measured)


def test_who_is_slower_beyond_doubt_loses() -> None:
    slow, fast = taking(*[1.1] * 20), taking(*[1.0] * 20)
    assert first_unbeaten([slow, fast]) is fast


def test_the_earlier_of_two_that_are_level_wins() -> None:
    earlier, luckier = taking(*[1.0, 1.2] * 10), taking(*[1.05, 1.1] * 10)
    assert first_unbeaten([earlier, luckier]) is earlier
    assert first_unbeaten([luckier, earlier]) is luckier


def test_rounds_are_compared_where_levels_change() -> None:
    """Both fall on two levels, and the earlier is slower by a tenth on each."""
    weather = [1.0] * 10 + [2.0] * 11
    earlier, faster = taking(*[1.1 * w for w in weather]), taking(*weather)
    assert first_unbeaten([earlier, faster]) is faster


def test_who_ran_fewer_rounds_is_compared_over_those() -> None:
    slow, fast = taking(3.0, 3.0), taking(*[1.0] * 50)
    assert first_unbeaten([slow, fast]) is fast


def test_what_did_not_run_never_wins() -> None:
    failed, fine = Attempt(GAME, reason=Failure("runtime")), taking(1.0)
    assert first_unbeaten([failed, fine]) is fine
    assert first_unbeaten([failed]) is None and first_unbeaten([]) is None


@pytest.mark.parametrize(
    ("times", "kept", "runs"),
    [([1.0], 1.0, 1), ([4.0, 1.0], 1.0, 2), ([5.0, 4.0, 6.0, 5.0], 4.0, PATIENCE)],
    ids=["quiet", "busy once", "busy"],
)
def test_what_was_faster_at_first_is_timed_again(times: list[float], kept: float, runs: int) -> None:
    left = iter(times)

    def time(artifact: Artifact) -> Measurement | Failure:
        return Measurement({}, (next(left),), "measured", "here", threads=1)

    timed = timed_again(taking(1.0), time)
    assert timed.measured is not None and timed.measured.median == kept
    assert len(times) - len(list(left)) == runs
