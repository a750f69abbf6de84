"""The rows of the table of operations, as macros in C for the numeric leg's headers: values and bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfdojo_sdk.core.operations import ENDS, OPERATIONS, WITHIN, Meaning


def rows_in_c(accuracy: Mapping[str, float]) -> Mapping[str, str]:
    """The macros that the headers of ``include/`` need for every dtype.

    Each macro applies its argument to every row of a kind. ``accuracy``: operation -> the error in ulp that a
    target states for it, which cannot exceed what the row allows; of one that it leaves out, the row's own.
    """

    def error(name: str, meaning: Meaning) -> str:
        return repr(float(min(accuracy.get(name, meaning.error), meaning.largest_error)))

    def value(name: str, meaning: Meaning) -> str:
        return f"{name}, {meaning.wide}"

    def bounded(name: str, meaning: Meaning) -> str:
        moved = "" if meaning.moved in (ENDS, WITHIN) else f"{meaning.moved}, "
        return f"{name}, {meaning.wide}, {moved}{error(name, meaning)}"

    def whole(name: str, meaning: Meaning) -> str:
        return f"{name}, {meaning.whole}"

    def rows(asked: Callable[[Meaning], object], arguments: Callable[[str, Meaning], str]) -> str:
        return " ".join(f"X({arguments(n, m)})" for n, m in OPERATIONS.items() if asked(m))

    by_hand = {n: m for n, m in OPERATIONS.items() if m.wide and not m.moved and m.error}
    return {
        "FUNCTIONS_OF_ONE(X)": rows(lambda m: m.wide and m.arity == 1, value),
        "FUNCTIONS_OF_TWO(X)": rows(lambda m: m.wide and m.arity == 2, value),
        "MONOTONE_FUNCTIONS(X)": rows(lambda m: m.moved == ENDS, bounded),
        "WITHIN_AN_INTERVAL(X)": rows(lambda m: m.moved == WITHIN, bounded),
        "MOVING_OF_ONE(X)": rows(lambda m: _bounded_in_c(m) and m.arity == 1, bounded),
        "MOVING_OF_TWO(X)": rows(lambda m: _bounded_in_c(m) and m.arity == 2, bounded),
        "WHOLE_OF_ONE(X)": rows(lambda m: m.whole and m.arity == 1, whole),
        "WHOLE_OF_TWO(X)": rows(lambda m: m.whole and m.arity == 2, whole),
        **{f"{name.upper()}_ULP": error(name, meaning) for name, meaning in by_hand.items()},
    }


def _bounded_in_c(meaning: Meaning) -> bool:
    return meaning.moved not in ("", ENDS, WITHIN)
