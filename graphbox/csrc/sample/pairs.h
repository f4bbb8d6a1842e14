// The pairs of nodes that appear near each other on walks.
#pragma once

#include <cstdint>
#include <vector>

#include "sample/walk_windows.h"

namespace graphbox {

// Where the pairs are written.
struct PairOutput {
  std::int64_t* centers;
  std::int64_t* contexts;
};

// All (centre, context) pairs of a walk that are at most the window apart, walk by walk, centre by centre.
class SkipGramPairs {
 public:
  explicit SkipGramPairs(const SkipGramRequest& request);
  std::int64_t count() const { return chunk_offsets_.back(); }
  void write(PairOutput output) const;

 private:
  template <typename Visit>
  void for_each_walk(std::int64_t chunk, Visit visit) const;

  std::int64_t count_chunk(std::int64_t chunk) const;
  void write_chunk(std::int64_t chunk, PairOutput output) const;

  SkipGramRequest request_;
  std::int64_t num_chunks_;
  std::vector<std::int64_t> chunk_offsets_;  // [chunks + 1]
};

}  // namespace graphbox
