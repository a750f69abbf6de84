"""The target's veto: no move may lead to a program that the hardware cannot run."""

from __future__ import annotations

from functools import partial

from perfdojo_riscv_snitch.codegen import limits
from perfdojo_riscv_snitch.codegen.bounds import Bounds, Unsure
from perfdojo_riscv_snitch.codegen.kernel import check
from perfdojo_riscv_snitch.codegen.limits import Refused
from perfdojo_riscv_snitch.codegen.plan import REPEATS
from perfdojo_riscv_snitch.codegen.streams import MOVERS
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import Move, Objection

#: Most texts of accepted programs that are remembered; each has a few kilobytes.
MOST_FINE = 10_000


class HardwareLimits:
    """A veto with the code generator's answer for the program that a move makes, mostly without running
    it."""

    requirements = limits.REQUIREMENTS

    def __init__(self) -> None:
        self._judge: _Judge | None = None
        """The judge of the last dialect used; a game has one dialect."""

    def __call__(self, before: Program, move: Move, after: Program, dialect: Dialect) -> Objection | None:
        if not uses_extensions(after):
            return None
        judge = self._judge
        if judge is None or judge.dialect is not dialect:
            judge = self._judge = _Judge(dialect)
        # Players ask many times what can be played from one program.
        return before.once((judge, move), partial(judge.objection, before, after))


class _Judge:
    """Decides whether the hardware can run a program: the reason why not, or None."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.bounds = dialect, Bounds(dialect)
        self._fine: set[str] = set()
        """Texts of programs that the hardware can run."""

    def objection(self, before: Program, after: Program) -> Objection | None:
        refused = self(after)
        if refused is None or (uses_extensions(before) and before.once(self, partial(self, before))):
            return None  # a program that exceeded the hardware before may be repaired step by step
        return Objection(refused.requirement, refused.refusal)

    def __call__(self, program: Program) -> Refused | None:
        # Many games reach the same programs. Refused ones are checked again, as their messages name nodes.
        if program.text in self._fine:
            return None
        refused = self._refused(program)
        if refused is None:
            if len(self._fine) >= MOST_FINE:
                self._fine.clear()
            self._fine.add(program.text)
        return refused

    def _refused(self, program: Program) -> Refused | None:
        try:
            self.bounds.check(program)
        except Unsure:
            refused = beyond(program, self.dialect)
            # Staged buffers take memory until they are contracted, so memory is checked at the end of a game.
            return None if refused and refused.requirement is limits.TCDM else refused
        except Refused as refused:
            return refused
        except DojoError:
            return None
        return None


def uses_extensions(program: Program) -> bool:
    """True if a program has streams, repeated scopes, or registers that may hold pairs."""
    locations = {buffer.location for buffer in program.buffers}
    if not locations.isdisjoint(MOVERS):
        return True
    suffixes = {suffix for node in program.body if isinstance(node, Scope) for suffix in node.suffixes}
    return not REPEATS.isdisjoint(suffixes) or ("reg" in locations and "v" in suffixes)


def beyond(program: Program, dialect: Dialect) -> Refused | None:
    """Emit the whole program; the limit it exceeds, or None. None as well where it fails for another
    reason."""
    try:
        check(program, dialect)
    except Refused as refused:
        return refused
    except DojoError:
        return None
    return None
