// The pairs of nodes that appear near each other on walks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample/walk_windows.h"

namespace graphbox {

// Where the pairs of a group are written.
struct PairOutput {
  std::int64_t* centers;
  std::int64_t* contexts;
};

// All (centre, context) pairs of a walk that are at most the window apart, walk by walk, centre by centre. Group g
// holds those with a centre of type g / num_types and a context of type g % num_types; without types there is one
// group.
class SkipGramPairs {
 public:
  explicit SkipGramPairs(const SkipGramRequest& request);
  std::int64_t num_groups() const { return request_.num_types * request_.num_types; }
  std::int64_t count(std::int64_t group = 0) const { return chunk_offsets_.end()[group - num_groups()]; }
  void write(std::span<const PairOutput> groups) const;

 private:
  template <typename Visit>
  void for_each_walk(std::int64_t chunk, Visit visit) const;

  std::int64_t* offsets_of(std::int64_t chunk) { return chunk_offsets_.data() + chunk * num_groups(); }
  void count_chunk(std::int64_t chunk, std::int64_t* counts) const;
  void write_chunk(std::int64_t chunk, PairOutput output) const;
  void write_chunk_by_types(std::int64_t chunk, std::span<const PairOutput> groups) const;

  SkipGramRequest request_;
  std::int64_t num_chunks_;
  std::vector<std::int64_t> chunk_offsets_;  // [chunks + 1, groups]
};

}  // namespace graphbox
