"""TVM: each operator in tensor expressions, with TVM's default schedule or the best one of a search.

MetaSchedule makes ``PERFDOJO_TVM_TRIALS`` trials for each operator, which takes minutes for a hundred.
Without that variable, TVM uses its default schedule, a plain loop nest that is not competitive. The version
in the output contains the number of trials.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import tvm
from tvm import te, topi
from tvm.target.codegen import llvm_get_system_cpu

from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.peers.operators import EPSILON, Array, Operator
from perfdojo_sdk.peers.systems import Bind, Call


def start(threads: int, library: str) -> Tvm:
    return Tvm(threads, int(os.environ.get("PERFDOJO_TVM_TRIALS", "0")))


class Tvm:
    def __init__(self, threads: int, trials: int) -> None:
        self.version = f"{tvm.__version__} ({number_of(trials, 'trials') if trials else 'default schedule'})"
        os.environ["TVM_NUM_THREADS"] = str(threads)
        self._trials = trials
        cpu = llvm_get_system_cpu()
        self._target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        found: dict[str, Bind] = {"default schedule": self._bind(operator, lambda function: function)}
        if self._trials:
            found["tuned"] = self._bind(operator, self._tuned)
        return found

    def _bind(self, operator: Operator, schedule: Callable[[Any], Any]) -> Bind:
        compiled: list[Any] = []

        def bind(inputs: list[Array], out: Callable[[], Array]) -> Call:
            if not compiled:
                module = schedule(_function(operator))
                compiled.append(tvm.compile(module, target=self._target)["main"])
            result = out()
            arrays = [tvm.runtime.from_dlpack(array) for array in (*inputs, result)]

            def call() -> Array:
                compiled[0](*arrays)
                return result

            return call

        return bind

    def _tuned(self, function: Any) -> Any:
        from tvm.s_tir import meta_schedule

        with tempfile.TemporaryDirectory() as folder:
            database = meta_schedule.tune_tir(function, self._target, folder, self._trials)
            found = meta_schedule.tir_integration.compile_tir(database, function, self._target)
            return function if found is None else found.mod


def _function(operator: Operator) -> Any:
    inputs = [te.placeholder(shape, "float32", f"i{k}") for k, shape in enumerate(operator.inputs)]
    function = te.create_prim_func([*inputs, _FORMULAS[operator.family](*inputs)])
    return function.with_attr("global_symbol", "main")


def _by_channel(values: Any) -> Any:
    return topi.expand_dims(topi.expand_dims(values, 1, 1), 2, 1)


def _mean(x: Any, axes: Sequence[int]) -> Any:
    """The mean over ``axes``, which are kept as dimensions of size 1."""
    count = prod(int(x.shape[axis]) for axis in axes)
    return topi.divide(topi.sum(x, axes, keepdims=True), float(count))


def _normalised(x: Any, axes: Sequence[int]) -> Any:
    centred = topi.subtract(x, _mean(x, axes))
    variance = _mean(topi.multiply(centred, centred), axes)
    return topi.divide(centred, topi.sqrt(topi.add(variance, EPSILON)))


def _batchnorm(x: Any, w: Any, b: Any) -> Any:
    return topi.add(topi.multiply(_normalised(x, (0, 2, 3)), _by_channel(w)), _by_channel(b))


def _rmsnorm(x: Any, w: Any) -> Any:
    root = topi.sqrt(topi.add(_mean(topi.multiply(x, x), (1,)), EPSILON))
    return topi.multiply(topi.divide(x, root), w)


def _swiglu(x: Any, a: Any, b: Any) -> Any:
    gate = topi.nn.matmul(x, a)
    return topi.multiply(topi.multiply(gate, topi.sigmoid(gate)), topi.nn.matmul(x, b))


_FORMULAS: dict[str, Callable[..., Any]] = {
    "add": topi.add,
    "mul": topi.multiply,
    "relu": topi.nn.relu,
    "relu_ffn": lambda x, s, b: topi.nn.relu(topi.add(topi.multiply(x, _by_channel(s)), _by_channel(b))),
    "batchnorm": _batchnorm,
    "layernorm": lambda x, w, b: topi.add(topi.multiply(_normalised(x, (1,)), w), b),
    "rmsnorm": _rmsnorm,
    "softmax": lambda x: topi.nn.softmax(x, 1),
    "reducemean": lambda x: topi.divide(topi.sum(x, 1), float(int(x.shape[1]))),
    "matmul": topi.nn.matmul,
    "bmm": lambda a, b: topi.nn.batch_matmul(a, b, transpose_b=False),
    "swiglu": _swiglu,
    "conv2d": lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 0, 1),
}
