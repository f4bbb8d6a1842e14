// Edges that a sample must not use: those between the ends of the links that its seeds are, so that no label can be
// read off the sampled edges.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "portability/cpu.h"
#include "sample/adjacency.h"
#include "sample/choice.h"

namespace graphbox {

struct ExcludedPairs {
  std::span<const std::int64_t> rows;     // of the adjacency: the nodes that edges lead to in a CSC
  std::span<const std::int64_t> sources;  // a neighbour of each
  // Of disjoint samples: the trees of which group a pair is excluded in, and the group of each tree. Empty: all trees.
  std::span<const std::int64_t> groups;
  std::span<const std::int64_t> group_of_tree;
  bool ascending = false;                 // whether the lists of the adjacency ascend
};

// Throws where the arrays do not fit each other, `num_rows` rows, or `trees` trees.
void check_excluded(const ExcludedPairs& pairs, std::int64_t num_rows, std::size_t trees, const std::string& name);

// The positions of all edges of some pairs in one adjacency, parallel ones too. Pairs without edges are none. Refers to
// the groups of trees.
class ExcludedEdges {
 public:
  ExcludedEdges(const Adjacency& adjacency, const ExcludedPairs& pairs);  // of which check_excluded() is content

  // Whether `row` may have excluded edges: rarely true for one that has none.
  GRAPHBOX_INLINE bool may_touch(std::int64_t row) const {
    const std::uint64_t bit = hash(row);
    return (bits_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  // Calls `take(position)` for the excluded ones of `edges`, which are all edges of a row, in ascending order.
  template <typename Take>
  void for_each(std::int64_t tree, EdgeSpan edges, Take take) const {
    const std::int64_t group = group_of_tree_.empty() ? 0 : group_of_tree_[static_cast<std::size_t>(tree)];
    for (auto entry = first_at(group, edges.begin);
         entry != entries_.end() && entry->group == group && entry->position < edges.begin + edges.degree; ++entry) {
      take(entry->position);
    }
  }

 private:
  struct Entry {
    std::int64_t group;
    std::int64_t position;
    auto operator<=>(const Entry&) const = default;
  };

  GRAPHBOX_INLINE std::uint64_t hash(std::int64_t row) const {
    return static_cast<std::uint64_t>(row) * 0x9E3779B97F4A7C15ULL >> shift_;
  }
  std::vector<Entry>::const_iterator first_at(std::int64_t group, std::int64_t position) const;
  template <typename Index>
  void find(const Adjacency& adjacency, const Index* indices, const ExcludedPairs& pairs);

  std::span<const std::int64_t> group_of_tree_;
  std::vector<Entry> entries_;  // ascending, each once
  std::vector<std::uint64_t> bits_;
  int shift_ = 0;
};

}  // namespace graphbox
