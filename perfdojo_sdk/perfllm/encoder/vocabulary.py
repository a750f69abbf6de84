"""The words that the encoder knows, and what stands for those that it does not.

A vocabulary is made from the language and from the dialects of all installed targets, then frozen in a file
beside the weights. Every text has tokens: numbers outside are spelled by their digits, names and suffixes
that nobody knew when the vocabulary was made share a few buckets by hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from zlib import crc32

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import DTYPES
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.storage import PACKED
from perfdojo_sdk.store.reading import json_of

PAD, MASK, LINE, OTHER, NUMBER, BUFFER = "<pad>", "<mask>", "<line>", "<other>", "<number>", "<buffer>"
SIGNS = ("->", "//", "<=", ">=", "==", "!=", "+=", "*=", *"-+*/%<>=()[]{},:|")
#: How many tokens stand for arrays, by order of declaration; later ones share them.
ARRAYS = 64
ITERATORS = 24
#: Buckets of unknown words, suffixes and fractions.
WORDS, SUFFIXES, FRACTIONS = 16, 4, 16
_NUMBERS = (*range(129), *(2**k for k in range(8, 25)), *(3 * 2**k for k in range(6, 16)))


@dataclass(frozen=True)
class Vocabulary:
    """Frozen words; a token is a position among them. ``<pad>`` is 0."""

    words: tuple[str, ...]

    @staticmethod
    def of(dialects: Iterable[Dialect]) -> Vocabulary:
        """The vocabulary for programs of these dialects."""
        suffixes, locations = set(), set()
        for dialect in dialects:
            suffixes |= {*dialect.suffixes, *dialect.dimension_suffixes}
            locations |= set(dialect.locations)
        own = [PAD, MASK, LINE, OTHER, NUMBER, BUFFER, *SIGNS, "kernel", "if", "and", "inf", "index", PACKED]
        operations = sorted({*OPERATIONS, *(f"{name}=" for name in OPERATIONS)})
        numbered = [f"array{k}" for k in range(ARRAYS)] + [f"{{{k}}}" for k in range(ITERATORS)]
        buckets = [
            f"{kind}{k}"
            for kind, count in (("word", WORDS), ("suffix", SUFFIXES), ("fraction", FRACTIONS))
            for k in range(count)
        ]
        places = [f":{s}" for s in sorted(suffixes)] + [f"@{name}" for name in sorted(locations)]
        known = [*own, *operations, *sorted(DTYPES), *places, *numbered, *buckets, *map(str, _NUMBERS)]
        return Vocabulary(tuple(dict.fromkeys(known)))

    @staticmethod
    def parse(text: str) -> Vocabulary:
        """Read :attr:`text`; ValueError when it is none, or a word that must be there is missing."""
        data = json_of(text)
        words = data.get("words") if isinstance(data, dict) and data.get("schema") == 1 else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("it is not a vocabulary of schema 1")
        found = Vocabulary(tuple(words))
        # A word that came later is read as any word that is not known.
        later = {PACKED, *DTYPES, *OPERATIONS, *(f"{name}=" for name in OPERATIONS)}
        missing = [word for word in Vocabulary.of(()).words if word not in {*found.ids, *later}]
        if missing or len(found.ids) != len(words) or words[0] != PAD:
            raise ValueError(f"words are missing or there twice: {' '.join(missing[:5])}")
        return found

    @cached_property
    def text(self) -> str:
        """The content of the file."""
        return json.dumps({"schema": 1, "words": self.words}, indent=0) + "\n"

    @cached_property
    def digest(self) -> str:
        """Hex digest of the content."""
        return sha256(self.text.encode()).hexdigest()

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: k for k, word in enumerate(self.words)}

    def word(self, word: str) -> int:
        """The token of a word, else of its bucket."""
        return self._known(word, "word", WORDS)

    def suffix(self, suffix: str) -> int:
        """The token of a suffix, its colon included."""
        return self._known(suffix, "suffix", SUFFIXES)

    def location(self, name: str) -> int:
        """The token of a place where buffers live."""
        return self._known(f"@{name}", "word", WORDS)

    def fraction(self, spelled: str) -> int:
        """The token of a number with a point or an exponent."""
        return self._known(spelled, "fraction", FRACTIONS)

    def number(self, digits: str) -> list[int]:
        """The tokens of a whole number: one, or ``<number>`` and its digits."""
        known = self.ids.get(digits)
        return [self.ids[NUMBER], *(self.ids[d] for d in digits)] if known is None else [known]

    def _known(self, word: str, bucket: str, count: int) -> int:
        known = self.ids.get(word)
        return self.ids[f"{bucket}{crc32(word.encode()) % count}"] if known is None else known
