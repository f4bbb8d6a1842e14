"""Graph networks: trained to classify nodes, to find links or to tell them, and run over whole graphs."""
