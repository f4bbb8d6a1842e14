"""Base of all loaders: epochs in passes of batches, made ahead by threads, resumed where they stopped."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from graphbox.errors import UsageError
from graphbox.native import Int64Array, epoch_number, thread_count
from graphbox.sample.adjacency import GraphLike, is_tiered
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_neighbor import DeviceSampler
from graphbox.sample.fetched_lists import ListBudget
from graphbox.sample.loader.arguments import part_numbers, positive_integer, seconds, untiered
from graphbox.sample.loader.assemble import assembly
from graphbox.sample.loader.batch import Batch, Seeds
from graphbox.sample.loader.device import (
    DevicePass,
    DevicePassSampler,
    check_device_options,
    device_fetch,
    device_of_batches,
)
from graphbox.sample.loader.edge_features import EdgeFeatures
from graphbox.sample.loader.features import MemoryFetch, feature_names
from graphbox.sample.loader.options import LoaderOptions
from graphbox.sample.loader.order import seed_order
from graphbox.sample.loader.prefetch import OrderedPrefetch, Prefetching
from graphbox.sample.loader.stages import (
    Features,
    FetchStage,
    MemoryStages,
    Neighborhood,
)
from graphbox.sample.loader.streams import DeviceStreams
from graphbox.sample.loader.tiered import TieredStages
from graphbox.sample.sampled import HeteroSample
from graphbox.sample.sampler import sampler_of
from graphbox.sample.sampling_plan import SampleRequest
from graphbox.table.rows_ahead import RowsAhead

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph

_THREAD_NAME = "graphbox-loader"


@dataclass(frozen=True, slots=True)
class Drawn:
    """The first stage of a batch.

    Attributes:
        request: what to sample.
        seeds: what the seeds are.
        tree_labels: int64, what the batch calls each tree of a disjoint sample; None: its number.
    """

    request: SampleRequest
    seeds: Seeds
    tree_labels: Int64Array | None = None

    def labelled(self, sample: HeteroSample[Int64Array]) -> HeteroSample[Int64Array]:
        """Return the sample with its trees called as the batch calls them."""
        if self.tree_labels is None:
            return sample
        return replace(sample, trees={name: self.tree_labels[tree] for name, tree in sample.trees.items()})


@dataclass(slots=True)
class _Position:
    """The next batch of a loader, or of a loop over one."""

    epoch: int = 0
    batch: int = 0


class LoaderIterator(Iterator[Any]):
    """The batches of one epoch. Dropping it or :meth:`close` ends the threads that make them."""

    def __init__(
        self,
        passes: OrderedPrefetch[list[Any]],
        position: _Position,
        stream: Generator[Any, None, None] | None = None,
        streams: DeviceStreams | None = None,
    ) -> None:
        self._passes = passes
        self._streams = streams
        self._stream = stream
        self._made: deque[Any] = deque()
        self._position = position

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        while not self._made:
            self._made.extend(next(self._passes))
        self._position.batch += 1
        made = self._made.popleft()
        return made if self._streams is None else self._streams.receive(made)

    def close(self) -> None:
        """End the threads, and wait until they have finished the batches they are at."""
        self._made.clear()
        self._passes.close()
        if self._stream is not None and self._passes.is_own_process:
            self._stream.close()


class Loader(ABC):
    """Iterates over batches; see :class:`graphbox.sample.NeighborLoader`."""

    def __init__(
        self,
        graph: GraphLike | TieredGraph | DeviceGraph,
        batch_size: int,
        neighbors: Neighborhood,
        loading: LoaderOptions,
        *,
        part: tuple[int, int] = (0, 1),
        fetched_lists: ListBudget | None = None,
        has_times: bool = False,
    ) -> None:
        self._graph = untiered(graph)
        on_device = graph if isinstance(graph, DeviceGraph) else None
        device = device_of_batches(on_device, loading.device)
        tables = loading.tables or {}
        self._streams = None if device is None else DeviceStreams(device)
        self._neighbors = neighbors
        self._batch_size = positive_integer(batch_size, "batch_size")
        self._shuffle_block = positive_integer(loading.shuffle_block, "shuffle_block")
        self._options = loading
        self._part = part_numbers(part)
        self._threads = (
            1
            if on_device is not None and loading.num_threads is None
            else thread_count(loading.num_threads, "num_threads")
        )
        self._prefetch = positive_integer(loading.prefetch, "prefetch")
        self._pass_batches = (
            1 if loading.pass_batches is None else positive_integer(loading.pass_batches, "pass_batches")
        )
        self._timeout_seconds = seconds(loading.timeout, "timeout")
        self._transform = loading.transform
        self._device_pass: DevicePass | None = None
        fetch: FetchStage | None = loading.fetch
        tiered = graph if is_tiered(graph) else None if on_device is None else on_device.tiered
        rows = RowsAhead(tables)
        # Passes are sampled one after the other, single batches at the same time.
        is_stream = tiered is not None or rows.is_needed
        self._sampler = sampler_of(
            on_device or tiered or self._graph,
            neighbors.num_neighbors,
            neighbors.options,
            neighbors.node_time,
            self._threads if is_stream or self._pass_batches > 1 else None,
        )
        pass_sampler: Any = self._sampler
        if on_device is not None:
            check_device_options(on_device, tables)
        if isinstance(self._sampler, DeviceSampler):
            self._sampler.hold(has_times=has_times)
            pass_sampler = DevicePassSampler(self._sampler)
        if on_device is not None and tiered is not None:
            self._device_pass = DevicePass([fetch], None)
        elif on_device is not None:
            fetch = fetch or device_fetch(on_device, loading.features)
            self._device_pass = DevicePass([on_device, fetch], loading.pass_batches)
            self._pass_batches = 1
        names = {} if fetch is not None else feature_names(self._graph, loading.features)
        self._passes: TieredStages | MemoryStages | None = None
        pass_batches = None if loading.pass_batches is None else self._pass_batches
        if tiered is not None:
            self._passes = TieredStages(
                tiered,
                pass_sampler,
                names,
                rows,
                pass_batches,
                fetched_lists=fetched_lists,
            )
            names = {}
        elif rows.is_needed:
            self._passes = MemoryStages(self._sampler, rows, pass_batches)
        self._fetch: FetchStage = fetch or MemoryFetch(self._graph, names)
        self._edge_features = _edge_features(self._graph, loading, is_on_device=on_device is not None)
        self._assemble = assembly(loading.output, self._graph, device)
        self._next = _Position()
        self._running: _Position | None = (
            None  # of the latest loop; not the iterator, which must be free to go
        )

    # What a kind of loader is

    @property
    @abstractmethod
    def _num_seeds(self) -> int:
        """Number of seeds of an epoch."""

    @abstractmethod
    def _seed_digest(self) -> str:
        """A digest of the seeds: loaders with the same have the same."""

    @abstractmethod
    def _draw(self, chosen: Int64Array, epoch: int, batch: int) -> Drawn:
        """Return the first stage of a batch: ``chosen`` are positions among the seeds."""

    # Epochs

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        full, rest = divmod(self._num_seeds, self._batch_size)
        return full + (1 if rest and not self._options.drop_last else 0)

    @property
    def epoch(self) -> int:
        """Number of the next epoch."""
        return self._next.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass over the loader that of ``epoch``, from its first batch."""
        self._next = _Position(epoch_number(epoch))
        self._running = None

    def __iter__(self) -> LoaderIterator:
        epoch, first = self._next.epoch, self._next.batch
        order = self._order(epoch)
        stream = None
        if self._passes is None:
            numbers = range(-(-(len(self) - first) // self._pass_batches))
            made = OrderedPrefetch(
                partial(self._make_pass, order, epoch, first),
                numbers,
                partial(self._name, epoch, first),
                self._prefetching(),
            )
        else:
            stream = self._stream(self._passes, order, epoch, first)
            made = OrderedPrefetch(
                partial(self._next_of, stream),
                range(first, len(self)),
                lambda batch: f"batch {batch} of epoch {epoch}",
                Prefetching(1, self._prefetch, self._timeout_seconds, _THREAD_NAME),
            )
        self._next = _Position(epoch_number(epoch + 1))
        self._running = _Position(epoch, first)
        return LoaderIterator(made, self._running, stream, self._streams)

    def _order(self, epoch: int) -> Int64Array:
        return seed_order(
            self._num_seeds,
            shuffle=self._options.shuffle,
            block=self._shuffle_block,
            seed=self._neighbors.options.seed,
            epoch=epoch,
        )

    def _prefetching(self) -> Prefetching:
        threads, ahead = (
            (self._threads, self._threads * self._prefetch) if self._pass_batches == 1 else (1, 1)
        )
        return Prefetching(threads, ahead, self._timeout_seconds, _THREAD_NAME)

    def _numbers(self, first: int, number: int) -> range:
        """Return the batches of a pass of an epoch that starts with batch ``first``."""
        begin = first + number * self._pass_batches
        return range(begin, min(begin + self._pass_batches, len(self)))

    def _name(self, epoch: int, first: int, number: int) -> str:
        batches = self._numbers(first, number)
        which = f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
        return f"{which} of epoch {epoch}"

    def _chosen(self, order: Int64Array, batch: int) -> Int64Array:
        """Return the positions of a batch's seeds, or of this loader's part of them."""
        chosen = order[batch * self._batch_size : (batch + 1) * self._batch_size]
        part, parts = self._part
        return chosen[part * len(chosen) // parts : (part + 1) * len(chosen) // parts]

    # Stages

    def _make_pass(self, order: Int64Array, epoch: int, first: int, number: int) -> list[Any]:
        numbers = self._numbers(first, number)
        drawn = [self._draw(self._chosen(order, batch), epoch, batch) for batch in numbers]
        with self._making():
            with self._sampling():
                samples = self._sampler.sample([each.request for each in drawn])
            return self._batches(epoch, numbers, drawn, samples, [{} for _ in numbers])

    def _batches(
        self,
        epoch: int,
        numbers: range,
        drawn: Sequence[Drawn],
        samples: Sequence[HeteroSample[Any]],
        read: Sequence[Features],
    ) -> list[Any]:
        """Return batches that were sampled as they are handed out; ``read`` are features that are there."""
        samples = [each.labelled(sample) for each, sample in zip(drawn, samples, strict=True)]
        made = []
        with self._fetching(samples):
            fetched = self._fetch.fetch(samples)
            for batch, each, sample, own, rows in zip(numbers, drawn, samples, read, fetched, strict=True):
                edges = self._edge_features.fetch(sample)
                made.append(self._finished(Batch(epoch, batch, sample, own | rows, each.seeds, edges)))
        if self._device_pass is not None:
            self._device_pass.count(len(made), is_last=numbers[-1] + 1 == len(self))
        return made

    def _finished(self, batch: Batch[Any]) -> Any:
        """Return a batch as it is handed out; on a device with the event after which it is there."""
        data = self._assemble(batch)
        data = data if self._transform is None else self._transform(data)
        return data if self._streams is None else self._streams.made(data)

    def _making(self) -> AbstractContextManager[None]:
        return nullcontext() if self._streams is None else self._streams.making()

    def _sampling(self) -> AbstractContextManager[None]:
        return nullcontext() if self._streams is None else self._streams.sampling()

    def _fetching(self, *sampled: Any) -> AbstractContextManager[None]:
        return nullcontext() if self._streams is None else self._streams.fetching(*sampled)

    def _stream(
        self, stages: TieredStages | MemoryStages, order: Int64Array, epoch: int, first: int
    ) -> Generator[Any, None, None]:
        """Give the batches of an epoch that reads from disk; one thread at a time continues it."""
        drawn: deque[Drawn] = deque()

        def requests() -> Iterator[SampleRequest]:
            for batch in range(first, len(self)):
                drawn.append(self._draw(self._chosen(order, batch), epoch, batch))
                yield drawn[-1].request

        with closing(stages.batches(requests())) as batches:
            for batch, (sample, rows) in enumerate(batches, first):
                with self._making():
                    made = self._batches(epoch, range(batch, batch + 1), [drawn.popleft()], [sample], [rows])
                yield from made

    def _next_of(self, stream: Generator[Any, None, None], batch: int) -> list[Any]:
        made = [next(stream)]
        if batch + 1 == len(self):
            next(stream, None)  # so that it ends as it should, and keeps its rows for the next loop
        return made

    # Resuming

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is, as plain values (JSON can hold them).

        During a loop the next batch is the one after the last that the loop has received, whatever the
        threads have made ahead. A loop left by ``break`` counts until the next one begins.
        """
        running = self._running
        position = running if running is not None and running.batch < len(self) else self._next
        return {"epoch": position.epoch, "batch": position.batch, "settings": self._settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where :meth:`state_dict` was taken: the next loop yields the batches that were left.

        They are bit for bit those the other loader would have yielded, whatever the number of threads.

        Raises:
            UsageError: the state is of a loader with other seeds or settings, or is none.
        """
        try:
            epoch, batch, settings = state["epoch"], state["batch"], dict(state["settings"])
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                "expected what state_dict returns, with epoch, batch and settings, received "
                + (f"the keys {', '.join(map(str, state))}" if isinstance(state, Mapping) else repr(state)),
                where="state",
            ) from None
        own = self._settings()
        different = [
            f"{name} {settings.get(name)!r}, here {value!r}"
            for name, value in own.items()
            if settings.get(name) != value
        ]
        if different:
            raise UsageError(
                f"expected the state of a loader with the same seeds and settings, received one with "
                f"{'; '.join(different)}",
                where="state",
                hint="make the loader with the arguments it had when the state was taken",
            )
        if isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch <= len(self):
            raise UsageError(f"expected a batch from 0 to {len(self)}, received {batch!r}", where="state")
        self._next = _Position(epoch_number(epoch), batch)
        self._running = None

    def _settings(self) -> dict[str, Any]:
        """Return everything batches depend on besides the graph."""
        options, node_times = self._neighbors.options, self._neighbors.node_times
        hops = self._neighbors.num_neighbors
        text = (
            sorted((str(key), list(value)) for key, value in hops.items())
            if isinstance(hops, Mapping)
            else hops
        )
        return {
            "seeds": self._seed_digest(),
            "batch_size": self._batch_size,
            "shuffle": bool(self._options.shuffle),
            "shuffle_block": self._shuffle_block,
            "drop_last": bool(self._options.drop_last),
            "num_neighbors": str(list(text)),
            "replace": bool(options.replace),
            "weight_attr": options.weight_attr,
            "disjoint": bool(options.disjoint),
            "temporal_strategy": options.temporal_strategy,
            "node_times": None if node_times is None else node_times.name,
            "seed": options.seed,
        }


def digest(*arrays: Any) -> str:
    """Return a digest of arrays, text and None."""
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        state.update(repr(array).encode() if array is None or isinstance(array, str) else array.tobytes())
        state.update(b"|")
    return state.hexdigest()


def _edge_features(graph: GraphLike, loading: LoaderOptions, *, is_on_device: bool) -> EdgeFeatures:
    """Return what gathers features of edges.

    Raises:
        UsageError: an edge feature has the name of a node feature, which ``Data`` holds side by side.
        UnsupportedError: edge features are named for a loader on a device.
    """
    if is_on_device:
        found = EdgeFeatures(graph, loading.edge_features or ())
        found.check_host()
        return found
    found = EdgeFeatures(graph, loading.edge_features)
    if loading.output == "pyg" and len(graph.node_types) == 1 and len(graph.edge_types) == 1:
        columns = getattr(graph, "node_columns", None)
        shared = found.names & set(columns(graph.node_types[0]) if columns else ())
        if shared:
            raise UsageError(
                f"expected features of edges with names of their own, nodes have `{min(shared)}` as well",
                where="edge_features",
                hint="name the features of edges to read, or ask for output='torch'",
            )
    return found
