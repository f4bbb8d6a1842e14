"""The temporal model of streams, and the memory that events leave behind."""
