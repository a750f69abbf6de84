"""One problem of KernelBench through ``torch.compile(backend="perfdojo")``, beside eager PyTorch.

The reference is PyTorch in f64 on the same numbers. A result is right if its error is at most 2e-5 of the
largest value, or 8 times that of eager PyTorch in the dtype of the model, whichever is more. As a process:
``python -m perfdojo_sdk.frontends.torch.kernelbench FILE RESULT OPTIONS [inductor]``; the last word adds the
time of PyTorch's own compiler.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import write_whole
from perfdojo_sdk.frontends.torch.backend import perfdojo, workshop_for
from perfdojo_sdk.frontends.torch.compiling import choices
from perfdojo_sdk.frontends.torch.modules import problem
from perfdojo_sdk.frontends.torch.report import report

#: Error of a right result: part of the largest value, and times the error of eager PyTorch.
PART, TIMES = 2e-5, 8.0
#: Time for the timed calls of each of the two, and the most of them.
TIMED_S, MOST_CALLS = 0.5, 200


@dataclass(frozen=True)
class Outcome:
    """The result of one problem."""

    status: str
    """``right``, ``wrong``, ``elsewhere`` (right, with calls that PyTorch ran) or ``failed``."""
    error: float = 0.0
    """The largest error as a part of what is allowed."""
    kernels: int = 0
    built: int = 0
    """Kernels that were not in the cache."""
    elsewhere: tuple[str, ...] = ()
    eager_s: float | None = None
    ours_s: float | None = None
    """Medians of measured calls, in turns; None where kernels are interpreted, or nothing ran."""
    inductor_s: float | None = None
    """The same of ``torch.compile`` as PyTorch has it, if it was asked for and can."""
    compile_s: float | None = None
    what: str = ""
    """The fault, in words."""


def flat(found: Any) -> list[Any]:
    """The tensors of a result, in their order."""
    if isinstance(found, dict):
        return [each for part in found.values() for each in flat(part)]
    return [each for part in found for each in flat(part)] if isinstance(found, list | tuple) else [found]


def excess(ours: Any, eager: Any, exact: Any) -> float:
    """The error of a result as a part of what is allowed; 1 or less is right."""
    if not isinstance(ours, Tensor):
        return 0.0 if ours == eager else float("inf")
    if ours.shape != eager.shape or ours.dtype != eager.dtype:
        return float("inf")
    if not ours.is_floating_point():
        return 0.0 if torch.equal(ours, eager) else float("inf")
    ours, eager, exact = ours.double(), eager.double(), exact.double()
    odd = ~exact.isfinite() | ~eager.isfinite()
    if (
        not torch.equal(ours[odd].nan_to_num(1.25), eager[odd].nan_to_num(1.25))
        or not ours[~odd].isfinite().all()
    ):
        return float("inf")
    ours, eager, exact = ours[~odd], eager[~odd], exact[~odd]
    if not ours.numel():
        return 0.0
    allowed = max(PART * float(exact.abs().max()), TIMES * float((eager - exact).abs().max()))
    found = float((ours - exact).abs().max())
    return found / allowed if allowed else (0.0 if found == 0 else float("inf"))


def run(path: Path, options: dict[str, Any], inductor: bool = False) -> Outcome:
    """Run one problem. ``options``: those of the backend. ``inductor``: time PyTorch's own compiler too.
    Nothing is timed where kernels are interpreted: that says nothing of their speed."""
    torch.set_num_threads(int(options.get("threads") or 1))
    found = problem(path)
    model = found.model
    inputs = list(found.draw())
    with torch.no_grad():
        # Each run has a copy of its own: a module may keep a state from call to call.
        expected = flat(copy.deepcopy(model)(*_copied(inputs)))
        exact = flat(widened(copy.deepcopy(model))(*_each(inputs, _wide)))
        chosen = choices(options)
        shop = None if chosen.interpret else workshop_for(chosen)
        before = shop.built if shop else 0
        begin = time.perf_counter()
        compiled = torch.compile(copy.deepcopy(model), backend="perfdojo", options=options)
        results = flat(compiled(*_copied(inputs)))
        spent = time.perf_counter() - begin
        made = report(compiled)
        between = outside(compiled, _copied(inputs))
        error = max((excess(*each) for each in zip(results, expected, exact, strict=True)), default=0.0)
        calls: list[Callable[..., Any]] = [model, compiled]
        if inductor:
            rival = torch.compile(copy.deepcopy(model))
            with suppress(Exception):  # what it cannot compile, it does not race
                rival(*_copied(inputs))
                calls.append(rival)
        times: list[float] = []
        if not chosen.interpret:
            times = [spent, *_timed([partial(call, *inputs) for call in calls])]
    elsewhere = [e.text for g in made.graphs for e in g.elsewhere] + [g.whole for g in made.graphs if g.whole]
    if between and (made.breaks or not elsewhere):  # a break counts where PyTorch computes something
        elsewhere.append(f"{', '.join(between)}: outside of the graphs that Dynamo found")
        elsewhere += [each.text for each in made.breaks]
    status = "wrong" if error > 1 else "elsewhere" if elsewhere else "right"
    kernels = sum(len(g.kernels) for g in made.graphs)
    built = shop.built - before if shop else 0
    compile_s, eager_s, ours_s, inductor_s = (*times, None, None, None, None)[:4]
    return Outcome(status, error, kernels, built, tuple(elsewhere), eager_s, ours_s, inductor_s, compile_s)


#: Operators that compute nothing: they make tensors, copies and views.
_NO_ARITHMETIC = (
    "alias as_strided as_strided_ chunk clone contiguous copy_ detach detach_ empty empty_like empty_strided "
    "expand expand_as fill_ flatten is_same_size lift_fresh movedim narrow permute reshape _reshape_alias "
    "resize_ resolve_conj resolve_neg result_type select set_ slice split split_with_sizes squeeze swapaxes "
    "t to _to_copy transpose unbind unflatten unfold unsafe_split _unsafe_view unsqueeze view view_as "
    "zero_ zeros"
)


def outside(compiled: Callable[..., Any], inputs: Sequence[Any]) -> tuple[str, ...]:
    """The operators that PyTorch computes in one call of a compiled module, whoever asks for them.

    Dynamo runs what it cannot capture between its graphs, where no backend learns of it.
    """
    with torch.autograd.profiler.profile() as seen:
        compiled(*inputs)
    called = (event.name for event in seen.function_events if event.name.startswith("aten::"))
    names, plain = (name.removeprefix("aten::") for name in called), _NO_ARITHMETIC.split()
    return tuple(dict.fromkeys(name for name in names if name not in plain))


def widened(model: torch.nn.Module) -> torch.nn.Module:
    """The module in f64, with tensors that it holds as plain attributes."""
    for part in model.double().modules():
        for name, value in vars(part).items():
            if name not in _OWN:
                vars(part)[name] = _each(value, _wide)
    return model


#: Attributes in which modules of PyTorch keep parts, parameters and buffers; these follow ``double()``.
_OWN = frozenset({"_parameters", "_buffers", "_modules"})


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with its tensors changed, those in lists and tuples as well."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_each(each, change) for each in value)
    return value


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def _copied(value: Any) -> Any:
    return _each(value, Tensor.clone)


def _timed(functions: Sequence[Callable[[], Any]]) -> list[float]:
    """Medians of the functions' times, called in turns."""
    times: list[list[float]] = [[] for _ in functions]
    end = time.perf_counter() + TIMED_S * len(functions)
    while len(times[0]) < MOST_CALLS and (time.perf_counter() < end or len(times[0]) < 3):
        for kept, function in zip(times, functions, strict=True):
            begin = time.perf_counter()
            function()
            kept.append(time.perf_counter() - begin)
    return [median(kept) for kept in times]


def main(arguments: Sequence[str]) -> None:
    """Run the problem in ``arguments[0]`` and write its outcome to ``arguments[1]``."""
    path, result, options = Path(arguments[0]), Path(arguments[1]), json.loads(arguments[2])
    assert perfdojo is not None, "the backend is registered by its entry point"
    try:
        outcome = run(path, options, "inductor" in arguments[3:])
    except DojoError as error:
        outcome = Outcome("failed", what=f"{error.what}" + (f": {error.why}" if error.why else ""))
    except Exception as error:  # the user's code, or PyTorch's
        outcome = Outcome("failed", what=f"{type(error).__name__}: {str(error)[:2000]}")
    write_whole(result, json.dumps(asdict(outcome), indent=1) + "\n", result.parent)


if __name__ == "__main__":
    main(sys.argv[1:])
