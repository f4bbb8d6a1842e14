"""The section `memory`: how much training may take, in all and for what is kept on disk."""

from __future__ import annotations

from graphbox.config.byte_size import ByteSize, ByteSizeOrZero
from graphbox.config.section import Section


class HbmConfig(Section):
    """Budgets in the memory of the GPU, for each model by itself; what has none is placed by `graphbox plan`.

    What finds no room is in host memory that the GPU reads by itself. They change nothing without a GPU.
    """

    topology: ByteSizeOrZero | None = None
    """For the edges of all types; 0: none of them."""
    features: ByteSizeOrZero | None = None
    """For the features of nodes; 0: none of them."""
    tables: ByteSizeOrZero | None = None
    """For the rows of the embedding tables of a model together, with what their optimizers keep; 0: none."""


class MemoryConfig(Section):
    """Budgets of training; what is read from disk and has none is in memory as a whole.

    They change where things are, never a result: a run can be resumed with others.
    """

    topology: ByteSize | None = None
    """Memory for the edges of all types, like `2GiB`. With it or `features` batches are sampled from disk."""
    features: ByteSize | None = None
    """Memory for the vectors that nodes have as features; their categories, numbers and slots stay in
    memory."""
    tables: ByteSize | None = None
    """Memory for the embedding tables of a model together; rows that find no room go to files of the run."""
    passes: ByteSize | None = None
    """Memory for what is sampled ahead of batches from disk; 256 MiB when absent."""
    hbm: HbmConfig = HbmConfig()
    """Budgets in the memory of the GPU."""
    total: ByteSize | None = None
    """The most that a training may take by plan, libraries included: one that takes more is refused before it
    begins. What is available when absent; a larger number than that lets it begin in any case."""
