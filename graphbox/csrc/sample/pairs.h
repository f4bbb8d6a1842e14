// The pairs of nodes that appear near each other on walks.
#pragma once

#include <cstdint>
#include <vector>

#include "random/philox.h"

namespace graphbox {

struct SkipGramRequest {
  const std::int64_t* walks = nullptr;  // [num_walks, width]; a walk ends at its first negative entry
  std::int64_t num_walks = 0;
  std::int64_t width = 0;
  std::int64_t window = 1;
  const std::int64_t* column_offsets = nullptr;  // [width] or null: added to the nodes of each column
  bool dynamic_window = false;  // a window drawn for each centre from 1 ... window (word2vec's way to favour the near)
  PhiloxKey key{};
  int threads = 1;
  // [num_keep] or null: the probability that an occurrence of a key stays on its walk (Mikolov et al., NIPS'13). Those
  // dropped leave before windows are laid, so that the ones beside them move closer.
  const double* keep = nullptr;
  std::int64_t num_keep = 0;
  std::int64_t first_position = 0;  // of the walks in the whole, when these are a part: they draw as they would in it
};

// All (centre, context) pairs of a walk that are at most the window apart, walk by walk, centre by centre.
class SkipGramPairs {
 public:
  explicit SkipGramPairs(const SkipGramRequest& request);
  std::int64_t count() const { return chunk_offsets_.back(); }
  void write(std::int64_t* centers, std::int64_t* contexts) const;

 private:
  struct Walk;
  Walk read(std::int64_t walk, std::vector<std::int64_t>& keys, std::vector<std::int64_t>& columns) const;
  template <typename Visit>
  void for_each_walk(std::int64_t chunk, Visit visit) const;
  template <typename Visit>
  void for_each_center(const Walk& walk, Visit visit) const;

  SkipGramRequest request_;
  std::vector<std::int64_t> chunk_offsets_;
};

}  // namespace graphbox
