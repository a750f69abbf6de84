"""Assembly text to a :class:`~perfdojo_riscv_snitch.program.Program`.

Two passes: the first splits the text into items of known size and gives every label its address, the
second encodes. Between them, a conditional branch that does not reach its target becomes the opposite
one around a jump, as in GNU's assembler. Code starts at 0x80000000; every section that is not ``.text``
goes to TCDM, one after the other from 0x10000000.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace

from perfdojo_riscv_snitch.assembly.encode import OperandError, encode
from perfdojo_riscv_snitch.assembly.expressions import ExpressionError, UnknownSymbolError, evaluate, low12
from perfdojo_riscv_snitch.assembly.instructions import INSTRUCTIONS
from perfdojo_riscv_snitch.assembly.pseudo import expand, with_immediate
from perfdojo_riscv_snitch.assembly.registers import FLOAT, INTEGER
from perfdojo_riscv_snitch.errors import SnitchError, assembly_error
from perfdojo_riscv_snitch.program import CODE_BASE, TCDM_BASE, TCDM_BYTES, Program, SourceLine
from perfdojo_sdk.core.errors import closest

_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$]*|\d+)\s*:")
_SYMBOL = re.compile(r"[A-Za-z_.$][\w.$]*\Z")
_INTEGERS = {
    ".byte": 1, ".2byte": 2, ".half": 2, ".short": 2, ".4byte": 4, ".word": 4, ".long": 4,
    ".8byte": 8, ".dword": 8, ".quad": 8,
}  # fmt: skip
_FLOATS = {".float": "<f", ".single": "<f", ".double": "<d", ".float16": "<e", ".half_float": "<e"}
_IGNORED = {
    ".globl", ".global", ".local", ".weak", ".hidden", ".type", ".size", ".option", ".attribute", ".file",
    ".ident", ".loc", ".addrsig", ".addrsig_sym",
}  # fmt: skip
_SECTIONS = {".text", ".data", ".rodata", ".bss", ".sdata", ".sbss", ".tcdm"}

#: Conditional branch -> the branch with the opposite condition.
OPPOSITE = {"beq": "bne", "bne": "beq", "blt": "bge", "bge": "blt", "bltu": "bgeu", "bgeu": "bltu"}
#: Bytes of a branch around a jump.
LONG_BRANCH = 8


@dataclass
class _Item:
    """A piece of a section: an instruction, or data."""

    line: SourceLine
    address: int
    section: _Section
    size: int
    mnemonic: str = ""
    operands: list[str] = field(default_factory=list)
    width: int = 0
    """Bytes of one integer of a data item."""
    content: bytes = b""
    step: int = 0
    """The alignment in bytes, for an alignment directive."""
    part: str = ""
    """The text to underline in an error."""


@dataclass
class _Section:
    name: str
    base: int
    size: int = 0

    @property
    def here(self) -> int:
        return self.base + self.size

    @property
    def is_code(self) -> bool:
        return self.name.startswith(".text")


def assemble(text: str, file: str = "") -> Program:
    """Assemble ``text``. SnitchError (PD-S011) names the line and underlines the part."""
    return _Assembler(text, file).run()


class _Assembler:
    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.lines = [SourceLine(k, line) for k, line in enumerate(_without_comments(text).split("\n"), 1)]
        self.originals = [SourceLine(k, line) for k, line in enumerate(text.split("\n"), 1)]
        self.items: list[_Item] = []
        #: Constants, and after the layout the addresses of labels.
        self.symbols: dict[str, int] = {}
        #: Label -> index of its item; data moves with its section until the layout is known.
        self.labels: dict[str, int] = {}
        self.numbered: dict[str, list[int]] = {}
        self.pcrel: dict[int, int] = {}
        self.text = _Section(".text", CODE_BASE)
        self.sections: dict[str, _Section] = {".text": self.text}
        self.current = self.text
        self.line = SourceLine(1, "")

    # -- first pass --------------------------------------------------------------------------------

    def run(self) -> Program:
        for line in self.lines:
            self.line = self.originals[line.number - 1]
            for statement in _statements(line.text):
                self.statement(statement)
        self.place_data()
        self.lengthen_branches()
        return self.encode()

    def fail(self, what: str, part: str = "", why: str = "") -> SnitchError:
        return assembly_error(what, self.line, part, self.file, why)

    def statement(self, statement: str) -> None:
        while match := _LABEL.match(statement):
            self.define_label(match.group(1))
            statement = statement[match.end() :]
        words = statement.split(None, 1)
        if not words:
            return
        name, rest = words[0].lower(), words[1].strip() if len(words) > 1 else ""
        assignment = re.match(r"([A-Za-z_.$][\w.$]*)\s*=(?!=)\s*(.+)\Z", statement.strip())
        if assignment:
            self.define_constant(assignment.group(1), assignment.group(2))
        elif name == ".insn":
            self.instruction(name, _split(rest), statement.strip())
        elif name.startswith("."):
            self.directive(name, rest, statement.strip())
        else:
            self.instruction(name, _split(rest), statement.strip())

    def define_label(self, name: str) -> None:
        if name.isdigit():
            self.numbered.setdefault(name, []).append(len(self.items))
            self.items.append(_Item(self.line, self.current.here, self.current, 0, part=name))
            return
        if name in self.symbols or name in self.labels:
            raise self.fail(f"{name!r} is defined twice", name)
        self.labels[name] = len(self.items)
        self.items.append(_Item(self.line, self.current.here, self.current, 0, part=name))

    def define_constant(self, name: str, expression: str) -> None:
        value = self.constant(expression)
        if value is None:
            raise self.fail(f"the value of {name!r} is not known here", expression)
        self.symbols[name] = value

    def constant(self, expression: str) -> int | None:
        """The value if it depends on no address."""

        try:
            return evaluate(expression, self.symbols.get)
        except UnknownSymbolError:
            return None
        except ExpressionError as error:
            raise self.fail(str(error), expression) from None

    def append(self, item: _Item) -> None:
        self.items.append(item)
        self.current.size += item.size

    def instruction(self, name: str, operands: list[str], part: str) -> None:
        if not self.current.is_code:
            raise self.fail(f"an instruction in section {self.current.name}", part, "only .text holds code")
        steps = None
        if name != ".insn" and name not in INSTRUCTIONS or (name in ("jal", "jalr", "fence", "frep.o")):
            steps = expand(name, operands, self.constant)
        if steps is None and name in INSTRUCTIONS and len(operands) == 3 and not _is_register(operands[2]):
            steps = with_immediate(name, operands)
        if steps is None:
            steps = [(name, operands)]
        for mnemonic, words in steps:
            if mnemonic != ".insn" and mnemonic not in INSTRUCTIONS:
                raise self.fail(f"no instruction {name!r}", name, closest(name, list(INSTRUCTIONS)))
            self.append(_Item(self.line, self.current.here, self.current, 4, mnemonic, words, part=part))

    # -- directives --------------------------------------------------------------------------------

    def directive(self, name: str, rest: str, part: str) -> None:
        if name in _IGNORED or name.startswith(".cfi_"):
            return
        if name == ".section":
            self.switch(rest.split(",")[0].strip().strip('"'))
        elif name in _SECTIONS:
            self.switch(name)
        elif name in _INTEGERS:
            self.integers(_split(rest), _INTEGERS[name], part)
        elif name in _FLOATS:
            content = b"".join(struct.pack(_FLOATS[name], self.number(word)) for word in _split(rest))
            self.data(content, part)
        elif name in (".zero", ".space", ".skip"):
            count, fill = self.count_and_fill(rest, part)
            self.data(bytes([fill]) * count, part)
        elif name in (".align", ".p2align", ".balign"):
            self.align(name, rest, part)
        elif name in (".equ", ".set"):
            symbol, _, value = rest.partition(",")
            if not _SYMBOL.match(symbol.strip()) or not value:
                raise self.fail(f"{name} needs a name and a value", part)
            self.define_constant(symbol.strip(), value)
        elif name == ".org":
            self.origin(rest, part)
        elif name in (".ascii", ".asciz", ".string"):
            self.data(self.string(rest) + (b"" if name == ".ascii" else b"\0"), part)
        else:
            raise self.fail(f"no directive {name}", name)

    def switch(self, name: str) -> None:
        self.current = self.sections.setdefault(name, _Section(name, 0))
        if name.startswith(".text"):
            self.current = self.text

    def number(self, word: str) -> float:
        try:
            return float.fromhex(word) if "0x" in word.lower() else float(word)
        except (ValueError, OverflowError):
            raise self.fail(f"{word!r} is not a number", word) from None

    def count_and_fill(self, rest: str, part: str) -> tuple[int, int]:
        values = [self.constant(word) for word in _split(rest)]
        if not values or any(v is None for v in values) or not 0 <= (values[0] or 0) <= 1 << 20:
            raise self.fail("a size that is known here is needed", part)
        return values[0] or 0, (values[1] or 0) & 255 if len(values) > 1 else 0

    def integers(self, words: list[str], width: int, part: str) -> None:
        size = width * len(words)
        self.append(_Item(self.line, self.current.here, self.current, size, "", words, width, part=part))

    def data(self, content: bytes, part: str) -> None:
        item = _Item(self.line, self.current.here, self.current, len(content), part=part)
        item.content = content
        self.append(item)

    def align(self, name: str, rest: str, part: str) -> None:
        value = self.constant(_split(rest)[0]) if rest else None
        if value is None or not 0 <= value <= 4096 or (name != ".balign" and value > 12):
            raise self.fail(f"{name} needs a small power of two", part)
        step = value if name == ".balign" else 1 << value
        if step > 1:
            gap = -self.current.size % step
            self.data(_filler(gap) if self.current.is_code else bytes(gap), part)
            self.items[-1].step = step

    def origin(self, rest: str, part: str) -> None:
        value = self.constant(rest)
        if value is None or not self.current.size <= value <= 1 << 20:
            raise self.fail(".org cannot go back", part)
        self.data(bytes(value - self.current.size), part)

    def string(self, rest: str) -> bytes:
        match = re.match(r'"((?:\\.|[^"\\])*)"\s*\Z', rest)
        if not match:
            raise self.fail("a string in double quotes is needed", rest)
        escapes = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
        text = re.sub(r"\\(.)", lambda m: escapes.get(m.group(1), m.group(1)), match.group(1))
        return text.encode()

    # -- second pass -------------------------------------------------------------------------------

    def place_data(self) -> None:
        """Lay the data sections out in TCDM, and give labels their addresses."""
        at = TCDM_BASE
        for section in self.sections.values():
            if not section.is_code:
                section.base = at = at + -at % 8
                at += section.size
        if at > TCDM_BASE + TCDM_BYTES:
            raise self.fail(f"{at - TCDM_BASE} bytes of data do not fit into TCDM", "")
        for item in self.items:
            if not item.section.is_code:
                item.address += item.section.base
        self.symbols |= {name: self.items[index].address for name, index in self.labels.items()}

    def lengthen_branches(self) -> None:
        """Make long every branch that does not reach its target; repeat, since long ones move code apart."""
        while far := [item for k, item in enumerate(self.items) if self._is_far(item, k)]:
            for item in far:
                item.size = LONG_BRANCH
            self.place_code()

    def _is_far(self, item: _Item, index: int) -> bool:
        if item.mnemonic not in OPPOSITE or item.size == LONG_BRANCH or len(item.operands) != 3:
            return False
        self.line = item.line
        return not -(1 << 12) <= self.value(item.operands[2], item, index) - item.address < 1 << 12

    def place_code(self) -> None:
        """Give the code new addresses after some of its items have grown."""
        self.text.size = 0
        for item in self.items:
            if item.section.is_code:
                item.address = self.text.here
                if item.step:
                    item.content = _filler(-self.text.size % item.step)
                    item.size = len(item.content)
                self.text.size += item.size
        self.symbols |= {name: self.items[index].address for name, index in self.labels.items()}

    def encode(self) -> Program:
        words: list[int] = []
        data: list[tuple[int, bytes]] = []
        lines: dict[int, SourceLine] = {}
        code = bytearray()
        for index, item in enumerate(self.items):
            self.line = item.line
            content = self.content(item, index)
            if not content:
                continue
            if item.section.is_code:
                code += content
                if item.mnemonic:
                    line = replace(item.line, statement=item.part)
                    lines |= dict.fromkeys(range(item.address, item.address + item.size, 4), line)
            else:
                data.append((item.address, content))
        if len(code) % 4:
            code += bytes(-len(code) % 4)
        words = list(struct.unpack(f"<{len(code) // 4}I", bytes(code)))
        entry = self.symbols.get("_start", CODE_BASE)
        return Program(tuple(words), CODE_BASE, entry, tuple(data), self.symbols, lines, self.file)

    def content(self, item: _Item, index: int) -> bytes:
        if item.size == LONG_BRANCH and item.mnemonic in OPPOSITE:
            return self.long_branch(item, index)
        if item.mnemonic:
            return struct.pack("<I", self.word(item, index))
        if not item.width:
            return item.content
        mask = (1 << 8 * item.width) - 1
        values = [self.value(word, item, index) for word in item.operands]
        return b"".join((value & mask).to_bytes(item.width, "little") for value in values)

    def long_branch(self, item: _Item, index: int) -> bytes:
        """The opposite branch around a jump to the target."""
        *sources, target = item.operands
        around = replace(item, mnemonic=OPPOSITE[item.mnemonic], operands=[*sources, f".+{LONG_BRANCH}"])
        jump = replace(item, address=item.address + 4, mnemonic="jal", operands=["x0", target])
        return struct.pack("<2I", self.word(around, index), self.word(jump, index))

    def word(self, item: _Item, index: int) -> int:
        try:
            word = encode(item.mnemonic, item.operands, item.address, lambda e: self.value(e, item, index))
        except OperandError as error:
            raise self.fail(str(error), item.part) from None
        if item.mnemonic == "auipc" and (match := re.match(r"%pcrel_hi\((.*)\)\Z", item.operands[1].strip())):
            self.pcrel[item.address] = self.value(match.group(1), item, index) - item.address
        return word

    def value(self, expression: str, item: _Item, index: int) -> int:
        def lookup(name: str) -> int | None:
            if name == ".":
                return item.address
            if name.startswith("%pcrel_lo "):
                label = lookup(name.split()[1])
                offset = None if label is None else self.pcrel.get(label)
                return None if offset is None else low12(offset)
            if name[:-1].isdigit() and name[-1] in "fb":
                return self.numbered_label(name, index)
            return self.symbols.get(name)

        try:
            return evaluate(expression, lookup)
        except ExpressionError as error:
            raise self.fail(str(error), expression.strip()) from None

    def numbered_label(self, name: str, index: int) -> int | None:
        places = self.numbered.get(name[:-1], [])
        candidates = [k for k in places if k < index] if name[-1] == "b" else [k for k in places if k > index]
        if not candidates:
            return None
        return self.items[candidates[-1] if name[-1] == "b" else candidates[0]].address


def _filler(size: int) -> bytes:
    """``size`` bytes of code that do nothing."""
    return b"\x13\0\0\0" * (size // 4)


def _is_register(word: str) -> bool:
    return word in INTEGER or word in FLOAT


def _without_comments(text: str) -> str:
    """The text with comments blanked, line structure kept; strings are left alone."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*|#[^\n]*', re.DOTALL)

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found[0] == '"' else re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def _statements(line: str) -> list[str]:
    if '"' not in line:
        return line.split(";")
    return list(re.findall(r'(?:"(?:\\.|[^"\\])*"|[^;"])+', line))


def _split(operands: str) -> list[str]:
    """Split operands at commas outside of brackets and quotes."""
    parts, depth, start = [], 0, 0
    for k, char in enumerate(operands):
        if char in "()":
            depth += 1 if char == "(" else -1
        elif char == "," and depth == 0 and operands[k - 1 : k + 2] != "','":
            parts.append(operands[start:k].strip())
            start = k + 1
    last = operands[start:].strip()
    return [*parts, last] if last or parts else []
