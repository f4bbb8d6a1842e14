"""Encodes histories: the network of a section, and what it makes of the last events of each node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import SequenceSection, model_kind
from graphbox.errors import UsageError
from graphbox.models.sequence_blocks import SequenceNetwork
from graphbox.train.compressed import CompressedRows
from graphbox.train.sequences.windows import last_windows, pack
from graphbox.train.transfer import tensor_on

_HISTORIES = 1024
"""Histories that are encoded at once."""


def make_network(config: SequenceSection) -> SequenceNetwork:
    """Return the network of a section, with parameters as torch draws them."""
    network: SequenceNetwork = resolve_name(config.NETWORK).of(config)
    return network


@torch.no_grad()
def encode_histories(
    network: SequenceNetwork, items: Tensor, histories: CompressedRows, window: int
) -> Tensor:
    """Return the vectors of each history, by its last events; zeros of those without events.

    Args:
        network: in evaluation mode.
        items: float32 [items, dim], their rows, on the device of the network.
        histories: items of the events of each, in their order.
        window: most events that are read.

    Returns:
        float32 [histories, vectors * dim] on the device of the network.
    """
    start, length = last_windows(histories, window)
    vectors = items.new_zeros(len(start), network.vectors * items.shape[1])
    present = np.flatnonzero(length)
    for first in range(0, len(present), _HISTORIES):
        rows = present[first : first + _HISTORIES]
        packed = pack(histories.values, start[rows], length[rows])
        made = network(items[tensor_on(packed.items, items.device)], packed.shapes)
        vectors[tensor_on(rows, items.device)] = made[tensor_on(packed.last, items.device)]
    return vectors


@dataclass(frozen=True, eq=False)
class SequenceEncoder:
    """A trained network of histories; rows of items are those that it is given.

    Attributes:
        config: the section that it was trained by.
        network: on the CPU, in evaluation mode.
    """

    config: SequenceSection
    network: SequenceNetwork

    @staticmethod
    def of_state(kind: str, settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> SequenceEncoder:
        """Return the encoder that a kind, the settings of its section and a ``state_dict`` describe."""
        section = model_kind(kind).section.model_validate_json(json.dumps(dict(settings)))
        if not isinstance(section, SequenceSection):
            raise UsageError(f"expected a model of sequences, received one of kind {kind}")
        network = make_network(section)
        network.load_state_dict(dict(state))
        return SequenceEncoder(section, network.eval())

    def encode(self, items: NDArray[np.float32], histories: CompressedRows) -> NDArray[np.float32]:
        """Return the vectors of each history: float32 [histories, vectors * dim].

        See :func:`encode_histories`.

        Args:
            items: float32 [items, dim].
            histories: items of the events of each, in their order.
        """
        rows = torch.from_numpy(np.require(items, np.float32, ["C", "W"]))
        found: NDArray[np.float32] = encode_histories(
            self.network, rows, histories, self.config.window
        ).numpy()
        return found
