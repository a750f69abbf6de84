"""Simulated cycles a second of the Snitch simulator, on programs that keep different units busy.

    python benchmarks/snitch_simulator.py [--cycles 3000000] [--json]

Each program runs for so many simulated cycles, as often as ``--repeat`` says, and the fastest run counts:
others use the machine as well. ``per processor second`` counts the process's own time only, ``per second``
wall time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping

from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.simulator import simulate

TCDM = 0x10000000
_STREAMS = f"""
    li t0, 1023
    scfgwi t0, 64
    scfgwi t0, 65
    li t0, 63
    scfgwi t0, 96
    scfgwi t0, 97
    li t1, 8
    scfgwi t1, 192
    scfgwi t1, 193
    li t1, -8184
    scfgwi t1, 224
    scfgwi t1, 225
    li a0, {TCDM}
    li a1, {TCDM + 8 * 1024 + 8}
    li a3, {{rounds}}
1:  scfgwi a0, 800
    scfgwi a1, 801
    csrsi ssr, 1
    li t2, 16383
    frep.o t2, 4
    fmadd.d fa0, ft0, ft1, fa0
    fmadd.d fa1, ft0, ft1, fa1
    fmadd.d fa2, ft0, ft1, fa2
    fmadd.d fa3, ft0, ft1, fa3
    csrci ssr, 1
    addi a3, a3, -1
    bnez a3, 1b
    fmv.x.w t0, fa0
    mv t0, t0
    ecall
"""
_LOADS = f"""
    li a3, {{rounds}}
2:  li a0, {TCDM}
    li a2, 1000
1:  fld fa4, 0(a0)
    fld fa5, 8(a0)
    fmadd.d fa0, fa4, fa5, fa0
    addi a0, a0, 8
    addi a2, a2, -1
    bnez a2, 1b
    addi a3, a3, -1
    bnez a3, 2b
    fmv.x.w t0, fa0
    mv t0, t0
    ecall
"""
_INTEGERS = """
    li a3, {rounds}
2:  li a2, 10000
1:  add a0, a0, a2
    xor a1, a1, a0
    slli a4, a1, 3
    addi a2, a2, -1
    bnez a2, 1b
    addi a3, a3, -1
    bnez a3, 2b
    ecall
"""
#: The busy unit -> a program, and the approximate cycles of a round.
PROGRAMS: Mapping[str, tuple[str, int]] = {
    "two streams and the FPU": (_STREAMS, 65_600),
    "loads, the FPU and a loop": (_LOADS, 8_000),
    "the integer core": (_INTEGERS, 50_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=3_000_000, help="simulated in each run, about")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each program; the fastest counts")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    options = parser.parse_args()
    simulate("ecall")  # compiles the core if necessary
    rows = {name: measured(*given, options.cycles, options.repeat) for name, given in PROGRAMS.items()}
    if options.json:
        print(json.dumps({"provenance": "measured", "rows": rows}, indent=1))
        return
    print(f"{'million cycles':28}{'cycles':>12}{'per processor second':>24}{'per second':>14}")
    for name, row in rows.items():
        speeds = f"{row['per_processor_s'] / 1e6:>24.2f}{row['per_s'] / 1e6:>14.2f}"
        print(f"{name:28}{row['cycles'] / 1e6:>12.2f}{speeds}")


def measured(text: str, each: int, cycles: int, repeat: int) -> dict[str, float]:
    """Cycles of one run, and the most a second of ``repeat`` runs."""
    program = assemble(text.format(rounds=max(1, cycles // each)))
    best_s, best_processor_s, found = float("inf"), float("inf"), 0
    for _ in range(repeat):
        wall, processor = time.perf_counter(), time.process_time()
        found = simulate(program, max_cycles=4 * cycles + 1_000_000).total_cycles
        best_processor_s = min(best_processor_s, time.process_time() - processor)
        best_s = min(best_s, time.perf_counter() - wall)
    return {"cycles": found, "per_processor_s": found / best_processor_s, "per_s": found / best_s}


if __name__ == "__main__":
    main()
