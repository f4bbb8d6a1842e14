// Random walks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "random/philox.h"
#include "sample/adjacency.h"

namespace graphbox {

struct WalkRequest {
  std::vector<Adjacency> steps;  // out-neighbours for step 0, 1, ..., then again from 0: one is a uniform walk
  std::span<const std::int64_t> start;
  std::int64_t length = 0;  // steps of a walk
  PhiloxKey key{};
  int threads = 1;
  double p = 1;  // node2vec's parameters, above 0; other than 1 only with one adjacency, whose lists ascend
  double q = 1;
  std::int64_t most_parallel = 1;  // of that adjacency, see most_parallel_edges()
  double restart_probability = 0;  // below 1; above 0 only with one adjacency
  std::int64_t first_position = 0;  // of start in the whole, when this is a part: walkers draw as they would in it
};

// Writes start.size() rows of length + 1 nodes, -1 after a dead end. Walker w draws at position w, so that walkers
// which meet do not go on together (Perozzi et al., "DeepWalk", KDD'14; with several steps: Dong et al.,
// "metapath2vec", KDD'17). With a restart probability each step leads back to the walker's start with that probability,
// as does every step from a dead end.
void random_walks(const WalkRequest& request, std::int64_t* out);

// Words below it, of 2^32, mean a restart.
inline std::uint64_t restart_threshold(double probability) {
  return static_cast<std::uint64_t>(probability * 0x1p32 + 0.5);
}

inline void check_start(const Adjacency& edges, std::int64_t node, std::int64_t position) {
  if (node < 0 || node >= edges.num_rows) [[unlikely]] {
    throw Error(ErrorKind::kUsage,
                "start must hold node indices in [0, " + std::to_string(edges.num_rows) + "), received " +
                    std::to_string(node) + " at position " + std::to_string(position),
                "start");
  }
}

}  // namespace graphbox
