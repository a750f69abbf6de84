"""Peers that run parts of a model, each in its own format, on the memory of a call of the model.

Both take models of ONNX: ONNX Runtime all of them, PyTorch by a table of functions. They are read from the
package, so their hashes have been checked; a peer is imported when the first part is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.graph.graph import Array
from perfdojo_sdk.graph.refusals import Reason, Refused

#: Dtypes of arrays that can go to a peer and come back: those of NumPy.
CROSSING = ("f64", "f32", "f16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool")
#: Ending of a part's file, by peer.
ENDINGS = {"onnxruntime": "onnx", "torch": "onnx"}
MAX_PART_BYTES = 2**31


class PeerError(DojoError):
    """A peer failed on a part of a model."""


class Opened(Protocol):
    """A part that can run."""

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> None: ...


def require_peer(peer: str, what: str) -> Any:
    """The package of a peer; :class:`UnavailableError` where it is not installed."""
    if find_spec(peer) is None:
        hint = f"pip install {peer}, or build the model again without --fallback and --prefer-faster"
        raise UnavailableError("PD-O041", f"{what} needs {peer}, which is not installed", hint=hint)
    return import_module(peer)


def as_content(peer: str, model: Any) -> bytes:
    """A model of ONNX in the format of a peer; :class:`Refused` where the peer does not take it."""
    try:
        content: bytes = model.SerializeToString()
    except ValueError:
        content = b""
    if not content or len(content) > MAX_PART_BYTES:
        raise Refused(Reason.SIZE, f"a part for {peer} of more than {MAX_PART_BYTES} bytes")
    open_part(peer, content, "the model")
    return content


def open_part(peer: str, content: bytes, what: str) -> Opened:
    """A part, ready to run; :class:`Refused` where the peer does not take it."""
    module = require_peer(peer, what)
    return _OnnxRuntime(module, content) if peer == "onnxruntime" else _Torch(module, content)


class _Torch:
    """A model of ONNX in PyTorch."""

    def __init__(self, torch: Any, content: bytes) -> None:
        from perfdojo_sdk.models.torch_peer import TorchPart

        self._part = TorchPart(torch, content)

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> None:
        try:
            self._part(inputs, outputs, threads)
        except Exception as error:  # the peer's own
            raise PeerError("PD-O042", "torch failed on its part", why=_first_line(error)) from None


class _OnnxRuntime:
    """A model of ONNX in ONNX Runtime: one session for each number of threads."""

    def __init__(self, runtime: Any, content: bytes) -> None:
        self._runtime, self._content = runtime, content
        self._sessions: dict[int, Any] = {}
        session = self._session(1)
        self._inputs = [each.name for each in session.get_inputs()]
        self._outputs = [each.name for each in session.get_outputs()]

    def _session(self, threads: int) -> Any:
        session = self._sessions.get(threads)
        if session is None:
            options = self._runtime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
            options.log_severity_level = 4
            # Threads that wait by spinning would take the cores from our kernels.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            try:
                session = self._runtime.InferenceSession(
                    self._content, options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:  # the peer's own
                what = f"onnxruntime does not take it: {_first_line(error)}"
                raise Refused(Reason.OPERATOR, what) from None
            self._sessions[threads] = session
        return session

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> None:
        session = self._session(threads)
        binding = session.io_binding()
        for name, array in zip(self._inputs, inputs, strict=True):
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name, array in zip(self._outputs, outputs, strict=True):
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        try:
            session.run_with_iobinding(binding)
        except Exception as error:  # the peer's own
            raise PeerError("PD-O042", "onnxruntime failed on its part", why=_first_line(error)) from None


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else type(error).__name__
