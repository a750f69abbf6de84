"""Steps of optimisers: element by element, with a learning rate and a number of steps that are data."""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.writer import Place, Writer, converted, is_float, levels, number


@dataclass(frozen=True)
class Step:
    """The numbers that all parameters of a step share."""

    rate: Value
    count: Value
    """The number of steps that were done before."""
    norm: float = 0.0
    """Coefficient of the parameter in its regularised gradient."""


class _Update:
    """A kernel that updates one parameter and its state."""

    def __init__(self, b: Builder, name: str, step: Step, *values: Value) -> None:
        self.dtype = same_dtype(*values)
        if not is_float(self.dtype) or len({v.shape for v in values}) > 1:
            raise Malformed(f"a step of {' and '.join(v.text for v in values)}")
        if step.rate.elements != 1 or step.count.elements != 1 or not is_float(step.rate.dtype):
            raise Malformed(f"a rate of {step.rate.text} after {step.count.text} steps")
        self.k, self.shape, self.names = Writer(b, name), values[0].shape, levels(values[0].rank)
        rate, count = self.k.read(b.view(step.rate, ())), self.k.read(b.view(step.count, ()))
        self.rate = converted(rate([]), step.rate.dtype, self.dtype)
        self.count = converted(count([]), step.count.dtype, self.dtype)
        self.parameter, self.gradient, *rest = (self.k.read(v)(self.names) for v in values)
        self.state = tuple(rest)
        self.regularised = f"({self.number(step.norm)} * {self.parameter} + {self.gradient})"

    @staticmethod
    def number(value: float) -> str:
        return number(value, "f32")

    def write(self, place: Place, text: str) -> str:
        self.k.nest(self.shape, f"{place(self.names)} = {text}")
        return place(self.names)

    def kept(self, text: str) -> str:
        """A temporary of the parameter's shape."""
        return self.write(self.k.local(self.shape, self.dtype), text)


def adagrad(
    b: Builder, step: Step, x: Value, gradient: Value, squares: Value, decay: float, epsilon: float
) -> tuple[Value, Value]:
    """The parameter and the sum of squares of its gradients."""
    u = _Update(b, "adagrad", step, x, gradient, squares)
    new, total = u.k.write(u.shape, u.dtype), u.k.write(u.shape, u.dtype)
    g = u.kept(u.regularised)
    h = u.kept(f"{u.state[0]} + {g} * {g}")
    rate = f"({u.rate} / (1 + {u.count} * {u.number(decay)}))"
    u.write(total, h)
    u.write(new, f"{u.parameter} - {rate} * {g} / (sqrt({h}) + {u.number(epsilon)})")
    made = u.k.done()
    return made[0], made[1]


@dataclass(frozen=True)
class Moments:
    """The attributes of Adam."""

    alpha: float
    beta: float
    epsilon: float
    norm_after: float
    """The part of the new parameter that is taken off."""


def adam(
    b: Builder, step: Step, x: Value, gradient: Value, first: Value, second: Value, how: Moments
) -> tuple[Value, Value, Value]:
    """The parameter and the running means of its gradients and their squares."""
    u = _Update(b, "adam", step, x, gradient, first, second)
    outputs = [u.k.write(u.shape, u.dtype) for _ in range(3)]
    alpha, beta = u.number(how.alpha), u.number(how.beta)
    g = u.kept(u.regularised)
    v = u.kept(f"{alpha} * {u.state[0]} + (1 - {alpha}) * {g}")
    h = u.kept(f"{beta} * {u.state[1]} + (1 - {beta}) * ({g} * {g})")
    corrected = f"{u.rate} * sqrt(1 - pow({beta}, {u.count})) / (1 - pow({alpha}, {u.count}))"
    rate = f"select({u.count} > 0, {corrected}, {u.rate})"
    moved = f"{u.parameter} - {rate} * ({v} / (sqrt({h}) + {u.number(how.epsilon)}))"
    u.write(outputs[0], f"(1 - {u.number(how.norm_after)}) * ({moved})")
    u.write(outputs[1], v)
    u.write(outputs[2], h)
    made = u.k.done()
    return made[0], made[1], made[2]


def momentum(
    b: Builder, step: Step, x: Value, gradient: Value, speed: Value, alpha: float, beta: float, nesterov: bool
) -> tuple[Value, Value]:
    """The parameter and its momentum."""
    u = _Update(b, "momentum", step, x, gradient, speed)
    new, kept = u.k.write(u.shape, u.dtype), u.k.write(u.shape, u.dtype)
    g = u.kept(u.regularised)
    v = u.kept(f"{u.number(alpha)} * {u.state[0]} + select({u.count} > 0, {u.number(beta)}, 1) * {g}")
    u.write(kept, v)
    u.write(new, f"{u.parameter} - {u.rate} * {f'({g} + {u.number(alpha)} * {v})' if nesterov else v}")
    made = u.k.done()
    return made[0], made[1]
