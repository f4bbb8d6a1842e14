"""The command line: one file for each verb, heavy imports inside functions."""
