"""Skip-gram pairs on a device: arguments of :mod:`graphbox.sample.pairs`, checked, as kernels take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.device import on_device
from graphbox.errors import UsageError
from graphbox.native import Int64Array
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_walk import device_walkers
from graphbox.sample.walk_plan import WalkOptions

if TYPE_CHECKING:
    import torch

    from graphbox.sample.pairs_gpu import DeviceWindows
    from graphbox.sample.walk_gpu import WalkerDraws

Pairs = tuple["torch.Tensor", "torch.Tensor"]
Key = tuple[int, int, int]


def pairs_of_tensor(
    walks: torch.Tensor,
    window: int,
    column_offsets: Int64Array | None,
    dynamic_window: bool,
    keep: npt.NDArray[np.float64] | None,
    key: Key,
    out: Pairs | None,
) -> Pairs:
    """Return the pairs of walks on a device: see :func:`graphbox.sample.skip_gram_pairs`.

    Args:
        walks: integers [n, columns] on the device.
        window: as there.
        column_offsets: int64 [1, columns], or None.
        dynamic_window: as there.
        keep: float64 [keys], or None.
        key: seed, epoch, batch.
        out: as there, on the device.

    Raises:
        UsageError: a wrong argument.
        UnsupportedError: walks that are too long for kernels.
    """
    import torch

    from graphbox.sample.pairs_gpu import places_of_walks, write_pairs

    if walks.ndim != 2 or walks.dtype not in (torch.int64, torch.int32):
        raise UsageError(
            f"expected int64 or int32 with two dimensions, received {walks.dtype} {tuple(walks.shape)}",
            where="walks",
        )
    width = walks.shape[1]
    if column_offsets is not None and column_offsets.shape[1] != width:
        raise UsageError(
            f"expected a number for each of {width} columns, received {column_offsets.shape[1]}",
            where="column_offsets",
        )
    walks = walks.to(torch.int64).contiguous()
    if keep is not None and walks.numel():
        offsets = 0 if column_offsets is None else torch.from_numpy(column_offsets).to(walks.device)
        keys = torch.where(walks < 0, -1, walks + offsets)
        # Entries after the end of a walk count for nothing, but are no keys that can be looked up either.
        _check_keys(int(keys.max()), keep)
    windows = _windows(window, column_offsets, dynamic_window, keep, walks.device)
    room = _room(out, walks.device)
    with on_device(walks.device):
        places = places_of_walks(walks, windows, _draws(key, 0, len(walks), walks.device))
        return write_pairs(places, min(window, max(width - 1, 0)), room)


def device_walk_pairs(
    graph: DeviceGraph,
    start: object,
    length: int,
    window: int,
    options: WalkOptions,
    key: Key,
    *,
    type_offsets: Mapping[str, int] | None,
    dynamic_window: bool,
    keep: npt.NDArray[np.float64] | None,
    chunk_walks: int,
) -> Iterator[Pairs]:
    """Yield the pairs of walks on a device in chunks: see :func:`graphbox.sample.walk_pairs`.

    Args:
        graph: where to walk.
        start: as there.
        length: as there.
        window: as there.
        options: as there.
        key: seed, epoch, batch.
        type_offsets: as there.
        dynamic_window: as there.
        keep: float64 [keys], the probability that an occurrence of each key stays, or None.
        chunk_walks: walks of a chunk.

    Raises:
        UsageError: a wrong argument.
        UnsupportedError: an option that walks on a device do not know.
    """
    plan = device_walkers(graph, start, length, options)
    offsets = None
    if type_offsets is not None:
        missing = [name for path in plan.types for name in path if name not in type_offsets]
        if missing:
            raise UsageError(
                f"expected a number for each node type of the walks, none for {missing[0]!r}",
                where="type_offsets",
            )
        offsets = np.array([[type_offsets[name] for name in path] for path in plan.types], dtype=np.int64)
    if keep is not None:
        most = max(
            graph.num_nodes(name) - 1 + (0 if type_offsets is None else type_offsets[name])
            for path in plan.types
            for name in path
        )
        _check_keys(most, keep)
    windows = _windows(window, offsets, dynamic_window, keep, graph.device)

    def chunks() -> Iterator[Pairs]:
        from graphbox.sample.pairs_gpu import places_of_walks, write_pairs

        for first in range(0, len(plan.start), chunk_walks):
            part = slice(first, min(first + chunk_walks, len(plan.start)))
            path_of = None if plan.path_of is None else plan.path_of[part]
            with graph.reading():
                draws = _walk_draws(key, part.start, part.stop, graph.device)
                walks = plan.walker.walk(plan.start[part], path_of, draws)
                window_draws = _draws(key, part.start, part.stop, graph.device)
                pairs = write_pairs(
                    places_of_walks(walks, windows, window_draws, path_of),
                    min(window, max(walks.shape[1] - 1, 0)),
                )
            if len(pairs[0]):
                yield pairs

    return chunks()


def _windows(
    window: int,
    offsets: Int64Array | None,
    dynamic_window: bool,
    keep: npt.NDArray[np.float64] | None,
    device: torch.device,
) -> DeviceWindows:
    import torch

    from graphbox.sample.pairs_gpu import DeviceWindows, keep_thresholds

    if keep is not None:
        wrong = np.flatnonzero(~((keep >= 0) & (keep <= 1)))
        if len(wrong):
            raise UsageError(
                f"expected probabilities, 0 to 1, received {keep[wrong[0]]} for key {wrong[0]}",
                where="subsample",
                hint="keep_probability(visits, threshold) makes them",
            )
    return DeviceWindows(
        window,
        None if offsets is None else torch.from_numpy(np.ascontiguousarray(offsets)).to(device),
        dynamic_window,
        None if keep is None else keep_thresholds(keep).to(device),
    )


def _check_keys(most: int, keep: npt.NDArray[np.float64]) -> None:
    if most >= len(keep):
        raise UsageError(
            f"expected probabilities for all keys; it has {len(keep)}, there is key {most}", where="subsample"
        )


def _draws(key: Key, first: int, last: int, device: torch.device) -> WalkerDraws:
    from graphbox.sample.pairs_gpu import WINDOW_STREAM

    return _drawn_at(WINDOW_STREAM, key, first, last, device)


def _walk_draws(key: Key, first: int, last: int, device: torch.device) -> WalkerDraws:
    from graphbox.sample.walk_gpu import WALK_STREAM

    return _drawn_at(WALK_STREAM, key, first, last, device)


def _drawn_at(stream: int, key: Key, first: int, last: int, device: torch.device) -> WalkerDraws:
    """Return what walks ``first`` to ``last - 1`` of a batch draw by."""
    import torch

    from graphbox.sample.walk_gpu import WalkerDraws

    bits = _core.philox_key(stream, *key)
    signed = bits - (1 << 64) if bits >= 1 << 63 else bits
    keys = torch.full((last - first,), signed, dtype=torch.int64, device=device)
    return WalkerDraws(keys, torch.arange(first, last, device=device))


def _room(out: Pairs | None, device: torch.device) -> Pairs | None:
    import torch

    for array in out or ():
        if (
            array.dtype != torch.int64
            or array.ndim != 1
            or array.device != device
            or not array.is_contiguous()
        ):
            raise UsageError(
                f"expected contiguous int64 tensors on {device} with one dimension, received {array.dtype} "
                f"{tuple(array.shape)} on {array.device}",
                where="out",
            )
    return out
