"""Traces of requests by OpenTelemetry: request, with its wait in the queue and its execution.

Spans are made when a request has been answered, from the times that the server notes anyway: a request costs
nothing more while it runs. Nothing of OpenTelemetry is imported unless `Tracing` is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import graphbox
from graphbox.errors import missing_extra

__all__ = ["RequestTrace", "Tracing"]


class RequestTrace:
    """Times of one request, until its spans are made.

    Attributes:
        parent: ``traceparent`` and ``tracestate`` of the request.
        started_ns: when it came in, by `time.perf_counter_ns`.
        execution: when it was decoded, when its execution began and when that ended; None: it did not run.
        model: name of the model that answered; None: none did.
        version: of that model.
    """

    __slots__ = ("execution", "model", "parent", "started_ns", "version")

    def __init__(self, parent: Mapping[str, str], started_ns: int) -> None:
        self.parent = parent
        self.started_ns = started_ns
        self.execution: tuple[int, int, int] | None = None
        self.model: str | None = None
        self.version: str | None = None

    def executed(self, model: str, version: str, decoded_ns: int, begun_ns: int, ended_ns: int) -> None:
        """Note the execution of the request."""
        self.model, self.version = model, version
        self.execution = (decoded_ns, begun_ns, ended_ns)


class Tracing:
    """Makes spans and exports them by OTLP over HTTP, in a thread of its own.

    The standard environment variables say where to, which of them and under which name
    (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_SAMPLER``, ``OTEL_SERVICE_NAME``). By default a request is
    sampled if its parent is, or if it has none.

    Raises:
        BackendMissingError: the extra ``otel`` is not installed.
    """

    def __init__(self) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise missing_extra("opentelemetry-exporter-otlp-proto-http", "otel") from None
        attributes = {"service.version": graphbox.__version__}
        if "OTEL_SERVICE_NAME" not in os.environ:
            attributes["service.name"] = "graphbox"
        self._provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("graphbox.server", graphbox.__version__)
        self._propagator = TraceContextTextMapPropagator()
        self._trace = trace

    def begin(self, traceparent: bytes, tracestate: bytes, started_ns: int) -> RequestTrace:
        """Return the trace of a request that came in at ``started_ns``, by `time.perf_counter_ns`."""
        parent = {"traceparent": traceparent.decode("latin-1"), "tracestate": tracestate.decode("latin-1")}
        return RequestTrace(parent, started_ns)

    def end(
        self,
        trace: RequestTrace,
        name: str,
        attributes: Mapping[str, str | int],
        error: str | None = None,
    ) -> None:
        """Make the spans of a request that was answered, or whose client left.

        Args:
            trace: of the request.
            name: of its span: method and route.
            attributes: of its span.
            error: why it failed; None: it did not.
        """
        now_ns = time.perf_counter_ns()
        to_epoch_ns = time.time_ns() - now_ns
        made = self._tracer.start_span(
            name,
            self._propagator.extract(trace.parent),
            kind=self._trace.SpanKind.SERVER,
            attributes=dict(attributes),
            start_time=trace.started_ns + to_epoch_ns,
        )
        if made.is_recording():
            if trace.model is not None and trace.version is not None:
                made.set_attribute("graphbox.model", trace.model)
                made.set_attribute("graphbox.version", trace.version)
            if error is not None:
                made.set_status(self._trace.StatusCode.ERROR, error)
            if trace.execution is not None:
                decoded_ns, begun_ns, ended_ns = trace.execution
                context = self._trace.set_span_in_context(made)
                for child, start_ns, end_ns in (
                    ("queue", decoded_ns, begun_ns),
                    ("execute", begun_ns, ended_ns),
                ):
                    span = self._tracer.start_span(child, context, start_time=start_ns + to_epoch_ns)
                    span.end(end_ns + to_epoch_ns)
        made.end(now_ns + to_epoch_ns)

    def close(self) -> None:
        """Export what is left; blocks, for a few seconds where nothing receives it."""
        self._provider.shutdown()
