"""Settings of a build or a search: what a user may choose, and a part of each record's key."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.hookspecs.types import RunRequest
from perfdojo_sdk.library.arrays import available_cores, thread_count
from perfdojo_sdk.search.strategies import HEURISTIC
from perfdojo_sdk.store.records import Figure


@dataclass(frozen=True)
class Settings:
    """The choices of a build; nearly all are part of each record's key."""

    threads: int = field(default_factory=available_cores)
    seed: int = 0
    repeats: int = 100
    """Most timed calls of a program."""
    budget_s: float = 1.0
    """Time for the timed calls of a program."""
    precision: float = 0.01
    """Fewer calls will do once half of the median's 95 % interval is below this part of it."""
    worth_of_proofs: float = 1.0
    """The factor by which a game of hundreds of moves has to be faster than a much shorter one, as its proofs
    take long. No part of a record's key: a record says the same of either game."""
    timeout_s: float = 120.0
    """Time for one run in the child process, set-up included."""
    most: Kind = Kind.DECLARED_LAW
    """The most that moves may change."""
    search: str = HEURISTIC
    """The strategy that plays."""
    evaluations: int = 100
    """Most games of the strategy that are compiled and timed."""
    options: tuple[tuple[str, str], ...] = ()
    """Options of the strategy: names and values."""

    def __post_init__(self) -> None:
        thread_count(self.threads)  # PD-L015 where no kernel takes so many

    @property
    def request(self) -> RunRequest:
        """The run that a library's figures come from; ``bench`` repeats it."""
        return RunRequest(
            seed=self.seed,
            threads=self.threads,
            repeats=self.repeats,
            budget_s=self.budget_s,
            precision=self.precision,
            timeout_s=self.timeout_s,
        )

    def as_figures(self) -> dict[str, Figure]:
        """The settings, as keys and manifests hold them."""
        return {
            "threads": self.threads,
            "seed": self.seed,
            "repeats": self.repeats,
            "budget_s": self.budget_s,
            "precision": self.precision,
            "timeout_s": self.timeout_s,
            "most": self.most.label,
            "search": self.search,
            "evaluations": self.evaluations,
            **{f"option {name}": value for name, value in self.options},
        }
