"""ONNX models as graphs of kernels. Needs the extra ``onnx``."""
