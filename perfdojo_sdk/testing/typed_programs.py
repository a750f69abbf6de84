"""Random programs over every dtype, on vectors: conversions, masks, and lanes whose conditions differ."""

from __future__ import annotations

from random import Random

from perfdojo_sdk.core.dialect import Dialect, Group, ScopeSuffix
from perfdojo_sdk.core.dtypes import (
    BYTES,
    CODED_DTYPES,
    COMPUTED_DTYPES,
    DTYPES,
    FLOAT_DTYPES,
    UNCOMPUTED_DTYPES,
    converts,
)
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse

#: Dtypes of the arrays; tf32 is for values on the way.
INTERFACE = tuple(dtype for dtype in DTYPES if dtype != "tf32")
#: Those of them that accumulate and are compared.
_COMPUTED = tuple(dtype for dtype in COMPUTED_DTYPES if dtype not in ("tf32", "bool"))
ROWS = 3
#: Columns: fewer than a vector's lanes, a vector, and more, with a rest.
COLUMNS = (3, 4, 8, 11, 16, 19)
_NUMBERS = ("{} + {}", "{} - {}", "{} * {}", "max({}, {})", "min({}, {})")
_BITS = ("and({}, {})", "or({}, {})", "xor({}, {})")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def has_all_vectors(dialect: Dialect) -> bool:
    """True if a target has vectors of every dtype, so that typed programs are programs of it."""
    lockstep = any(suffix.order == "lockstep" for suffix in dialect.suffixes.values())
    return lockstep and BYTES.keys() <= dialect.lanes.keys()


def typed_program(rng: Random, dialect: Dialect, statements: int = 4) -> Program:
    """A program of so many statements, most of them in lockstep, for a target that has all vectors.

    Its results do not depend on the order of lanes, to the bit: no floats are added up across lanes.
    """
    return _Writer(rng, dialect).program(statements)


def _counts_lanes(suffix: ScopeSuffix) -> bool:
    return suffix.around_groups


def _adds_up(suffix: ScopeSuffix) -> bool:
    return bool(suffix.groups)


class _Writer:
    def __init__(self, rng: Random, dialect: Dialect) -> None:
        self.rng, self.dialect = rng, dialect
        self.columns = rng.choice(COLUMNS)
        self.arrays = {f"x{k}": rng.choice(INTERFACE) for k in range(3)}
        self.outputs: list[str] = []
        self.used: set[str] = set()
        """Dtypes of what the statement in the making reads and converts to."""
        self.lines: list[str] = []
        self.shapes: dict[str, str] = {}
        """Shapes of arrays whose rows are no columns."""
        suffixes = dialect.suffixes.values()
        self.groups = [g for s in suffixes for g in s.groups if g.total not in FLOAT_DTYPES]
        self.words = [next((s.name for s in suffixes if has(s)), "") for has in (_counts_lanes, _adds_up)]

    def program(self, statements: int) -> Program:
        for _ in range(statements):
            grouped = [self.grouped] if self.groups else []
            self.rng.choice((self.plain, self.plain, self.update, self.across, *grouped))()
        inputs = [name for name in self.arrays if name not in self.outputs]
        shape = {
            name: f"{ROWS}" if name.startswith("s") else f"{ROWS},{self.columns}" for name in self.arrays
        } | self.shapes
        return parse(
            "\n".join(
                [
                    f"kernel typed({', '.join(inputs)}) -> {', '.join(self.outputs)}",
                    *(f"{name} {dtype} [{shape[name]}] heap" for name, dtype in self.arrays.items()),
                    "",
                    *self.lines,
                    "",
                ]
            ),
            self.dialect,
        )

    # -- statements ----------------------------------------------------------------------------------

    def plain(self) -> None:
        """Write every element of a new array."""
        dtype = self.rng.choice(INTERFACE)
        name = f"t{len(self.outputs)}"
        self.emit(name, dtype, "[{0},AT]", "=", condition=False)
        self.arrays[name] = dtype
        self.outputs.append(name)

    def update(self) -> None:
        """Change some elements of an array, under a condition."""
        if not (names := [name for name in self.outputs if name.startswith("t")]):
            return self.plain()
        name = self.rng.choice(names)
        dtype = self.arrays[name]
        signs = ["=", "max=", "min="] if dtype == "bool" else ["=", "+=", "*=", "max=", "min="]
        sign = self.rng.choice(signs[:1] if dtype in UNCOMPUTED_DTYPES else signs)
        self.emit(name, dtype, "[{0},AT]", sign, condition=True)
        return None

    def across(self) -> None:
        """Combine the elements of each row."""
        dtype = self.rng.choice(_COMPUTED)
        signs = ("max=", "min=") if dtype in FLOAT_DTYPES else ("+=", "*=", "max=", "min=")
        name = f"s{len(self.outputs)}"
        self.lines.append(f"{ROWS} {name}[{{0}}] = 1")
        self.emit(name, dtype, "[{0}]", self.rng.choice(signs), condition=self.rng.random() < 0.5)
        self.arrays[name] = dtype
        self.outputs.append(name)

    def grouped(self) -> None:
        """Add up products in groups; the factors belong to each lane, or to all of them."""
        group, number = self.rng.choice(self.groups), len(self.outputs)
        if group.tile:
            return self.tile(group, number)
        lanes = self.rng.randint(2, self.dialect.lanes[group.total])
        name, places = f"sum{number}", []
        self.shapes[name], self.arrays[name] = f"{ROWS},{lanes}", group.total
        for k, dtype in enumerate(group.factors):
            factor, own = f"f{number}_{k}", self.rng.random() < 0.5
            self.shapes[factor] = f"{ROWS},{lanes},{group.size}" if own else f"{ROWS},{group.size}"
            self.arrays[factor] = dtype
            places.append(f"{group.total}({factor}[{{0}},{'{1},{2}' if own else '{2}'}])")
        self.rng.shuffle(places)
        counts, adds = self.words
        self.lines.append(f"{ROWS} {lanes}:v {name}[{{0}},{{1}}] = {number}")
        scopes = f"{ROWS} {lanes}:{counts} {group.size}:{adds}"
        self.lines.append(f"{scopes} {name}[{{0}},{{1}}] += {' * '.join(places)}")
        self.outputs.append(name)
        return None

    def tile(self, group: Group, number: int) -> None:
        """Add up products of small matrices, a row of the one with each row of the other."""
        assert group.tile
        name, places = f"sum{number}", []
        self.shapes[name], self.arrays[name] = f"{ROWS},{group.tile[0]},{group.tile[1]}", group.total
        for k, dtype in enumerate(group.factors):
            factor = f"f{number}_{k}"
            self.shapes[factor], self.arrays[factor] = f"{ROWS},{group.tile[k]},{group.size}", dtype
            places.append(f"{group.total}({factor}[{{0}},{{{1 + k}}},{{3}}])")
        self.rng.shuffle(places)
        counts, adds = self.words
        rows, columns = group.tile
        self.lines.append(f"{ROWS} {rows} {columns}:v {name}[{{0}},{{1}},{{2}}] = {number}")
        scopes = f"{ROWS} {rows}:{counts} {columns}:{counts} {group.size}:{adds}"
        self.lines.append(f"{scopes} {name}[{{0}},{{1}},{{2}}] += {' * '.join(places)}")
        self.outputs.append(name)

    def emit(self, name: str, dtype: str, cell: str, sign: str, condition: bool) -> None:
        self.used = {dtype}
        value, guards = self.value(dtype, 2), []
        lanes = min(self.dialect.lanes[each] for each in self.used)
        at, scopes = "{1}", f"{self.columns}:v"
        if self.rng.random() < 0.1 or not lanes > 1:
            scopes = f"{self.columns}"
        elif self.columns > lanes:
            at, scopes = f"{{1}}*{lanes}+{{2}}", f"{-(-self.columns // lanes)} {lanes}:v"
            guards = [f"{at} < {self.columns}"] if self.columns % lanes else []
        if condition:
            low, high = sorted(self.rng.sample(range(self.columns + 1), 2))
            guards += self.rng.choice(
                ([f"{at} >= {low}"], [f"{at} < {high}"], [f"{at} >= {low}", f"{at} < {high}", "{0} >= 1"])
            )
        text = f"{ROWS} {scopes} {name}{cell} {sign} {value}"
        text += f" if {' and '.join(guards)}" if guards else ""
        self.lines.append(text.replace("AT", at))

    # -- values --------------------------------------------------------------------------------------

    def read(self, dtype: str) -> str:
        """An element as a value of ``dtype``."""
        whole = [name for name in self.arrays if not name.startswith("s") and name not in self.shapes]
        name = self.rng.choice(whole)
        found = self.arrays[name]
        row = self.rng.choice(("{0}", "{0}", f"{self.rng.randrange(ROWS)}"))
        place = f"{name}[{row},{self.rng.choice(('AT', 'AT', 'AT', '0'))}]"
        self.used |= {found, dtype}
        if found == dtype:
            return place
        if not converts(found, dtype):
            self.used.add("f32")
            return f"{dtype}(f32({place}))"
        if found in FLOAT_DTYPES and dtype in FLOAT_DTYPES and self.rng.random() < 0.2:
            self.used.add("tf32")
            return f"{dtype}(tf32({place}))" if found != "tf32" else f"{dtype}({place})"
        return f"{dtype}({place})"

    def value(self, dtype: str, depth: int) -> str:
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            return self.read(dtype)
        if dtype in UNCOMPUTED_DTYPES:
            source = rng.choice(FLOAT_DTYPES if dtype in CODED_DTYPES else _COMPUTED)
            self.used |= {source, dtype}
            return f"{dtype}({self.value(source, depth - 1)})"
        one, other = (self.value(dtype, depth - 1) for _ in range(2))
        choice = rng.random()
        if choice < 0.25:
            return f"select({self.condition(depth - 1)}, {one}, {other})"
        if dtype == "bool":
            return rng.choice((*_BITS, "max({}, {})")).format(one, other) if choice < 0.8 else f"not({one})"
        if choice < 0.35:
            return f"abs({one})" if rng.random() < 0.5 else f"-({one})"
        if choice < 0.45 and dtype not in FLOAT_DTYPES:
            return rng.choice(_BITS).format(one, other)
        if choice < 0.5 and dtype in FLOAT_DTYPES:
            return f"({one}) / ({other})" if rng.random() < 0.5 else f"sqrt(abs({one}))"
        return rng.choice(_NUMBERS).format(f"({one})", f"({other})")

    def condition(self, depth: int) -> str:
        dtype = self.rng.choice(_COMPUTED)
        if self.rng.random() < 0.2:
            return self.value("bool", depth)
        return f"{self.value(dtype, depth)} {self.rng.choice(_COMPARISONS)} {self.read(dtype)}"
