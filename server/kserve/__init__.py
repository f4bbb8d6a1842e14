"""The KServe v2 protocol over HTTP, with the extensions Triton clients use."""
