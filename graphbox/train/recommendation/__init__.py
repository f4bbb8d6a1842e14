"""Models that rank what belongs to a node: LightGCN, matrix factorization and the two-tower GraphSAGE."""
