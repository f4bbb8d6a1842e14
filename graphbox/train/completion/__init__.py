"""Models of knowledge graphs: how they are trained, measured, and asked for likely triples."""
