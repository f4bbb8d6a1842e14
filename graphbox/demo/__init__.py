"""The bundled graph (Debian's package index as Parquet files) and its run file; see README.md beside it."""
