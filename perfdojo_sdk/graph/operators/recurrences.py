"""Recurrent layers: RNN, GRU and LSTM as one kernel a direction, whose outermost loop is time.

States are arrays of the kernel, [batch, hidden]; each step makes the gates of all units from the input and
the states, and then the new states. Units, gates and batches are independent within a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.operators.gathers import reverse_sequences
from perfdojo_sdk.graph.operators.movement import concat, cut
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.writer import Place, Writer, computed_in, is_float, number

#: A function of a number and of the constants alpha and beta, as text of the language.
Activation: TypeAlias = Callable[[str, str, str], str]

ACTIVATIONS: Mapping[str, tuple[Activation, float, float]] = {
    "relu": (lambda x, a, b: f"max({x}, 0)", 0.0, 0.0),
    "tanh": (lambda x, a, b: f"tanh({x})", 0.0, 0.0),
    "sigmoid": (lambda x, a, b: f"sigmoid({x})", 0.0, 0.0),
    "affine": (lambda x, a, b: f"({x}) * {a} + {b}", 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: f"select(({x}) < 0, ({x}) * {a}, {x})", 0.01, 0.0),
    "thresholdedrelu": (lambda x, a, b: f"select(({x}) >= {a}, {x}, 0)", 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: f"tanh(({x}) * {b}) * {a}", 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: f"max(min(({x}) * {a} + {b}, 1), 0)", 0.2, 0.5),
    "elu": (lambda x, a, b: f"select(({x}) < 0, (exp({x}) - 1) * {a}, {x})", 1.0, 0.0),
    "softsign": (lambda x, a, b: f"({x}) / (abs({x}) + 1)", 0.0, 0.0),
    "softplus": (lambda x, a, b: f"max({x}, 0) + log(exp(-abs({x})) + 1)", 0.0, 0.0),
}
"""Name -> the function, and the alpha and beta that it has unless others are given."""

#: Kind of layer -> its number of gates, and the activations that it has unless others are given.
KINDS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "RNN": (1, ("tanh",)),
    "GRU": (3, ("sigmoid", "tanh")),
    "LSTM": (4, ("sigmoid", "tanh", "tanh")),
}


@dataclass(frozen=True)
class Layer:
    """The attributes of a recurrent layer."""

    kind: str
    direction: str = "forward"
    activations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clip: float | None = None
    input_forget: bool = False
    linear_before_reset: bool = False

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @property
    def functions(self) -> tuple[tuple[Callable[[str], str], ...], ...]:
        """For each direction its activations, which clip what they are given."""
        usual = KINDS[self.kind][1]
        names = [each.lower() for each in self.activations or usual * self.directions]
        if len(names) < len(usual) * self.directions:
            raise Malformed(f"{self.kind} with {len(names)} activations")
        names = names[: len(usual) * self.directions]  # defaults are those of two directions
        if unknown := next((name for name in names if name not in ACTIVATIONS), ""):
            raise Refused(Reason.CHOICE, f"the activation {ascii(unknown)[:40]}")
        found = []
        # Constants are listed for the functions that take some, in their order.
        alphas, betas = list(self.alphas), list(self.betas)
        for name in names:
            function, alpha, beta = ACTIVATIONS[name]
            takes = name not in ("relu", "tanh", "sigmoid", "softsign", "softplus")
            alpha = alphas.pop(0) if takes and alphas else alpha
            beta = betas.pop(0) if name in ("affine", "scaledtanh", "hardsigmoid") and betas else beta
            found.append(self._clipped(function, alpha, beta))
        return tuple(tuple(found[k : k + len(usual)]) for k in range(0, len(found), len(usual)))

    def _clipped(self, function: Activation, alpha: float, beta: float) -> Callable[[str], str]:
        a, b = number(alpha, "f64"), number(beta, "f64")
        if self.clip is None:
            return lambda x: function(x, a, b)
        most = number(self.clip, "f64")
        return lambda x: function(f"max(min({x}, {most}), -{most})", a, b)


def recurrent(
    b: Builder,
    layer: Layer,
    x: Value,
    weights: Value,
    recurrence: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    states: Sequence[Value | None] = (None, None),
    peepholes: Value | None = None,
) -> tuple[Value, Value, Value | None]:
    """All outputs [time, direction, batch, hidden], the last hidden states [direction, batch, hidden] and, of
    an LSTM, the last cell states. ``x`` is [time, batch, input]; the others are as the standard has them."""
    gates, hidden, count = KINDS[layer.kind][0], recurrence.shape[-1], layer.directions
    dtype = same_dtype(*[v for v in (x, weights, recurrence, bias, *states, peepholes) if v is not None])
    if not is_float(dtype) or x.rank != 3 or 0 in (*x.shape, hidden):
        raise Malformed(f"{layer.kind} of {x.text}")
    time, batch, size = x.shape
    expected = {
        "W": (weights, (count, gates * hidden, size)),
        "R": (recurrence, (count, gates * hidden, hidden)),
        "B": (bias, (count, 2 * gates * hidden)),
        "sequence_lens": (lengths, (batch,)),
        "initial_h": (states[0], (count, batch, hidden)),
        "initial_c": (states[1], (count, batch, hidden)),
        "P": (peepholes, (count, 3 * hidden)),
    }
    for name, (value, shape) in expected.items():
        if value is not None and value.shape != shape:
            raise Malformed(f"{name} of {layer.kind} is {value.text}, not {list(shape)}")
    if layer.direction not in ("forward", "reverse", "bidirectional"):
        raise Malformed(f"the direction {ascii(layer.direction)[:40]}")
    found = []
    for k, functions in enumerate(layer.functions):
        backward = layer.direction == "reverse" or k == 1
        mine = [None if v is None else _of(b, v, k) for v in (weights, recurrence, bias, *states, peepholes)]
        steps = _turned(b, x, lengths) if backward else x
        y, h, c = _Direction(b, layer, functions, steps, lengths, mine).kernel()
        found.append((_turned(b, y, lengths) if backward else y, h, c))
    ys = concat(b, [b.view(y, (time, 1, batch, hidden)) for y, _, _ in found], 1)
    hs = concat(b, [b.view(h, (1, batch, hidden)) for _, h, _ in found], 0)
    cs = [b.view(c, (1, batch, hidden)) for _, _, c in found if c is not None]
    return ys, hs, concat(b, cs, 0) if cs else None


def _of(b: Builder, value: Value, k: int) -> Value:
    """The part of one direction."""
    rest = value.shape[1:]
    part = cut(b, value, [k] + [0] * len(rest), [1] * value.rank, (1, *rest))
    return b.view(part, rest)


def _turned(b: Builder, x: Value, lengths: Value | None) -> Value:
    """Each sequence from its end."""
    if lengths is not None:
        return reverse_sequences(b, x, lengths, 1, 0)
    return cut(b, x, [x.shape[0] - 1, 0, 0], [-1, 1, 1], x.shape)


class _Direction:
    """One direction of a layer, as a kernel: ``{0}`` is time, ``{1}`` the batch, ``{2}`` the unit."""

    def __init__(
        self,
        b: Builder,
        layer: Layer,
        functions: tuple[Callable[[str], str], ...],
        x: Value,
        lengths: Value | None,
        parts: Sequence[Value | None],
    ) -> None:
        self.layer, self.functions = layer, functions
        self.k = k = Writer(b, layer.kind.lower())
        self.x, weights, recurrence = k.read(x), parts[0], parts[1]
        assert weights is not None and recurrence is not None
        self.w, self.r = k.read(weights), k.read(recurrence)
        self.bias, h, c, self.p = [None if v is None else k.read(v) for v in parts[2:]]
        self.given = (h, c)
        self.lengths = None if lengths is None else k.read(lengths)
        self.time, self.batch, self.size = x.shape
        self.hidden, self.gates = recurrence.shape[-1], KINDS[layer.kind][0]
        kind = computed_in(x.dtype)
        self.units = (self.batch, self.hidden)
        self.y = k.write((self.time, *self.units), x.dtype)
        self.last_h = k.write(self.units, x.dtype)
        self.last_c = k.write(self.units, x.dtype) if layer.kind == "LSTM" else None
        self.h, self.c, self.new = (k.local(self.units, kind) for _ in range(3))
        self.gate = k.local((self.gates, *self.units), kind)
        self.apart = k.local(self.units, kind)
        self.steps: list[tuple[Sequence[int], str]] = []

    def kernel(self) -> tuple[Value, Value, Value | None]:
        here = ["{0}", "{1}"]
        states = (self.h, self.c) if self.last_c else (self.h,)
        for state, given in zip(states, self.given, strict=False):
            self.k.nest(self.units, f"{state(here)} = {given.load(here) if given else '0'}")
        {"RNN": self.rnn, "GRU": self.gru, "LSTM": self.lstm}[self.layer.kind]()
        self.k.nest((self.time,), *self.steps)
        self.k.nest(self.units, f"{self.last_h(here)} = {self.last_h.store(self.h(here))}")
        if self.last_c is None:
            y, last = self.k.done()
            return y, last, None
        self.k.nest(self.units, f"{self.last_c(here)} = {self.last_c.store(self.c(here))}")
        y, last, cell = self.k.done()
        return y, last, cell

    # -- pieces of a step

    def step(self, text: str, *sizes: int) -> None:
        self.steps.append((sizes, text))

    def biases(self, gate: str, both: bool = True) -> str:
        """The bias of a gate's input, and of its state, too."""
        if self.bias is None:
            return "0"
        own = self.bias.load([f"{gate}+{{2}}"])
        state = self.bias.load([f"{gate}+{{2}}+{self.gates * self.hidden}"])
        return f"{own} + {state}" if both else own

    def sums(self, gate: int, both: bool = True) -> None:
        """Sum up one gate of all units: bias, input and, if ``both``, state."""
        target, first = self.gate([gate, "{1}", "{2}"]), gate * self.hidden
        self.step(f"{target} = {self.biases(str(first), both)}", *self.units)
        x, w = self.x.load(["{0}", "{1}", "{3}"]), self.w.load([f"{{2}}+{first}", "{3}"])
        self.step(f"{target} += {x} * {w}", *self.units, self.size)
        if both:
            self.states(target, gate, self.h(["{1}", "{3}"]))

    def states(self, target: str, gate: int, state: str) -> None:
        """Add the states' part of a gate."""
        r = self.r.load([f"{{2}}+{gate * self.hidden}", "{3}"])
        self.step(f"{target} += {state} * {r}", *self.units, self.hidden)

    def keep(self, state: Place, new: str) -> None:
        """Let a state be ``new``, or what it was in sequences that have ended."""
        at = ["{1}", "{2}"]
        if self.lengths is not None:
            new = f"select({{0}} < {self.lengths(['{1}'])}, {new}, {state(at)})"
        self.step(f"{state(at)} = {new}", *self.units)

    def give(self) -> None:
        """Write the output of the step: the hidden state, or 0 in sequences that have ended."""
        value = self.h(["{1}", "{2}"])
        if self.lengths is not None:
            value = f"select({{0}} < {self.lengths(['{1}'])}, {value}, 0)"
        self.step(f"{self.y(['{0}', '{1}', '{2}'])} = {self.y.store(value)}", *self.units)

    # -- the layers

    def rnn(self) -> None:
        (f,) = self.functions
        self.sums(0)
        self.keep(self.h, f(self.gate([0, "{1}", "{2}"])))
        self.give()

    def gru(self) -> None:
        f, g = self.functions
        at = ["{1}", "{2}"]
        update, reset, hidden = (self.gate([k, *at]) for k in range(3))
        for gate in (0, 1):
            self.sums(gate)
        self.step(f"{update} = {f(update)}", *self.units)
        self.step(f"{reset} = {f(reset)}", *self.units)
        linear = self.layer.linear_before_reset
        self.sums(2, both=False)
        bias = "0"
        if self.bias is not None:
            bias = self.bias.load([f"{{2}}+{(self.gates + 2) * self.hidden}"])
        if linear:
            self.step(f"{self.apart(at)} = {bias}", *self.units)
            self.states(self.apart(at), 2, self.h(["{1}", "{3}"]))
            self.step(f"{hidden} += {reset} * {self.apart(at)}", *self.units)
        else:
            self.step(f"{self.apart(at)} = {reset} * {self.h(at)}", *self.units)
            self.step(f"{hidden} += {bias}", *self.units)
            self.states(hidden, 2, self.apart(["{1}", "{3}"]))
        self.step(f"{self.new(at)} = (1 - {update}) * {g(hidden)} + {update} * {self.h(at)}", *self.units)
        self.keep(self.h, self.new(at))
        self.give()

    def lstm(self) -> None:
        f, g, h = self.functions
        at = ["{1}", "{2}"]
        into, out, forget, cell = (self.gate([k, *at]) for k in range(4))
        for gate in range(4):
            self.sums(gate)
        self.step(f"{into} = {f(into + self.peephole(0, self.c(at)))}", *self.units)
        kept = f"1 - {into}" if self.layer.input_forget else f(forget + self.peephole(2, self.c(at)))
        self.step(f"{forget} = {kept}", *self.units)
        self.step(f"{self.apart(at)} = {forget} * {self.c(at)} + {into} * {g(cell)}", *self.units)
        self.step(f"{out} = {f(out + self.peephole(1, self.apart(at)))}", *self.units)
        self.keep(self.c, self.apart(at))
        self.step(f"{self.new(at)} = {out} * {h(self.apart(at))}", *self.units)
        self.keep(self.h, self.new(at))
        self.give()

    def peephole(self, gate: int, cell: str) -> str:
        """A gate's look at the cell state."""
        return "" if self.p is None else f" + {self.p.load([f'{{2}}+{gate * self.hidden}'])} * {cell}"
