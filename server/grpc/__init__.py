"""The KServe protocol over gRPC."""
