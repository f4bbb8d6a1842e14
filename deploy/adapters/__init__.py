"""One module for each runtime; each exports an ``adapter`` that the entry points of the package name."""
