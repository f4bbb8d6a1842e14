// Alias tables: a weighted choice among the edges of a node in constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "memory/buffer.h"

namespace graphbox {

// One column of a node's table. Of a column drawn uniformly, its own edge is taken when a uniform 32-bit fraction is
// below `threshold`, the edge `alias` (counted from the node's first) otherwise.
struct AliasEntry {
  std::uint32_t threshold;
  std::uint32_t alias;
};

// The tables of all rows of an adjacency, in the places of their edges: 8 bytes for each edge.
class AliasTables {
 public:
  // Builds them (Vose, "A linear algorithm for generating random numbers with a given distribution", IEEE TSE 17(9),
  // 1991), the same for any number of threads. `weights` has one positive finite number for each edge. Both arrays
  // stay the caller's and are used later; all edges belong to rows. `name` is for messages.
  AliasTables(std::span<const std::int64_t> indptr, std::span<const float> weights, const std::string& name,
              int threads);

  const AliasEntry* entries() const { return reinterpret_cast<const AliasEntry*>(entries_.data()); }
  const float* weights() const { return weights_.data(); }
  std::span<const std::int64_t> indptr() const { return indptr_; }
  std::int64_t num_edges() const { return static_cast<std::int64_t>(weights_.size()); }
  std::size_t bytes() const { return entries_.bytes(); }

 private:
  std::span<const std::int64_t> indptr_;
  std::span<const float> weights_;
  Buffer entries_;
};

}  // namespace graphbox
