"""The settings of an agent and of its learning: validated data from YAML, options and agents' files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError, field_validator

from perfdojo_sdk.core.errors import DojoError, closest
from perfdojo_sdk.core.transformation import Move
from perfdojo_sdk.perfllm.objective import OBJECTIVES
from perfdojo_sdk.store.traces import Strict, first_error

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=10**7)]
Word = Annotated[str, StringConstraints(max_length=256)]


class AgentSettings(Strict):
    """The options of the agent, which can be switched independently (paper, sections 3.2 and 3.3)."""

    objective: Word = "max"
    """A name of ``objective.OBJECTIVES``; what a move is worth: the best reward that can be reached from it
    (``max``, equation 4), or their sum (``sum``, equation 2)."""
    double: bool = True
    """Double Q-learning: the network chooses the next move and the target network values it (equation 6)."""
    duelling: bool = True
    """Duelling network: one head for the value of a state, one for the advantages of its moves."""
    bounds: bool = True
    """A move is worth at least what some game reached after it. Only of objectives of which that
    is true (``max``), since a game can be repeated; not in the paper."""
    imitation: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Weight of the imitation loss, by which demonstrated moves get higher values than all others of their
    state; only a training on records has demonstrations. Not in the paper."""
    scale: Literal["log", "linear"] = "log"
    """The network's output: the logarithm of a value, so that all kernels have equal weight, or the value."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.99
    """Discount of what comes one move later."""
    hidden: Annotated[int, Field(ge=8, le=4096)] = 128
    """Width of the network."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-3
    batch: Annotated[int, Field(ge=1, le=4096)] = 32
    """Transitions of one step."""
    most_actions: Annotated[int, Field(ge=2, le=4096)] = 64
    """Moves of one state that a step of learning looks at, drawn anew each time."""
    copy_every: Count = 100
    """Steps between two copies of the network."""
    capacity: Count = 20_000
    """Transitions that are remembered."""
    steps_per_evaluation: Annotated[float, Field(ge=0, le=100)] = 2.0
    """Steps of learning for each program evaluated."""
    epsilon_first: Share = 1.0
    epsilon_last: Share = 0.05
    epsilon_fall: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Part of the budget after which chance has come down, linearly, from the first to the last."""
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    """0: the network plays the move of the highest value (the paper's epsilon-greedy). Above: it draws one,
    where a move that is worth this much less, in its scale, is e times less likely."""
    leap: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Most moves of an episode from one evaluation to the next; so many or fewer, by chance. The paper
    evaluates after each. What lies between has no reward of its own, which suits the objective "max" only."""
    beam: Annotated[int, Field(ge=0, le=256)] = 0
    """0: episodes, as in the paper. Above: before each round of evaluations so many games are played side by
    side, equal programs merged, and what the network thinks most of on their way is evaluated."""
    widened: Annotated[int, Field(ge=0, le=8)] = 0
    """After the first beam so many more know no chance, each twice as wide as the one before. What a narrow
    beam loses to one likely slip, a wide one often keeps."""
    evolved: Share = 0.0
    """Part of the rounds in which the fastest games met are changed anywhere, as the evolution does, whatever
    the network says. It knows no pass, and nothing is learned from the moves of such games."""
    repertoire: Annotated[Mapping[Word, tuple[Word, ...]], Field(max_length=100)] = {}
    """Target -> the kinds of moves that the agent looks at there, as :func:`kinds_of` names them; the empty
    name is of every other target. A target without kinds: all of them."""
    restarts: Share = 0.5
    """Part of the episodes, or beams, that begin near the fastest program met, not at the initial one."""
    most_moves: Count = 64
    """Moves after which an episode ends."""

    @field_validator("objective")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in OBJECTIVES:
            raise ValueError(f"there is no objective {name!r}: {', '.join(OBJECTIVES)}")
        return name

    @field_validator("repertoire", mode="before")
    @classmethod
    def _by_target(cls, value: object) -> object:
        """One list is of every target; on a command line it is one word, with commas between the kinds."""
        if not isinstance(value, Mapping):
            value = {"": value} if value else {}
        return {target: _listed(kinds) for target, kinds in value.items()}

    def kinds(self, target: str) -> frozenset[str]:
        """The kinds of moves that the agent considers on a target; empty: all of them."""
        return frozenset(self.repertoire.get(target, self.repertoire.get("", ())))

    @property
    def bounded(self) -> bool:
        return self.bounds and OBJECTIVES[self.objective].reward_is_bound

    def epsilon(self, progress: float) -> float:
        """The probability of a random move; ``progress`` is the fraction of the budget spent, 0 to 1."""
        fallen = min(1.0, progress / self.epsilon_fall)
        return self.epsilon_first + fallen * (self.epsilon_last - self.epsilon_first)


def _listed(kinds: object) -> object:
    if isinstance(kinds, str):
        return tuple(word.strip() for word in kinds.split(",") if word.strip())
    return tuple(kinds) if isinstance(kinds, list) else kinds


#: Parameters whose values are names that the target declares, the same in every program.
_WORDS = ("suffix", "location")


def kind_of(move: Move) -> str:
    """The kind of a move without its place: ``join_scopes``, ``annotate_scope suffix=u``."""
    return " ".join([move.transformation, *(f"{k}={v}" for k, v in move.parameters if k in _WORDS)])


def kinds_of(move: Move) -> tuple[str, ...]:
    """The kind of a move, and kinds that include a parameter: ``split_scope``, ``split_scope factor=16``.

    A loop of 24576 can be split in thirty ways, of which good games play two.
    """
    kind = kind_of(move)
    return kind, *(f"{kind} {k}={v}" for k, v in move.parameters if k not in _WORDS)


#: The paper's comparison: an ordinary deep Q-network.
DQN = AgentSettings(objective="sum", bounds=False, imitation=0)
#: The paper's agent: the same with the max-Bellman objective and nothing else.
MAX_Q = AgentSettings(bounds=False, imitation=0)


def changed(settings: AgentSettings, words: Mapping[str, str]) -> AgentSettings:
    """The settings with some fields given as words, as on a command line.

    :class:`DojoError` when there is no such field, or it does not take the value.
    """
    known = list(AgentSettings.model_fields)
    for name in words:
        if name not in known:
            raise DojoError("PD-L305", f"an agent has no setting {name!r}", hint=closest(name, known))
    try:
        return AgentSettings.model_validate({**settings.model_dump(), **words})
    except ValidationError as error:
        what = "a setting of the agent does not take this value"
        raise DojoError("PD-L305", what, why=first_error(error), hint="see docs/perfllm") from None
