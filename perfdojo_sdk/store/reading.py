"""Readers of untrusted JSON and YAML as plain values, bounded in depth and in size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

#: Deepest nesting that is accepted.
MOST_DEPTH = 60
#: Most values in a YAML file, each counted as often as aliases repeat it.
MOST_VALUES = 100_000


def json_of(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError for anything else, however deep it is nested."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def yaml_of(text: str | bytes) -> Any:
    """The value of a YAML document; ValueError for anything else, and if aliases make it too large."""
    try:
        if _deepest(text) > MOST_DEPTH:
            raise ValueError(f"it is nested deeper than {MOST_DEPTH} levels")
        root = yaml.compose(text, yaml.SafeLoader)
        if root is None:
            return None
        if _count(root, {}) > MOST_VALUES:
            raise ValueError(f"with its aliases written out it has more than {MOST_VALUES} values")
        return _Constructor().construct_document(root)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except (AttributeError, LookupError, TypeError, OverflowError) as error:
        # For example, `!!bool perhaps`.
        raise ValueError(f"a value is not what its tag says ({error})") from None


class _Constructor(yaml.constructor.SafeConstructor):
    """A constructor of values from nodes that were composed before."""


def _deepest(text: str | bytes) -> int:
    """The nesting depth of a text, found without building anything; counting stops soon after the limit."""
    return max(_depths(text), default=0)


def _depths(text: str | bytes) -> Iterator[int]:
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            yield depth
            if depth > MOST_DEPTH:
                return
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values below a node, with aliases expanded; a node inside itself has too many."""
    found = known.get(id(node))
    if found is None:
        known[id(node)] = MOST_VALUES + 1  # its count if it is met again inside itself
        found = 1 + sum(_count(each, known) for each in _below(node))
        found = known[id(node)] = min(found, MOST_VALUES + 1)
    return found


def _below(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
