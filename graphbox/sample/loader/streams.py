"""Batches made on a device while another is used there: on streams of their own, handed over by events."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Made:
    """A batch, and the event after which it is there; None: it is there already."""

    batch: Any
    event: Any


class DeviceStreams:
    """The streams that batches are made on: one to sample on and one to fetch on, for each thread at it.

    So the sizes of the next batch's hops, which the host waits for, do not wait for the rows of this one.
    Threads come and go with each epoch, streams stay: samplers keep memory for each that they were used on.

    Args:
        device: where batches are made; one without streams makes them at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._lock = threading.Lock()
        self._free: list[list[torch.cuda.Stream]] = []
        self._lent = threading.local()

    @contextmanager
    def making(self) -> Iterator[None]:
        """Lend the thread streams for a batch."""
        if self.device.type != "cuda":
            yield
            return
        import torch

        with self._lock:
            streams = self._free.pop() if self._free else None
        if streams is None:
            streams = [torch.cuda.Stream(self.device) for _ in range(2)]  # type: ignore[no-untyped-call]
        self._lent.streams = streams
        try:
            yield
        finally:
            self._lent.streams = None
            with self._lock:
                self._free.append(streams)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Launch on the stream for samples, while streams are lent."""
        if self.device.type != "cuda":
            yield
            return
        import torch

        with torch.cuda.stream(self._lent.streams[0]):
            yield

    @contextmanager
    def fetching(self, *sampled: Any) -> Iterator[None]:
        """Launch on the stream for the rest, after what was launched for samples, while streams are lent.

        Args:
            sampled: what was made there and is used here.
        """
        if self.device.type != "cuda":
            yield
            return
        import torch

        for_samples, stream = self._lent.streams
        with torch.cuda.stream(stream):
            stream.wait_stream(for_samples)
            _keep(sampled, stream)
            yield

    def made(self, batch: Any) -> Made:
        """Return a batch with the event after what was launched for it; to be called while fetching."""
        if self.device.type != "cuda":
            return Made(batch, None)
        import torch

        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return Made(batch, event)

    def receive(self, made: Made) -> Any:
        """Return a batch to the current stream, which waits until it is there; the host does not."""
        if made.event is not None:
            import torch

            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(made.event)
            _keep(made.batch, stream)
        return made.batch


def _keep(value: Any, stream: torch.cuda.Stream) -> None:
    """Keep the memory of all tensors in ``value`` from being used again before ``stream`` is past them."""
    if hasattr(value, "record_stream") and hasattr(value, "data_ptr"):
        if value.is_cuda:
            value.record_stream(stream)
    elif isinstance(value, Mapping):
        for each in value.values():
            _keep(each, stream)
    elif isinstance(value, list | tuple):
        for each in value:
            _keep(each, stream)
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            _keep(getattr(value, each.name), stream)
    elif hasattr(value, "to_dict"):  # of PyTorch Geometric
        _keep(value.to_dict(), stream)
