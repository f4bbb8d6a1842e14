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

__all__ = ["DeviceStreams", "Made"]


@dataclass(slots=True)
class Made:
    """A batch, and the event after which it is there; None: it is there already."""

    batch: Any
    event: Any


class DeviceStreams:
    """The streams of threads that make batches: each has one to sample on and one to fetch on.

    So the sizes of the next batch's hops, which the host waits for, do not wait for the rows of this one.

    Args:
        device: where batches are made; one without streams makes them at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._of_thread = threading.local()

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Launch on the thread's stream for samples."""
        with self._launching(0):
            yield

    @contextmanager
    def fetching(self, *sampled: Any) -> Iterator[None]:
        """Launch on the thread's stream for the rest, after what was launched for samples.

        Args:
            sampled: what was made there and is used here.
        """
        with self._launching(1) as streams:
            if streams is not None:
                streams[1].wait_stream(streams[0])
                _keep(sampled, streams[1])
            yield

    @contextmanager
    def _launching(self, number: int) -> Iterator[Any]:
        if self.device.type != "cuda":
            yield None
            return
        import torch

        streams = getattr(self._of_thread, "streams", None)
        if streams is None:
            streams = [torch.cuda.Stream(self.device) for _ in range(2)]  # type: ignore[no-untyped-call]
            self._of_thread.streams = streams
        with torch.cuda.stream(streams[number]):
            yield streams

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
