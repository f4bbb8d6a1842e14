// Random walks, and the pairs of nodes that appear near each other on them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/buffer.h"
#include "random/philox.h"
#include "sample/adjacency.h"

namespace graphbox {

struct WalkRequest {
  std::vector<Adjacency> steps;  // out-neighbours for step 0, 1, ..., then again from 0: one is a uniform walk
  std::span<const std::int64_t> start;
  std::int64_t length = 0;  // steps of a walk
  PhiloxKey key{};
  int threads = 1;
};

// Writes start.size() rows of length + 1 nodes, -1 after a dead end. Walker w draws at position w, so that walkers
// which meet do not go on together (Perozzi et al., "DeepWalk", KDD'14; with several steps: Dong et al.,
// "metapath2vec", KDD'17).
void random_walks(const WalkRequest& request, std::int64_t* out);

struct SkipGramRequest {
  const std::int64_t* walks = nullptr;  // [num_walks, width]; a walk ends at its first negative entry
  std::int64_t num_walks = 0;
  std::int64_t width = 0;
  std::int64_t window = 1;
  const std::int64_t* column_offsets = nullptr;  // [width] or null: added to the nodes of each column
  bool dynamic_window = false;  // a window drawn for each centre from 1 ... window (word2vec's way to favour the near)
  PhiloxKey key{};
  int threads = 1;
};

// All (centre, context) pairs of a walk that are at most the window apart, walk by walk, centre by centre.
class SkipGramPairs {
 public:
  explicit SkipGramPairs(const SkipGramRequest& request);
  std::int64_t count() const { return chunk_offsets_.back(); }
  void write(std::int64_t* centers, std::int64_t* contexts) const;

 private:
  template <typename Visit>
  void for_each_center(std::int64_t walk, Visit visit) const;

  SkipGramRequest request_;
  std::vector<std::int64_t> chunk_offsets_;
};

}  // namespace graphbox
