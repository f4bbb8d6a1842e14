"""One module for each schema revision."""
