// Walks that look back one step: node2vec (Grover and Leskovec, KDD'16).
#pragma once

#include <cstdint>

#include "sample/walk.h"
#include "sample/walk_step.h"

namespace graphbox {

// As random_walks(), for p and q that are not both 1. From node v, reached from t, an edge to x is taken with a
// probability in proportion to 1 / p where x is t, else 1 where t has an edge to x, else 1 / q; times its weight where
// edges have weights. Each of parallel edges counts by itself. The first step, and the one after a restart, looks back
// at nothing.
void node2vec_walks(const WalkRequest& request, std::int64_t* out);

// The lists that were read for one step, and where walkers stand in them.
struct FetchedLists {
  const WalkStep* lists;                        // a row for each node whose list was read; neighbours are nodes
  std::int64_t num_nodes;                       // neighbours are below it
  std::span<const std::int64_t> rows;           // of the node that each walker is at
  std::span<const std::int64_t> previous;       // the node where each was before, -1: its step looks back at nothing
  std::span<const std::int64_t> previous_rows;  // of that node
};

// Writes the node that each walker steps to, as node2vec_walks() would with p, q and most_parallel; -1: a dead end.
void node2vec_step(const StepRequest& request, const FetchedLists& lists, double p, double q,
                   std::int64_t most_parallel, std::int64_t* next);

// The most edges that lead from one node to another. Throws where a list does not ascend: node2vec_walks() searches.
std::int64_t most_parallel_edges(const Adjacency& edges, int threads);

}  // namespace graphbox
