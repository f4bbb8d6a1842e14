"""Load test of a server over the network: closed and open loop, KServe v2 over HTTP and gRPC."""

from __future__ import annotations

from graphbox.server.load.histogram import LatencyHistogram
from graphbox.server.load.plan import LoadPlan, LoadReport
from graphbox.server.load.run import run_load

__all__ = ["LatencyHistogram", "LoadPlan", "LoadReport", "run_load"]
