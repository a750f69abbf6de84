"""The parts of ``benchmarks/x86_table3.py``: operators, contenders in processes of their own, report."""
