// The pairs of nodes that appear near each other on walks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "random/philox.h"

namespace graphbox {

struct SkipGramRequest {
  const std::int64_t* walks = nullptr;  // [num_walks, width]; a walk ends at its first negative entry
  std::int64_t num_walks = 0;
  std::int64_t width = 0;
  std::int64_t window = 1;
  const std::int64_t* column_offsets = nullptr;  // [paths, width] or null: added to the nodes of each column
  const std::int64_t* column_types = nullptr;    // [paths, width] or null: each pair of types has its own output
  std::int64_t num_types = 1;
  const std::int64_t* path_of = nullptr;  // [num_walks], or null where there is one path
  bool dynamic_window = false;  // a window drawn for each centre from 1 ... window (word2vec's way to favour the near)
  PhiloxKey key{};
  int threads = 1;
  // [num_keep] or null: the probability that an occurrence of a key stays on its walk (Mikolov et al., NIPS'13). Those
  // dropped leave before windows are laid, so that the ones beside them move closer.
  const double* keep = nullptr;
  std::int64_t num_keep = 0;
  std::int64_t first_position = 0;  // of the walks in the whole, when these are a part: they draw as they would in it
};

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
  struct Walk;
  Walk read(std::int64_t walk, std::vector<std::int64_t>& keys, std::vector<std::int64_t>& columns) const;
  template <typename Visit>
  void for_each_walk(std::int64_t chunk, Visit visit) const;
  template <typename Visit>
  void for_each_center(const Walk& walk, Visit visit) const;

  std::int64_t* offsets_of(std::int64_t chunk) { return chunk_offsets_.data() + chunk * num_groups(); }
  void count_chunk(std::int64_t chunk, std::int64_t* counts) const;
  void write_chunk(std::int64_t chunk, PairOutput output) const;
  void write_chunk_by_types(std::int64_t chunk, std::span<const PairOutput> groups) const;

  SkipGramRequest request_;
  std::int64_t num_chunks_;
  std::vector<std::int64_t> chunk_offsets_;  // [chunks + 1, groups]
};

}  // namespace graphbox
