"""Skip-gram on walks and on edges: DeepWalk, node2vec, metapath2vec and LINE."""
