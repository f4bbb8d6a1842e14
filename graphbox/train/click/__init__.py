"""Models of clicks: how they are trained over the rows of a log, kept and measured."""
