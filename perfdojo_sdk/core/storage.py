"""Storage: buffers, the arrays that share them, and the dimensions that exist in memory."""

from __future__ import annotations

from perfdojo_sdk.core.dtypes import BYTES, bits, packed_bytes
from perfdojo_sdk.core.expression import AffineExpr, Literal, Quotients
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.table_files import TableFile

#: The word that declares a table.
TABLE = "table"
#: The word that declares a packed array.
PACKED = "packed"


@frozen
class Dimension:
    """One dimension of a buffer. The suffix ``N`` means: not materialised."""

    size: int
    suffix: str = ""

    @property
    def materialised(self) -> bool:
        return self.suffix != "N"

    @property
    def text(self) -> str:
        return f"{self.size}:{self.suffix}" if self.suffix else str(self.size)


@frozen
class Buffer:
    """Storage. All ``arrays`` of a buffer have its shape and dtype and alias each other."""

    name: str
    dtype: str
    dimensions: tuple[Dimension, ...]
    location: str
    arrays: tuple[str, ...]
    values: tuple[float | int, ...] | None = None
    """The elements of a table, row by row: constants of the program. None for any other buffer."""
    file: TableFile | None = None
    """The file that holds them, if they do not stand in the text."""
    packed: bool = False
    """True if several elements share a byte, in row-major order, the first in the lowest bits. Only inputs
    that nothing writes lie so; a buffer that a move makes of one does not."""

    @property
    def kind(self) -> str:
        """The dtype in words, and whether elements are packed."""
        return f"{PACKED} {self.dtype}" if self.packed else self.dtype

    @lazy
    def text(self) -> str:
        shape = ",".join(d.text for d in self.dimensions)
        if self.file is not None:
            return f"{self.name} {TABLE} {self.dtype} [{shape}] = {self.file.text}"
        if self.values is not None:
            listed = ", ".join([Literal(value, self.dtype).text for value in self.values])
            return f"{self.name} {TABLE} {self.dtype} [{shape}] = {{{listed}}}"
        names = "" if self.arrays == (self.name,) else f" -> {', '.join(self.arrays)}"
        return f"{self.name} {self.kind} [{shape}] {self.location}{names}"

    def with_dimensions(self, dimensions: tuple[Dimension, ...]) -> Buffer:
        """The same array, or the same layout, of another shape."""
        return Buffer(
            self.name,
            self.dtype,
            dimensions,
            self.location,
            self.arrays,
            self.values,
            self.file,
            self.packed,
        )

    @lazy
    def shape(self) -> tuple[int, ...]:
        return tuple(d.size for d in self.dimensions)

    @lazy
    def materialised(self) -> tuple[int, ...]:
        """Positions of the dimensions that exist in memory."""
        return tuple(k for k, d in enumerate(self.dimensions) if d.materialised)

    @lazy
    def strides(self) -> tuple[int, ...]:
        """Distance in cells between neighbouring indices of each dimension; 0 where they share cells."""
        found, stride = [0] * len(self.dimensions), 1
        for k in reversed(self.materialised):
            found[k] = stride
            stride *= self.dimensions[k].size
        return tuple(found)

    def address(self, subscripts: tuple[AffineExpr, ...]) -> AffineExpr:
        """The cell's number, row-major over the materialised dimensions, as a form of the levels."""
        if len(self.materialised) == 1:
            return subscripts[self.materialised[0]]
        constant = 0
        quotients: Quotients = ()
        total: dict[int, int] = {}
        for k in self.materialised:
            form, stride = subscripts[k], self.strides[k]
            constant += stride * form.constant
            for level, coefficient in form.terms:
                total[level] = total.get(level, 0) + stride * coefficient
            if form.quotients:
                quotients += tuple([(q, stride * c) for q, c in form.quotients])
        return AffineExpr.of(total, constant, quotients)

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return self.size_of(self.cells)

    @property
    def element_bytes(self) -> float:
        """Size of an element in memory: a part of a byte where several share one."""
        return bits(self.dtype) / 8 if self.packed else BYTES[self.dtype]

    def size_of(self, cells: int) -> int:
        """Bytes of so many neighbouring elements."""
        return packed_bytes(cells, self.dtype) if self.packed else cells * BYTES[self.dtype]

    @lazy
    def cells(self) -> int:
        """Number of elements in memory."""
        count = 1
        for k in self.materialised:
            count *= self.dimensions[k].size
        return count
