"""Copies of the toy target, each with one fault planted, as packages that are installed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import indent

from command_line import ROOT

NUMBERS = count()
TOY = ROOT / "tests" / "toy_target" / "perfdojo_toy"


@dataclass(frozen=True)
class Fault:
    """A replacement in a file, and the check that must find it."""

    name: str
    check: str
    words: str
    """Stand in the complaint."""
    file: str = ""
    old: str = ""
    new: str = ""
    declared: bool = True
    """True if the package declares its target."""


def plant(folder: Path, fault: Fault | None = None, more: str = "") -> str:
    """Install a copy of the toy target with the fault into ``folder``; the name of plugin and package.

    ``more`` is added to the plugin's module.
    """
    # Python keeps what it imported under a name, so no two copies share one.
    name = f"{fault.name.replace(' ', '_') if fault else 'faultless'}_{next(NUMBERS)}"
    package = folder / name
    shutil.copytree(TOY, package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(more)
    if fault and fault.file:
        path = package / fault.file
        text = path.read_text(encoding="utf-8")
        assert fault.old in text, f"{fault.file} has changed: {fault.old!r} is not in it"
        path.write_text(text.replace(fault.old, fault.new, 1), encoding="utf-8")
    groups = {"plugins": name, "targets": "toy"} if fault is None or fault.declared else {"plugins": name}
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = (f"[perfdojo_sdk.{group}]\n{entry} = {name}\n" for group, entry in groups.items())
    (info / "entry_points.txt").write_text("\n".join(points))
    return name


# -- runners that believe too much -----------------------------------------------------------------


def runner(body: str) -> dict[str, str]:
    """The toy target with another ``run``; ``super().run`` is the right one."""
    code = f"""
from dataclasses import replace
import numpy as np
from perfdojo_sdk.hookspecs.types import Failure

KEPT = {{}}

class Odd(NativeRunner):
    @property
    def run_sets(self):
        raise AttributeError("this one has only run")

    def run(self, artifact, request):
{indent(body, "        ")}

def _odd(target):
    return Odd(("-O2",)) if target.name == TARGET.name else None

perfdojo_runner = hookimpl(_odd)
del _odd
"""
    # At the end of the module, so that it replaces the hook.
    return {
        "file": "__init__.py",
        "old": 'HEARD.append(f"library for {target.name} in {directory}")\n',
        "new": f'HEARD.append(f"library for {{target.name}} in {{directory}}")\n{code}',
    }


def generator(expression: str, before: str = "") -> dict[str, str]:
    """The toy target with something else done to the right ``source``."""
    return {
        "file": "target.py",
        "old": "return CEmitter(program, symbol, TARGET.dialect).source()",
        "new": f"""from dataclasses import replace
        {before or "pass"}
        source = CEmitter(program, symbol, TARGET.dialect).source()
        return {expression}""",
    }


def move(rewrite: str) -> dict[str, str]:
    """The toy target with another rewrite of its move."""
    right = 'return site.program.replaced(site.path, (replace(site.scope, suffix="u"),))'
    return {"file": "moves.py", "old": right, "new": rewrite}


def scope(changes: str) -> dict[str, str]:
    """The toy target whose move changes the scope in this way."""
    return move(f"return site.program.replaced(site.path, (replace(site.scope, {changes}),))")


def veto(body: str) -> dict[str, str]:
    """The toy target with something else at the start of its legality check."""
    right = "    for _, node in after.walk():"
    return {"file": "moves.py", "old": right, "new": f"    {body}\n{right}"}


#: A counter of its own evaluations: state that no part of a plugin may have.
NEXT = "next(globals().setdefault('_count', __import__('itertools').count(1)))"
MOOD = f"{NEXT} % 3"

FAULTS = (
    Fault(
        "misspelt hook",
        "loads",
        "did you mean perfdojo_observers",
        "__init__.py",
        "def perfdojo_observers",
        "def perfdojo_observer",
    ),
    Fault("undeclared target", "declares its targets", "target toy is not among", declared=False),
    Fault(
        "heavy import",
        "import is cheap",
        "loads sqlalchemy",
        "walk.py",
        "from collections",
        "import sqlalchemy\nfrom collections",
    ),
    Fault(
        "slow import",
        "import is cheap",
        "processor time",
        "walk.py",
        "from collections",
        "import time\nwhile time.process_time() < 3: pass\nfrom collections",
    ),
    Fault(
        "move without prefix",
        "names have a prefix",
        "unroll_short has no prefix",
        "moves.py",
        '"toy/unroll_short"',
        '"unroll_short"',
    ),
    Fault(
        "empty hint",
        "moves are described",
        "TOY-002: title, why and hint",
        "moves.py",
        '"split the scope first"',
        '""',
    ),
    Fault(
        "unknown remedy",
        "moves are described",
        "TOY-002: it may be established by split_scoop",
        "moves.py",
        'established_by=("split_scope",)',
        'established_by=("split_scoop",)',
    ),
    Fault(
        "borrowed code",
        "moves are described",
        "the codes PD-... are the SDK's",
        "moves.py",
        "TOY-001",
        "PD-T901",
    ),
    Fault(
        "operator of another name",
        "operators build",
        "built a kernel named",
        "target.py",
        "kernel toy_scale",
        "kernel scale",
    ),
    Fault(
        "unpicklable generator",
        "objects cross processes",
        "does not pickle",
        "__init__.py",
        "return Generator() if",
        "return type('Local', (Generator,), {})() if",
    ),
    Fault(
        "random code",
        "same seed, same game",
        "different code",
        **generator("replace(source, code=source.code + f'/* {hash(symbol)} */')"),
    ),
    Fault("rewrite that raises", "find and check agree", "raises ZeroDivisionError", **move("1 / 0")),
    Fault(
        "rewrite out of the language",
        "find and check agree",
        "leaves the language",
        **scope('suffix="u", size=site.scope.size + 1'),
    ),
    Fault(
        "rewrite that does not say what it made",
        "find and check agree",
        "makes the scopes s0.u and says none",
        **scope('suffix="u", id=site.scope.id + ".u"'),
    ),
    Fault(
        "moody check",
        "find and check agree",
        "from its check",
        "moves.py",
        "if site.scope.size <= SHORT:",
        f"if site.scope.size <= SHORT and {MOOD}:",
    ),
    Fault(
        "rewrite in place",
        "nothing given is changed",
        "toy/unroll_short changes the program",
        **move('site.scope.__dict__["suffix"] = "u"\n        return site.program'),
    ),
    Fault(
        "size below one",
        "texts round-trip",
        "the text does not parse",
        **scope('suffix="u", size=-site.scope.size'),
    ),
    Fault(
        "ids from a counter", "games round-trip", "a saved game", **scope(f'suffix="u", id=f"t{{{NEXT}}}"')
    ),
    Fault(
        "words that cannot be made",
        "refusals help",
        "its words cannot be made",
        "moves.py",
        "{{size}} iterations",
        "{{length}} iterations",
    ),
    Fault(
        "lost iteration",
        "own moves are proved",
        "exact: toy/unroll_short",
        **scope('suffix="u", size=max(1, site.scope.size - 1)'),
    ),
    Fault(
        "move that is never legal",
        "own moves are proved",
        "legal on no program",
        "moves.py",
        "SHORT = 4",
        "SHORT = 0",
    ),
    Fault(
        "veto that says true", "vetoes hold", "neither None nor a reason", **veto('return "s0" in move.place')
    ),
    Fault("moody veto", "vetoes hold", "in two ways", **veto(f"if not {MOOD}: return 'not now'")),
    Fault(
        "expert that hides a move",
        "expert plays by the rules",
        "does not replay",
        "performance.py",
        "return (play.trace,)",
        "return (Trace(root, play.trace.steps[1:]),)",
    ),
    Fault(
        "expert on another program",
        "expert plays by the rules",
        "starts from another program",
        "performance.py",
        "return (play.trace,)",
        "return (Trace(play.program),)",
    ),
    Fault(
        "symbol of its own",
        "code is plain",
        "pd_mine is given",
        **generator("replace(source, symbol='pd_mine')"),
    ),
    Fault(
        "dtype that raises",
        "code is plain",
        "makes it raise KeyError",
        **generator("source", "if program.buffers[0].dtype == 'f16': raise KeyError('f16')"),
    ),
    Fault(
        "short loop",
        "kernels as written",
        "softmax_2x3_f32: random inputs",
        **generator("replace(source, code=source.code.replace('< 3;', '< 2;'))"),
    ),
    Fault(
        "race at the end",
        "kernels as played",
        "2 threads",
        **generator("replace(source, code=source.code.replace('i0 < end;', 'i0 < end - (begin > 0);'))"),
    ),
    Fault(
        "wrong unrolling",
        "walks compiled",
        "random game",
        **generator("replace(source, code=source.code.replace('+ 1]', '+ 0]'))"),
    ),
    Fault(
        "times of zero",
        "measurements are sound",
        "times of",
        **runner(
            "found = super().run(artifact, request)\n"
            "times = (0.0,) * len(found.seconds) if request.repeats else ()\n"
            "return replace(found, seconds=times)"
        ),
    ),
    Fault(
        "inputs that ignore the seed",
        "measurements are sound",
        "two seeds draw the same",
        **runner("return super().run(artifact, replace(request, seed=0))"),
    ),
    Fault(
        "runner that trusts",
        "failures are results",
        "never written: expected a failure (wrong_result), found",
        **runner(
            "found = super().run(artifact, request)\n"
            "if not isinstance(found, Failure) or found.reason != 'wrong_result': return found\n"
            "outputs = {s.name: np.zeros(s.shape, 'f4') for s in artifact.outputs}\n"
            "return Measurement(outputs, (), 'measured', 'here', request.threads)"
        ),
    ),
    Fault(
        "runner that raises",
        "failures are results",
        "the runner raises RuntimeError",
        **runner(
            "found = super().run(artifact, request)\n"
            "if isinstance(found, Failure): raise RuntimeError(found.reason)\nreturn found"
        ),
    ),
    Fault(
        "reason of its own",
        "failures are results",
        "is not of the closed set",
        **runner(
            "found = super().run(artifact, request)\n"
            "return replace(found, reason='bad luck') if isinstance(found, Failure) else found"
        ),
    ),
    Fault(
        "runner that times one call",
        "cheats are caught",
        "idle_later: expected a failure",
        **runner(
            "import time\nstart = time.perf_counter()\n"
            "found = super().run(artifact, replace(request, repeats=0))\n"
            "if isinstance(found, Failure) or not request.repeats: return found\n"
            "return replace(found, seconds=(time.perf_counter() - start,))"
        ),
    ),
    Fault(
        "results that are kept",
        "wrong results are refused",
        "a term that is left out: verification",
        **runner(
            "from copy import deepcopy\n"
            "key = b''.join(np.asarray(a).tobytes() for a in (request.inputs or {}).values())\n"
            "if key not in KEPT: KEPT[key] = deepcopy(super().run(artifact, request))\n"
            "return deepcopy(KEPT[key])"
        ),
    ),
)
