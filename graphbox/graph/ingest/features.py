"""Features of nodes, written to disk as their rows come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from graphbox.graph.array_file import ArrayWriter
from graphbox.graph.columns import FeatureValues, Lists
from graphbox.graph.convert import CategoricalReader, FeatureReader
from graphbox.graph.format import FolderWriter
from graphbox.graph.layout import add_strings

_BLOCK_ROWS = 1 << 20


class FeatureFile(ABC):
    """The arrays of one feature.

    Args:
        writer: writes the graph.
        name: path of the arrays without their suffixes.
        reader: reads the feature.
    """

    def __init__(self, writer: FolderWriter, name: str, reader: FeatureReader) -> None:
        self._writer = writer
        self._name = name
        self._reader = reader

    @abstractmethod
    def append(self, values: FeatureValues) -> None:
        """Write the values of some more rows."""

    @abstractmethod
    def close(self) -> dict[str, Any]:
        """Have the arrays on disk, and return what the manifest says of them."""

    @abstractmethod
    def discard(self) -> None:
        """Close temporary files; the writer of the graph looks after its arrays."""


class _Dense(FeatureFile):
    """One array; opened when the first row has shown how long a vector is."""

    _file: ArrayWriter | None = None

    def append(self, values: FeatureValues) -> None:
        self._opened().append(cast("npt.NDArray[Any]", values))

    def close(self) -> dict[str, Any]:
        return {"values": self._opened().close()}

    def discard(self) -> None:
        """There are none."""

    def _opened(self) -> ArrayWriter:
        if self._file is None:
            shape = self._reader.row_shape
            self._file = self._writer.open_array(self._name, self._reader.dtype, shape or ())
        return self._file


class _Slots(FeatureFile):
    """The values of all rows, and where each row's begin."""

    def __init__(self, writer: FolderWriter, name: str, reader: FeatureReader) -> None:
        super().__init__(writer, name, reader)
        self._values = writer.open_array(name, np.int64)
        self._offsets = writer.open_array(f"{name}-offsets", np.int64)
        self._offsets.append(np.zeros(1, np.int64))

    def append(self, values: FeatureValues) -> None:
        lists = cast("Lists", values)
        self._offsets.append(lists.offsets[1:] + self._values.num_rows)
        self._values.append(lists.values)

    def close(self) -> dict[str, Any]:
        return {"values": self._values.close(), "offsets": self._offsets.close()}

    def discard(self) -> None:
        """There are none."""


class _Categorical(FeatureFile):
    """Codes, known once all categories are: until then provisional ones stand in a temporary file."""

    def __init__(self, writer: FolderWriter, name: str, reader: FeatureReader) -> None:
        super().__init__(writer, name, reader)
        self._provisional = (writer.scratch / f"{name.replace('/', '-')}-codes").open("w+b")

    def discard(self) -> None:
        self._provisional.close()

    def append(self, values: FeatureValues) -> None:
        self._provisional.write(cast("npt.NDArray[np.int32]", values).data)

    def close(self) -> dict[str, Any]:
        categories, recode = cast("CategoricalReader", self._reader).final()
        by_code = np.append(recode, np.int32(-1))
        codes = self._writer.open_array(self._name, np.int32)
        block = np.empty(_BLOCK_ROWS, np.int32)
        self._provisional.seek(0)
        # Whole blocks but for the last one, whose bytes are whole codes as well.
        while count := self._provisional.readinto(block.data):
            codes.append(by_code[block[: count // block.itemsize]])
        self._provisional.close()
        return {
            "values": codes.close(),
            "categories": add_strings(self._writer, f"{self._name}-categories", categories),
        }


def feature_file(writer: FolderWriter, name: str, reader: FeatureReader) -> FeatureFile:
    """Return what writes the feature that ``reader`` reads."""
    files: dict[str, type[FeatureFile]] = {"slots": _Slots, "categorical": _Categorical}
    return files.get(reader.kind, _Dense)(writer, name, reader)
