"""The paper's figure 10 with the softmax by hand that ships with this plugin."""

from __future__ import annotations

from importlib import resources

from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experiments.sequence import along
from perfdojo_sdk.game import Game, SavedGame
from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.plugins import load_plugins

#: Rows of the softmax in the quick form; the whole has 24576.
QUICK_ROWS = 2048


def fig10(request: ExperimentRequest) -> ExperimentResult:
    """Time the shipped game move by move, on one thread."""
    from perfdojo_x86_avx512 import TARGETS

    plugins = load_plugins()
    target = plugins.require(request.target if request.target in TARGETS else "best")
    rules = plugins.rules(target)
    trace = by_hand(target, rules, QUICK_ROWS if request.quick else 24576)
    return along(request, plugins, Game(target, rules, trace))


def by_hand(target: Target, rules: Rules, rows: int) -> Trace:
    """The shipped game on so many rows. It was played with vectors of sixteen; here they have the
    target's own width, and every other move is the same."""
    text = resources.files(__package__).joinpath("games/softmax_by_hand.json").read_text(encoding="utf-8")
    text = text.replace("24576", str(rows))
    text = text.replace('"factor": 16', f'"factor": {target.dialect.lanes["f32"]}')
    return SavedGame.model_validate_json(text).trace.replay(rules)
