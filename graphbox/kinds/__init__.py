"""The kinds of models of graphbox, by family: entry points of the group ``graphbox.models``."""
