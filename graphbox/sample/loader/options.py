"""Options of loaders: the keyword arguments that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from graphbox.sample.loader.arguments import refuse_unknown
from graphbox.sample.loader.assemble import Output
from graphbox.sample.loader.edge_features import EdgeFeatureNames
from graphbox.sample.loader.features import FeatureNames
from graphbox.sample.loader.stages import FetchStage
from graphbox.sample.options import NeighborKeywords, NeighborOptions

if TYPE_CHECKING:
    import torch

    from graphbox.table.protocol import Table


class LoaderKeywords(NeighborKeywords, total=False):
    """Keyword arguments of loaders: see :class:`LoaderOptions` and ``NeighborOptions``."""

    shuffle: bool
    shuffle_block: int
    drop_last: bool
    features: FeatureNames
    fetch: FetchStage | None
    edge_features: EdgeFeatureNames
    output: Output
    transform: Callable[[Any], Any] | None
    num_threads: int | None
    prefetch: int
    pass_batches: int | None
    timeout: float
    tables: Mapping[str, Table] | None
    device: torch.device | str | None


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """Options of loaders, which take them as keyword arguments, beside those of ``NeighborOptions``.

    Attributes:
        shuffle: seeds in another order each epoch.
        shuffle_block: how many seeds that follow each other stay together when they are shuffled. 1: none.
            Where they are near each other (node indices ascend, or follow a breadth-first search; all edges
            of a graph follow each other by target), batches read fewer different nodes, and fewer blocks of
            the disk; they are less random, so take blocks much smaller than ``batch_size``.
        drop_last: leave out a last batch that is not full.
        features: names of node features to put into the batch under their names, by node type; a sequence
            where there is one type. None: all that the graph has, without slots; ``()``: none. Categories
            become codes (int64), slots their values and offsets (``name_ptr``).
        fetch: fetches features in place of the graph: called with samples, gives their rows. Of a
            ``DeviceGraph`` :class:`graphbox.sample.DeviceFeatures`, which several loaders can share; None:
            one of its own.
        edge_features: names of edge features to put into the batch under their names (PyTorch Geometric's
            ``edge_attr``), by edge type; a sequence where there is one type. None: all that the graph has,
            without slots, and of a ``DeviceGraph`` none; ``()``: none.
        output: ``pyg`` for ``Data`` and ``HeteroData``; ``torch`` or ``numpy`` for
            :class:`graphbox.sample.Batch` with arrays of that kind.
        transform: called with each batch in the loader's threads, with several batches at a time; what it
            returns is the batch.
        num_threads: threads that make batches ahead. None: see :func:`graphbox.native.thread_count`; of a
            ``DeviceGraph`` one.
        prefetch: batches for each thread that may wait to be used or be in the making; of a graph in tiers
            for all threads together. Bounds the memory.
        pass_batches: batches that go through the stages together: all are sampled, then the features of all
            fetched. None: one; of a graph in tiers as many as its ``pass_bytes`` hold. With more, one pass is
            made while the one before is used. Of a ``DeviceGraph``: after how many batches, and at the end of
            each epoch, its memory gets the lists and rows that were used; None: 256.
        timeout: seconds to wait for a batch; 0: no limit.
        tables: tables with a row for each node, by node type, that the loop pulls rows of the batches' nodes
            from: those with rows on SSD have them read ahead, see :class:`graphbox.table.RowsAhead`. One
            thread then makes all batches ahead.
        device: where batches are to be, whose arrays are then tensors: they are copied there ahead of their
            use, on a stream of their own. Of a ``DeviceGraph`` it is the graph's.
    """

    shuffle: bool = False
    shuffle_block: int = 1
    drop_last: bool = False
    features: FeatureNames = None
    fetch: FetchStage | None = None
    edge_features: EdgeFeatureNames = None
    output: Output = "pyg"
    transform: Callable[[Any], Any] | None = None
    num_threads: int | None = None
    prefetch: int = 2
    pass_batches: int | None = None
    timeout: float = 0
    tables: Mapping[str, Table] | None = None
    device: torch.device | str | None = None


def split_keywords(
    keywords: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[NeighborOptions, LoaderOptions]:
    """Return the options that a loader got as keyword arguments.

    Args:
        keywords: as given.
        own: the loader's other arguments by name, for messages.

    Raises:
        UsageError: an argument that the loader does not have, with what to give instead; or a wrong option.
    """
    of_neighbors = [each.name for each in fields(NeighborOptions)]
    of_loaders = [each.name for each in fields(LoaderOptions)]
    known = {*of_neighbors, *of_loaders}
    own_names = [name for name in own if name not in ("options", "return")]
    unknown = {name: value for name, value in keywords.items() if name not in known}
    refuse_unknown(unknown, (*own_names, *of_neighbors, *of_loaders))
    return (
        NeighborOptions(**{name: keywords[name] for name in of_neighbors if name in keywords}),
        LoaderOptions(**{name: keywords[name] for name in of_loaders if name in keywords}),
    )
