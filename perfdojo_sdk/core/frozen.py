"""Frozen data that is quick to make: the moves of a game make hundreds of thousands a second.

:func:`frozen` is ``dataclass(frozen=True)`` with a constructor that writes the fields straight into
the instance's dictionary. :class:`lazy` is :class:`functools.cached_property` without the lock that
the latter takes on each first use in Python 3.11. :func:`seldom_collected` helps where many are kept.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any, Generic, TypeVar, dataclass_transform

T = TypeVar("T")

#: Thresholds of the garbage collector: the objects made and not freed before it looks at the youngest
#: generation, and the numbers of such looks before it looks at the next generation.
_SELDOM = (50_000, 20, 100)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Run the garbage collector less often, while many programs are made and kept.

    Reference counts free nearly everything that is no longer used. Looking for cycles in all that a search
    keeps took nearly half of a player's time.
    """
    before = gc.get_threshold()
    gc.set_threshold(*map(max, before, _SELDOM))
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A frozen dataclass. Defaults must be plain values or :func:`later`; there is no ``__post_init__``."""
    made: Any = dataclass(frozen=True)(cls)
    parameters, lines = ["self"], ["known_ = self.__dict__"]
    defaults: dict[str, object] = {}
    for each in fields(made):
        if each.default is MISSING:
            parameters.append(each.name)
        else:
            defaults[f"default_{each.name}"] = each.default
            parameters.append(f"{each.name}=default_{each.name}")
        lines.append(f"known_[{each.name!r}] = {each.name}")
    body = "".join(f"\n    {line}" for line in lines)
    # The names are those of the class body, as in the constructor that dataclass itself generates.
    exec(f"def __init__({', '.join(parameters)}):{body}", defaults)
    made.__init__ = defaults["__init__"]
    # Pickle the fields alone: no cached values, and no functions that compute a field when it is read.
    names = [each.name for each in fields(made)]
    made.__reduce__ = lambda self: (made, tuple([getattr(self, name) for name in names]))
    found: type[T] = made
    return found


class lazy(Generic[T]):
    """A cached property for frozen dataclasses: the value goes straight into the instance's dictionary."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> T:
        """Compute and keep the value; AttributeError if asked of the class, where the instance is None."""
        value = instance.__dict__[self.name] = self.compute(instance)
        return value


def maker(kind: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """A function that makes a named tuple from the plain tuple of its fields, twice as fast as its
    constructor."""
    make: Any = partial(tuple.__new__, kind)
    return make  # type: ignore[no-any-return]


def later(compute: Callable[[Any], T]) -> T:
    """A field that is worked out when it is first read, in instances that were made without it."""
    field: Any = lazy(compute)
    return field  # type: ignore[no-any-return]
