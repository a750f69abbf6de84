"""All plants."""

from __future__ import annotations

from planting.assembly import INSTRUCTIONS
from planting.assembly_calls import CALLED
from planting.assembly_streams import PACKED, STRANGE, STREAMS
from planting.c_arm import ARM
from planting.c_calls import C_CALLS
from planting.c_process import PROCESS
from planting.c_slips import SLIPS
from planting.c_strangers import STRANGERS
from planting.c_vectors import C_VECTORS
from planting.gpu import GRIDS
from planting.plant import unique
from planting.shared import SHARED

#: By family: the same fault may have the same name in another family.
PLANTS = tuple(
    plant
    for plants in (
        unique((*SHARED, *C_VECTORS, *ARM, *SLIPS, *C_CALLS, *PROCESS, *STRANGERS)),
        unique(GRIDS),
        unique((*INSTRUCTIONS, *STREAMS, *PACKED, *STRANGE, *CALLED)),
    )
    for plant in plants
)
