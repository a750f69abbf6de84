"""``python -m perfdojo_riscv_snitch prog.s``: simulate a program and say what it did."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from perfdojo_riscv_snitch.simulator import Simulation, Simulator
from perfdojo_riscv_snitch.simulator.run import DEFAULT_MAX_CYCLES
from perfdojo_sdk.core.errors import DojoError


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0, else that of the error; 2 for wrong usage."""
    parser = argparse.ArgumentParser("python -m perfdojo_riscv_snitch", description=__doc__)
    parser.add_argument("program", help="an assembly file or an ELF file")
    parser.add_argument("--trace", action="store_true", help="every instruction with its cycle")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--max-cycles", type=int, default=DEFAULT_MAX_CYCLES, help="give up after so many")
    options = parser.parse_args(arguments)
    try:
        result = Simulator().simulate(
            Path(options.program), trace=options.trace, max_cycles=options.max_cycles
        )
    except DojoError as error:
        print(json.dumps(error.as_json()) if options.json else error.render(), file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"cannot read {options.program}: {error.strerror}", file=sys.stderr)
        return 1
    print(_as_json(result) if options.json else _as_text(result))
    return 0


def _as_json(result: Simulation) -> str:
    lines = [{"cycle": t.cycle, "unit": t.unit, "pc": t.pc, "text": t.text} for t in result.trace]
    return json.dumps({**result.as_json(), **({"trace": lines} if lines else {})}, indent=2)


def _as_text(result: Simulation) -> str:
    lines = [str(line) for line in result.trace]
    lines += [
        f"cycles           {result.cycles} (whole run {result.total_cycles})",
        f"instructions     {result.instructions}",
        f"FPU instructions {result.fpu_instructions} ({result.fpu_utilisation:.1%} of the cycles)",
    ]
    lines += [f"stalled          {count:8} {name.replace('_', ' ')}" for name, count in result.stalls.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
