"""Predicting links: how well a model, and what trains nothing, tells edges from pairs that are none."""
