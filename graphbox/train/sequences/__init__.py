"""Models of sequences: windows of events in order, what trains on them, and how they are measured."""
