// The nodes that matter most to a node: those that walks from it visit most often.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "random/philox.h"
#include "sample/walk.h"

namespace graphbox {

struct PprRequest {
  std::vector<WalkStep> round;  // the steps of a round, which leads from nodes of one type to nodes of the same
  std::span<const std::int64_t> nodes;
  std::int64_t num_walks = 1;  // from each node
  std::int64_t num_rounds = 1;
  std::int64_t num_neighbors = 1;  // most that are given for each node
  double restart_probability = 0;
  PhiloxKey key{};
  int threads = 1;
};

// Writes for each node its most visited nodes and how often they were visited, the most visited first, of equally often
// visited ones the smaller first; -1 and 0 where there are no more. Visits are the nodes at which rounds end, the node
// itself left out; they estimate personalised PageRank (Fogaras et al., Internet Mathematics 2(3), 2005; as neighbours:
// Ying et al., "PinSAGE", KDD'18). Walk w of node i draws at position i * num_walks + w.
void ppr_neighbors(const PprRequest& request, std::int64_t* neighbors, std::int64_t* visits);

}  // namespace graphbox
