"""Nearest rows of a table: exact, or by a graph index (extra ``ann``), with filters."""
