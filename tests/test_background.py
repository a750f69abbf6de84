"""Work in a process of its own, however it ends."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest

from perfdojo_sdk.core.errors import NothingFoundError
from perfdojo_sdk.library.background import in_background, with_helpers
from perfdojo_sdk.measure.child import Forked
from perfdojo_sdk.measure.forked import in_fork


def test_work_beside_gives_its_result_or_is_done_here(tmp_path: Path) -> None:
    def elsewhere() -> int:
        return os.getpid()

    with in_background(elsewhere) as result:
        assert result() != os.getpid()

    def fails_elsewhere(here: int = os.getpid()) -> int:
        if os.getpid() != here:
            raise ValueError("not here")
        return here

    with in_background(fails_elsewhere) as result:
        assert result() == os.getpid()

    def fails() -> int:
        raise NothingFoundError("PD-K007", "in the middle")

    with in_background(fails) as result, pytest.raises(NothingFoundError, match="in the middle"):
        result()


def test_work_that_is_ended_at_any_time_never_comes_back(tmp_path: Path) -> None:
    """At whatever time it is ended, no copy of this process must continue."""
    here, mark = os.getpid(), tmp_path / "came back"
    for number in range(400):
        try:
            with in_background(os.getpid):
                time.sleep(number % 40 * 5e-5)
        except BaseException:
            if os.getpid() == here:
                raise
            mark.touch()
            os._exit(1)
    assert not mark.exists()


def test_helpers_take_their_part_and_each_item_is_taken_once(tmp_path: Path) -> None:
    def work(item: str) -> None:
        with open(tmp_path / item, "x", encoding="ascii") as mark:  # fails where it was taken before
            mark.write(str(os.getpid()))
        time.sleep(0.05)

    items = [f"item {number}" for number in range(12)]
    with with_helpers(work, items, helpers=2) as mine:
        for item in mine:
            work(item)
    by = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}
    assert by.keys() == {*items} and len({*by.values()}) == 3 and os.getpid() in by.values()


def test_without_helpers_all_is_done_here_in_order() -> None:
    taken: list[int] = []
    with with_helpers(taken.append, range(5000), helpers=0) as mine:
        taken.extend(mine)
    assert taken == [*range(5000)], "more than fit into the pipe"


def test_what_a_helper_fails_on_is_left_and_an_error_here_ends_helpers(tmp_path: Path) -> None:
    here = os.getpid()

    def fails_elsewhere(item: int) -> None:
        if os.getpid() != here:
            raise ValueError("not here")
        (tmp_path / str(item)).touch()
        time.sleep(0.05)

    with with_helpers(fails_elsewhere, range(8), helpers=1) as mine:
        for item in mine:
            fails_elsewhere(item)
    assert 7 <= len([*tmp_path.iterdir()]) <= 8

    begin = time.monotonic()
    with pytest.raises(NothingFoundError), with_helpers(lambda _: time.sleep(60), range(4), helpers=1):
        raise NothingFoundError("PD-K007", "in the middle")
    assert time.monotonic() - begin < 30


class Knot:
    """Part of a cycle, whose destructor leaves a mark if another process than its owner's runs it."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.owner, self.itself = mark, os.getpid(), self

    def __del__(self) -> None:
        if os.getpid() != self.owner:
            self.mark.touch()


@pytest.mark.parametrize("start", ["background", "fork", "child"])
def test_a_fork_destroys_nothing_of_its_parent(tmp_path: Path, start: str) -> None:
    """Objects of the parent may wait for threads that a fork does not have."""
    mark, begun = tmp_path / "destroyed", tmp_path / "begun"

    def collect() -> None:
        begun.touch()
        gc.collect()

    gc.disable()
    try:
        Knot(mark)
        if start == "background":
            with in_background(collect) as result:
                result()
        elif start == "fork":
            assert in_fork(lambda tell: collect(), 20).finished
        else:
            with (tmp_path / "said").open("wb") as said:
                child = Forked(collect, said.fileno(), ())
                while child.poll() is None:
                    time.sleep(0.01)
                assert child.end() == 0
    finally:
        gc.enable()
    assert begun.exists() and not mark.exists()


def test_an_interruption_ends_the_work_beside(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def forever() -> None:
        mark.write_text(str(os.getpid()))
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt), in_background(forever):
        while not mark.exists() or not mark.read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
