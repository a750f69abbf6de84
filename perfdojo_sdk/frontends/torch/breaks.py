"""Graph breaks: what Dynamo leaves to Python between its graphs, kept for the report or refused.

Dynamo tells a backend of graphs alone. :func:`watch` therefore stands around its conversion of frames, the
one place that sees every break, and frames without a graph too. Frames of other backends are left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch._dynamo
from torch._C._dynamo.eval_frame import _FrameAction as FrameAction
from torch._dynamo.convert_frame import ConvertFrame
from torch._dynamo.exc import FailOnRecompileLimitHit, UserError
from torch._dynamo.exc import Unsupported as Broken
from torch._dynamo.utils import (
    ExactWeakKeyDictionary,
    get_compilation_metrics,
    graph_break_reasons,
    orig_code_map,
)

from perfdojo_sdk.frontends.torch.compiling import Unsupported
from perfdojo_sdk.frontends.torch.lowering import Elsewhere

#: Names under which versions of PyTorch keep what one of its callables wraps.
_WRAPPED = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")


@dataclass(frozen=True)
class Frame:
    """A function whose call Dynamo looked at."""

    code: CodeType
    names: Mapping[str, Any] = field(repr=False)
    """Its global names, among which Dynamo puts the compiled graphs."""


@dataclass
class Left:
    """The frame of a function that was compiled, those below it, and the breaks in them."""

    frames: list[Frame] = field(default_factory=list)
    breaks: list[Elsewhere] = field(default_factory=list)


#: Code -> for each backend, what was left of it; frames below a function share that of the function.
_left_by_code = ExactWeakKeyDictionary()


def left_of(codes: Sequence[CodeType], backend: Any) -> Left:
    """Frames and breaks of functions with these codes since Dynamo was last reset; backend None: of any."""
    found = Left()
    for code in codes:
        for mine, left in _left_by_code.get(code, ()):
            if backend is None or mine == backend:
                found.frames += left.frames
                found.breaks += left.breaks
    return found


def innermost(wrapper: Any) -> Any:
    """The backend within Dynamo's wrappers of it."""
    while True:
        inner = next((getattr(wrapper, name) for name in _WRAPPED if hasattr(wrapper, name)), None)
        if inner is None:
            return wrapper
        wrapper = inner


def watch(backend: Callable[..., Any]) -> None:
    """Keep the breaks of frames that ``backend`` compiles; refuse them where its option fallback is None."""
    convert = ConvertFrame.__call__

    def watched(self: Any, frame: Any, *rest: Any, **named: Any) -> Any:
        mine = innermost(self)
        if mine is not backend and getattr(mine, "compiler_fn", None) is not backend:
            return convert(self, frame, *rest, **named)
        left = _below(mine, frame, sys._getframe(1))
        options: Mapping[str, Any] = getattr(mine, "kwargs", {}).get("options") or {}
        if options.get("fallback", "eager") is None:
            return _whole(self._inner_convert, frame, *rest, **named)
        seen = len(graph_break_reasons)
        result = convert(self, frame, *rest, **named)
        breaks = (*_breaks(seen), *_skipped(result, frame.f_code))
        left.breaks += [each for each in breaks if each not in left.breaks]
        return result

    ConvertFrame.__call__ = watched  # type: ignore[method-assign]
    backend.reset = _left_by_code.clear  # type: ignore[attr-defined]  # Dynamo calls it when it is reset


def _whole(convert: Any, frame: Any, *rest: Any, **named: Any) -> Any:
    """A frame converted with its first break as an error."""
    strictly = getattr(torch._dynamo, "error_on_graph_break", None)
    convert._one_graph = strictly is None  # PyTorch before 2.9 knows this way alone
    try:
        with strictly(True) if strictly else nullcontext():
            return convert(frame, *rest, **named)
    except (Broken, UserError, FailOnRecompileLimitHit) as error:
        stack = getattr(error, "real_stack", None)
        last = stack[-1] if stack else None
        place = f"{last.filename}:{last.lineno}" if last else _start(frame.f_code)
        found = _break(place, _short(getattr(error, "msg", str(error))))
        hint = (
            "write it with tensors alone (such as torch.where), call it outside of what is compiled, "
            'or leave out {"fallback": None}, and Python runs it'
        )
        raise Unsupported([found], hint) from None


def _below(backend: Any, frame: Any, caller: Any) -> Left:
    """The place for what is left of a frame: that of the function below whose call Dynamo came to it, or its
    own if it is the first."""
    code = frame.f_code
    above: Left | None = None
    while caller is not None and above is None:
        original = orig_code_map.get(caller.f_code, caller.f_code)
        above = _of(original, backend)
        caller = caller.f_back
    left = above or _of(code, backend) or Left()
    if all(each.code is not code for each in left.frames):
        left.frames.append(Frame(code, frame.f_globals))
    if _of(code, backend) is None:
        _left_by_code[code] = (*_left_by_code.get(code, ()), (backend, left))
    return left


def _of(code: CodeType, backend: Any) -> Left | None:
    """The frames and breaks of a code under a backend with its options."""
    return next((left for mine, left in _left_by_code.get(code, ()) if mine == backend), None)


def _breaks(seen: int) -> Iterator[Elsewhere]:
    """The breaks that Dynamo noted since there were ``seen`` of them."""
    for noted in graph_break_reasons[seen:]:
        last = noted.user_stack[-1]
        yield _break(f"{last.filename}:{last.lineno}", _short(noted.reason))


def _skipped(result: Any, code: CodeType) -> Iterator[Elsewhere]:
    """The break for which Dynamo left a whole frame to Python, if that is the result."""
    metrics = get_compilation_metrics()
    if getattr(result, "guarded_code", result) is not None or not metrics:
        return
    strategy = getattr(result, "frame_exec_strategy", None)
    if strategy is not None and strategy.cur_action == FrameAction.RUN_ONLY:
        reason = f"Dynamo compiled {code.co_name} too many times (recompile_limit)"
        yield _break(_start(code), f"{reason}; Python runs all of it for further inputs")
        return
    last = metrics[-1]
    if last.fail_reason and (last.co_name, last.co_firstlineno) == (code.co_name, code.co_firstlineno):
        line = last.fail_user_frame_lineno
        place = f"{last.fail_user_frame_filename}:{line}" if line else _start(code)
        yield _break(place, f"{_short(last.fail_reason)}; Python runs all of {code.co_name}")


def _break(place: str, reason: str) -> Elsewhere:
    return Elsewhere(f"graph break at {place}", "", reason)


def _start(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}"


def _short(message: str) -> str:
    """The sentence of a message of Dynamo's that explains the break."""
    if message.startswith("generic_jump"):
        return "a branch depends on the values of a tensor"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    explained = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    return (explained or lines or ["Dynamo gives no reason"])[0].rstrip(".")
