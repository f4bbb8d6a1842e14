// Walks that look back one step: node2vec (Grover and Leskovec, KDD'16).
#pragma once

#include <cstdint>

#include "sample/walk.h"

namespace graphbox {

// As random_walks(), for p and q that are not both 1. From node v, reached from t, an edge to x is taken with a
// probability in proportion to 1 / p where x is t, else 1 where t has an edge to x, else 1 / q; times its weight where
// edges have weights. Each of parallel edges counts by itself. The first step, and the one after a restart, looks back
// at nothing.
void node2vec_walks(const WalkRequest& request, std::int64_t* out);

// The most edges that lead from one node to another. Throws where a list does not ascend: node2vec_walks() searches.
std::int64_t most_parallel_edges(const Adjacency& edges, int threads);

}  // namespace graphbox
