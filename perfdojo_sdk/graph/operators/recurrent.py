"""Recurrent layers, whole: one kernel for each direction, whose outermost loop is the time.

The products with all inputs come first, in one contraction; a step adds those with the state. Rows that have
ended (``lengths``) keep their state and give zeros; in the reverse direction they begin at their own end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.checks import lengths_within
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.operators.movement import concat, transpose
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Place, Writer, computed_in, number

Activation: TypeAlias = Callable[[str], str]


@dataclass(frozen=True)
class Layer:
    """The operands and choices of a recurrent layer. Arrays have one part for each direction."""

    x: Value
    """[time, batch, size]."""
    w: Value
    r: Value
    bias: Value | None
    lengths: Value | None
    state: Value | None
    cell: Value | None = None
    peepholes: Value | None = None
    hidden: int = 0
    reversed: tuple[bool, ...] = (False,)
    """For each direction, True if time runs backwards."""
    activations: Sequence[Sequence[Activation]] = field(default=())
    """For each direction, those of the kind of layer, in the standard's order."""
    clip: float | None = None
    coupled: bool = False
    """For an LSTM, the forget gate is one less the input gate."""
    reset_after: bool = False
    """For a GRU, the state is reset after its product and not before."""
    order: tuple[int, ...] = (0, 1, 2, 3)
    """The place in weights and biases of each gate as the standard counts them. In an RNN and a GRU the
    last gate is the last one in any order."""


def activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """An activation by the standard's name, in any case of letters."""

    def a(default: float) -> str:
        return number(default if alpha is None else alpha, "f32")

    def b(default: float) -> str:
        return number(default if beta is None else beta, "f32")

    known: dict[str, Activation] = {
        "sigmoid": lambda v: f"1 / (1 + exp(-({v})))",
        "tanh": lambda v: f"tanh({v})",
        "relu": lambda v: f"max({v}, 0)",
        "affine": lambda v: f"{a(1.0)} * ({v}) + {b(0.0)}",
        "leakyrelu": lambda v: f"select({v} < 0, {a(0.01)} * ({v}), {v})",
        "thresholdedrelu": lambda v: f"select({v} >= {a(1.0)}, {v}, 0)",
        "scaledtanh": lambda v: f"{a(1.0)} * tanh({b(1.0)} * ({v}))",
        "hardsigmoid": lambda v: f"max(0, min(1, {a(0.2)} * ({v}) + {b(0.5)}))",
        "elu": lambda v: f"select({v} < 0, {a(1.0)} * (exp({v}) - 1), {v})",
        "softsign": lambda v: f"({v}) / (1 + abs({v}))",
        "softplus": lambda v: f"max({v}, 0) + log(1 + exp(-abs({v})))",
    }
    if name.lower() not in known:
        raise Refused(Reason.CHOICE, f"the activation {ascii(name)[:40]}")
    return known[name.lower()]


def rnn(b: Builder, layer: Layer) -> list[Value]:
    """h = f(x w + h r + biases): all states, and the last."""
    return _directions(b, layer, 1, _Direction.rnn, "rnn")


def gru(b: Builder, layer: Layer) -> list[Value]:
    """Gated recurrent units: all states, and the last."""
    return _directions(b, layer, 3, _Direction.gru, "gru")


def lstm(b: Builder, layer: Layer) -> list[Value]:
    """Long short-term memory: all states, the last, and the last cell."""
    return _directions(b, layer, 4, _Direction.lstm, "lstm")


def _directions(
    b: Builder, layer: Layer, gates: int, step: Callable[[_Direction], None], name: str
) -> list[Value]:
    """The results of all directions: [time, direction, batch, hidden], and [direction, batch, hidden]."""
    _check(b, layer, gates)
    found = []
    for number_ in range(len(layer.reversed)):
        direction = _Direction(Writer(b, name), layer, gates, number_)
        step(direction)
        found.append(direction.done())
    time, batch, _ = layer.x.shape
    states = [b.view(each[0], (time, 1, batch, layer.hidden)) for each in found]
    lasts = [[b.view(v, (1, batch, layer.hidden)) for v in each[1:]] for each in found]
    return [concat(b, states, 1), *(concat(b, list(parts), 0) for parts in zip(*lasts, strict=True))]


def _check(b: Builder, layer: Layer, gates: int) -> None:
    directions, hidden = len(layer.reversed), layer.hidden
    given = [v for v in (layer.bias, layer.state, layer.cell, layer.peepholes) if v is not None]
    same_dtype(layer.x, layer.w, layer.r, *given)
    if layer.x.rank != 3 or not layer.x.elements:
        raise Malformed(f"a recurrent layer over {layer.x.text}")
    time, batch, size = layer.x.shape
    expected = [
        (layer.w, (directions, gates * hidden, size)),
        (layer.r, (directions, gates * hidden, hidden)),
        (layer.bias, (directions, 2 * gates * hidden)),
        (layer.state, (directions, batch, hidden)),
        (layer.cell, (directions, batch, hidden)),
        (layer.peepholes, (directions, 3 * hidden)),
        (layer.lengths, (batch,)),
    ]
    for value, shape in expected:
        if value is not None and value.shape != shape:
            raise Malformed(f"{value.text} in a recurrent layer", f"its shape has to be {list(shape)}")
    if layer.lengths is not None:
        lengths_within(b, layer.lengths, time)


class _Direction:
    """The program of one direction."""

    def __init__(self, k: Writer, layer: Layer, gates: int, direction: int) -> None:
        self.k, self.layer, self.gates, self.d = k, layer, gates, str(direction)
        self.time, self.batch, self.size = layer.x.shape
        self.hidden, self.kind = layer.hidden, computed_in(layer.x.dtype)
        self.t = affine(("{0}", -1), self.time - 1) if layer.reversed[direction] else "{0}"
        self.functions = layer.activations[direction]
        self.y = k.write((self.time, self.batch, self.hidden), layer.x.dtype)
        self.h = self._state(layer.state)
        self.cells: list[Place] = [self.h]

    def _state(self, initial: Value | None) -> Place:
        """A state, with its value before the first step."""
        state = self.k.local((self.batch, self.hidden), self.kind)
        text = self.k.read(initial).load([self.d, "{0}", "{1}"]) if initial is not None else "0"
        self.k.nest((self.batch, self.hidden), f"{state(['{0}', '{1}'])} = {text}")
        return state

    def _row(self, gate: int | str, unit: str) -> str:
        """The row of a gate's unit in weights."""
        if isinstance(gate, int):
            return affine((unit, 1), gate * self.hidden)
        return affine((gate, self.hidden), (unit, 1))

    def _bias(self, gate: int | str, unit: str, recurrent: bool) -> str:
        if self.layer.bias is None:
            return "0"
        place = self._row(gate, unit) + (f"+{self.gates * self.hidden}" if recurrent else "")
        return self.k.read(self.layer.bias).load([self.d, place])

    def _products(self, both: bool) -> Place:
        """Products of the gates' weights with all inputs: [time, batch, gate, hidden]. They begin with the
        biases of inputs, and with those of states too where ``both``."""
        shape = (self.time, self.batch, self.gates, self.hidden)
        found = self.k.local(shape, self.kind)
        x, w = self.k.read(self.layer.x), self.k.read(self.layer.w)
        at = ["{0}", "{1}", "{2}", "{3}"]
        start = self._bias("{2}", "{3}", False)
        if both and self.layer.bias is not None:
            start = f"{start} + {self._bias('{2}', '{3}', True)}"
        product = f"{x.load(['{0}', '{1}', '{4}'])} * {w.load([self.d, self._row('{2}', '{3}'), '{4}'])}"
        self.k.nest(shape, f"{found(at)} = {start}", ([self.size], f"{found(at)} += {product}"))
        return found

    def _clipped(self, text: str) -> str:
        if self.layer.clip is None:
            return text
        limit = number(self.layer.clip, "f32")
        return f"max(min({text}, {limit}), -{limit})"

    def _with_state(self, total: Place, start: str, gates: int) -> list[tuple[list[int], str]]:
        """Steps that set ``total`` [batch, gate, hidden] to ``start`` and the products with the state, of the
        first gates."""
        at = ["{1}", "{2}", "{3}"]
        r = self.k.read(self.layer.r)
        product = f"{self.h(['{1}', '{4}'])} * {r.load([self.d, self._row('{2}', '{3}'), '{4}'])}"
        sizes = [self.batch, gates, self.hidden]
        return [(sizes, f"{total(at)} = {start}"), ([*sizes, self.hidden], f"{total(at)} += {product}")]

    def _given(self, products: Place) -> str:
        """The product of an input, where a step adds that of the state."""
        return products([self.t, "{1}", "{2}", "{3}"])

    def _kept(self, state: Place, new: Place) -> tuple[list[int], str]:
        """A step that takes the new state, in rows that have not ended."""
        at = ["{1}", "{2}"]
        text = new(at)
        if self.layer.lengths is not None:
            text = f"select({self._alive()}, {text}, {state(at)})"
        return [self.batch, self.hidden], f"{state(at)} = {text}"

    def _alive(self) -> str:
        assert self.layer.lengths is not None
        length = self.k.read(self.layer.lengths)
        return f"{length(['{1}'])} > index({self.t})"

    def _written(self) -> tuple[list[int], str]:
        text = self.h(["{1}", "{2}"])
        if self.layer.lengths is not None:
            text = f"select({self._alive()}, {text}, 0)"
        return [self.batch, self.hidden], f"{self.y([self.t, '{1}', '{2}'])} = {self.y.store(text)}"

    # -- kinds of layers

    def rnn(self) -> None:
        products = self._products(both=True)
        total = self.k.local((self.batch, 1, self.hidden), self.kind)
        new = self.k.local((self.batch, self.hidden), self.kind)
        value = self.functions[0](self._clipped(total(["{1}", "0", "{2}"])))
        self.k.nest(
            (self.time,),
            *self._with_state(total, self._given(products), 1),
            ([self.batch, self.hidden], f"{new(['{1}', '{2}'])} = {value}"),
            self._kept(self.h, new),
            self._written(),
        )

    def gru(self) -> None:
        f, g = self.functions
        first, second = self.layer.order[:2]
        after = self.layer.reset_after
        products = self._products(both=not after)
        total = self.k.local((self.batch, 3 if after else 2, self.hidden), self.kind)
        update, reset, new = (self.k.local((self.batch, self.hidden), self.kind) for _ in range(3))
        at, sizes = ["{1}", "{2}"], [self.batch, self.hidden]

        def given(gate: int) -> str:
            return products([self.t, "{1}", str(gate), "{2}"])

        def gate(k: int) -> str:
            text = total(["{1}", str(k), "{2}"])
            return f(self._clipped(f"{given(k)} + {text}" if after else text))

        start = self._bias("{2}", "{3}", True) if after else self._given(products)
        steps = [
            *self._with_state(total, start, 3 if after else 2),
            (sizes, f"{update(at)} = {gate(first)}"),
            (sizes, f"{reset(at)} = {gate(second)}"),
        ]
        if after:
            candidate = f"{given(2)} + {reset(at)} * {total(['{1}', '2', '{2}'])}"
        else:
            part, r = self.k.local((self.batch, self.hidden), self.kind), self.k.read(self.layer.r)
            weight = r.load([self.d, self._row(2, "{2}"), "{3}"])
            product = f"{reset(['{1}', '{3}'])} * {self.h(['{1}', '{3}'])} * {weight}"
            steps.append((sizes, f"{part(at)} = {given(2)}"))
            steps.append(([*sizes, self.hidden], f"{part(at)} += {product}"))
            candidate = part(at)
        fresh = f"(1 - {update(at)}) * ({g(self._clipped(candidate))})"
        steps.append((sizes, f"{new(at)} = {fresh} + {update(at)} * {self.h(at)}"))
        self.k.nest((self.time,), *steps, self._kept(self.h, new), self._written())

    def lstm(self) -> None:
        f, g, h = self.functions
        cell = self._state(self.layer.cell)
        self.cells.append(cell)
        products = self._products(both=True)
        total = self.k.local((self.batch, 4, self.hidden), self.kind)
        one, forget, fresh, new = (self.k.local((self.batch, self.hidden), self.kind) for _ in range(4))
        at, sizes = ["{1}", "{2}"], [self.batch, self.hidden]

        def gate(k: int, peephole: int | None, state: Place) -> str:
            text = total(["{1}", str(self.layer.order[k]), "{2}"])
            if peephole is not None and self.layer.peepholes is not None:
                weight = self.k.read(self.layer.peepholes).load([self.d, self._row(peephole, "{2}")])
                text = f"{text} + {weight} * {state(at)}"
            return self._clipped(text)

        forgotten = f"1 - {one(at)}" if self.layer.coupled else f(gate(2, 2, cell))
        self.k.nest(
            (self.time,),
            *self._with_state(total, self._given(products), 4),
            (sizes, f"{one(at)} = {f(gate(0, 0, cell))}"),
            (sizes, f"{forget(at)} = {forgotten}"),
            (
                sizes,
                f"{fresh(at)} = {forget(at)} * {cell(at)} + {one(at)} * ({g(gate(3, None, cell))})",
            ),
            (sizes, f"{new(at)} = ({f(gate(1, 1, fresh))}) * ({h(self._clipped(fresh(at)))})"),
            self._kept(cell, fresh),
            self._kept(self.h, new),
            self._written(),
        )

    def done(self) -> list[Value]:
        """The values of all states, and of the last of each kind."""
        for state in self.cells:
            last = self.k.write((self.batch, self.hidden), self.layer.x.dtype)
            text = last.store(state(["{0}", "{1}"]))
            self.k.nest((self.batch, self.hidden), f"{last(['{0}', '{1}'])} = {text}")
        return list(self.k.done())


def batch_first(b: Builder, results: Sequence[Value]) -> list[Value]:
    """Results with the batch as the first dimension: [batch, time, direction, hidden] and
    [batch, direction, hidden]."""
    return [transpose(b, results[0], (2, 0, 1, 3)), *(transpose(b, v, (1, 0, 2)) for v in results[1:])]
