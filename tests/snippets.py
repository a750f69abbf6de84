"""Whole programs from the tree alone: declarations are worked out, so that tests stay short.

Lines that declare a buffer are kept. Every other array gets the shape that its subscripts reach;
an array that is never written is an input; one that is written and never read by a later
statement, or named in ``outputs``, is an output.
"""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from perfdojo_sdk.core.dialect import CORE_DIALECT, CORE_SUFFIXES, Dialect, Group, Location, ScopeSuffix
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rules, Step
from perfdojo_sdk.core.transformations import GENERIC

#: The core's language as a CPU target has it, with one location of each kind.
DIALECT = Dialect(
    {name: CORE_SUFFIXES[name] for name in "uptv"}
    | {
        "d": ScopeSuffix("d", "lockstep", "a group", groups=(Group(("bf16", "bf16"), "f32", 2, True),)),
        "l": ScopeSuffix("l", "sequential", "lanes of groups", around_groups=True),
    },
    {
        **CORE_DIALECT.locations,
        "reg": Location("reg", "named cells", shared=False, constant_subscripts=True, max_bytes=4096),
        "nt": Location("nt", "a window", shared=False, constant_subscripts=True, copy_out_only=True),
    },
    lanes={"f32": 16, "i64": 8},
    max_unroll=64,
    roundings=frozenset(("bf16", "tf32")),
)
RULES = Rules(DIALECT, GENERIC)

_DECLARATION = re.compile(r"^\w+ (table )?\w+ \[")
_ACCESS = re.compile(r"([A-Za-z]\w*)\[([^\[\]]*)\]")
_CLAMP = re.compile(r"clamp\([^()]*\)")


def program(tree: str, outputs: str = "", name: str = "test") -> Program:
    """The program with this tree; ``outputs`` lists further outputs, separated by blanks."""
    lines = [line.strip() if "|" not in line else line.lstrip() for line in tree.strip().splitlines()]
    declared = {line.split()[0]: line for line in lines if _DECLARATION.match(line)}
    body = [line for line in lines if not _DECLARATION.match(line) and line]
    shapes, written, read_last = _survey(body)
    shared = {a.strip() for line in declared.values() for a in line.partition("->")[2].split(",")}
    for array, shape in shapes.items():
        if array in shared:
            continue
        declared.setdefault(array, f"{array} f32 [{','.join(map(str, shape))}] heap")
    tables = {array for array, line in declared.items() if line.startswith(f"{array} table ")}
    inputs = [a for a in shapes if a not in written and a not in tables]
    results = [a for a in shapes if a in written and (a in outputs.split() or a not in read_last)]
    header = f"kernel {name}({', '.join(inputs)}) -> {', '.join(results)}"
    return parse("\n".join([header, *declared.values(), "", *body]), DIALECT)


def _survey(body: list[str]) -> tuple[dict[str, list[int]], set[str], set[str]]:
    """Shapes reached, arrays written, arrays read after their last write."""
    shapes: dict[str, list[int]] = {}
    written: set[str] = set()
    read_last: set[str] = set()
    stack: list[list[int]] = []
    for line in body:
        bars = len(re.match(r"[| ]*", line).group().replace(" ", ""))  # type: ignore[union-attr]
        text = line.lstrip("| ")
        sizes = re.match(r"(?:\d+(?::\w+)?(?: |$))*", text)
        assert sizes is not None
        here = [int(s.split(":")[0]) for s in sizes.group().split()]
        outer = [n for level in stack[:bars] for n in level]
        stack = [*stack[:bars], here]
        rest = text[sizes.end() :].partition(" if ")[0]
        if not rest:
            continue
        loops = outer + here
        target, found = rest.partition("[")[0], list[tuple[str, str]]()
        while matches := list(_ACCESS.finditer(rest)):  # run-time indices before what they choose
            found += [(m.group(1), m.group(2)) for m in matches]
            rest = _CLAMP.sub("0", _ACCESS.sub("0", rest))
        for array, subscripts in found:
            reach = [_reach(s, loops) + 1 for s in subscripts.split(",")] if subscripts else []
            old = shapes.setdefault(array, reach)
            shapes[array] = [max(a, b) for a, b in zip(old, reach, strict=True)]
        written.add(target)
        read_last |= {array for array, _ in found}
        read_last.discard(target)
    return shapes, written, read_last


def _reach(subscript: str, loops: list[int]) -> int:
    return max(eval(subscript.format(*point)) for point in ([0] * len(loops), [n - 1 for n in loops]))


def move(text: str) -> Move:
    """``name(place, key=value)`` as a move."""
    name, _, rest = text.partition("(")
    place, *arguments = [part.strip() for part in rest.rstrip(")").split(",")]
    parameters = dict(a.split("=") for a in arguments)
    return Move.of(name, place, **{k: int(v) if v.isdigit() else v for k, v in parameters.items()})


def play(start: Program, *moves: str, rules: Rules = RULES) -> Program:
    for text in moves:
        start = rules.step(start, move(text)).after
    return start


def refusal(start: Program, text: str, rules: Rules = RULES) -> str:
    """The code for which the move is refused; empty when it is legal."""
    result = rules.attempt(start, move(text))
    return "" if isinstance(result, Step) else result.code


def tree(of: Program) -> str:
    return of.tree_lines.rstrip("\n")


def like(program: Program, text: str) -> Program:
    """The program with this text and the ids of ``program``."""

    def named(new: Node, old: Node) -> Node:
        if isinstance(new, Statement):
            return new.named(old.id)
        assert isinstance(old, Scope)
        body = tuple(named(a, b) for a, b in zip(new.body, old.body, strict=True))
        return replace(new, body=body, id=old.id)

    parsed = parse(text, DIALECT)
    return parsed.with_body(tuple(named(a, b) for a, b in zip(parsed.body, program.body, strict=True)))


def random_filter(rng: Random) -> Program:
    """A filter somewhere in a nest: other loops around it and between its outputs and taps, in any order."""
    outer = [rng.randint(2, 4) for _ in range(rng.randint(0, 2))]
    inner = [("r", rng.randint(2, 4)) for _ in range(rng.randint(0, 2))]
    inner.insert(rng.randint(0, len(inner)), ("k", rng.choice((2, 3))))
    first = len(outer)
    sizes = [*outer, rng.choice((2, 3)), *(size for _, size in inner)]
    tap = first + 1 + [name for name, _ in inner].index("k")
    reduced = [level for level in range(first + 1, len(sizes)) if level != tap]
    around = [f"{{{level}}}" for level in range(first)]
    outputs = [*around, f"{{{first}}}"]
    data = [
        *(f"{{{level}}}" for level in reduced if rng.random() < 0.8),
        f"{{{first}}}+{{{tap}}}+{rng.randint(0, 2)}",
    ]
    data += [a for a in around if rng.random() < 0.5]
    taps = [f"{{{tap}}}", *(f"{{{level}}}" for level in reduced if rng.random() < 0.8)]
    taps += [a for a in around if rng.random() < 0.5]
    for subscripts in (outputs, data, taps):
        rng.shuffle(subscripts)
    factors = [f"x[{','.join(data)}]", f"w[{','.join(taps)}]"]
    rng.shuffle(factors)
    target = f"y[{','.join(outputs)}]"
    heads = " ".join(map(str, sizes[: first + 1])), " ".join(map(str, sizes))
    return program(
        f"{heads[0]} {target} = {rng.choice(('0', '1'))}\n{heads[1]} {target} += {' * '.join(factors)}"
    )


def random_sliding(rng: Random) -> Program:
    """The same with a function of the data, which slides over them."""
    return parse(re.sub(r"\bx\[[^]]*\]", r"exp(\g<0>)", random_filter(rng).text), DIALECT)
