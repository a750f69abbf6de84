"""PerfDojo for Snitch: a small RISC-V core with stream registers and hardware FP loops."""
