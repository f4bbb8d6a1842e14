// Degree histograms of edges on disk, and which nodes have edges at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "memory/growing_array.h"

namespace graphbox {

// Number of nodes of each degree. Few degrees differ: n edges have less than 2 sqrt(n) of them.
class DegreeHistogram {
 public:
  void add(std::int64_t degree, std::int64_t nodes = 1) {
    if (degree < kDense) {
      if (static_cast<std::size_t>(degree) >= dense_.size()) {
        dense_.resize(static_cast<std::size_t>(degree) + 1, 0);
      }
      dense_[static_cast<std::size_t>(degree)] += nodes;
    } else {
      sparse_[degree] += nodes;
    }
  }
  void add(const DegreeHistogram& other);

  // The degrees that occur, ascending, with their numbers of nodes.
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs() const;

 private:
  static constexpr std::int64_t kDense = 1 << 12;
  std::vector<std::int64_t> dense_;
  std::map<std::int64_t, std::int64_t> sparse_;
};

// A bit for each node. Threads may set bits of different words of 64 at the same time.
class NodeBits {
 public:
  // Makes room for so many nodes; bits are kept.
  void resize(std::int64_t num_nodes);
  void set(std::int64_t node) { words_[static_cast<std::size_t>(node >> 6)] |= std::uint64_t{1} << (node & 63); }
  std::int64_t count() const;
  std::size_t held_bytes() const { return words_.size_bytes(); }

 private:
  GrowingArray<std::uint64_t> words_;
};

// The in-degrees that the indptr array at `path` says. Nodes with edges are marked in `used`.
DegreeHistogram degrees_of_indptr(const std::string& path, std::int64_t num_nodes, NodeBits& used, int threads);

// Histogram of the number of times that each of `num_nodes` nodes occurs in the indices array at `path`: read once for
// each part of the nodes whose counts fit into `memory_bytes`.
DegreeHistogram degrees_of_indices(const std::string& path, bool wide, std::int64_t num_edges, std::int64_t num_nodes,
                                   NodeBits& used, std::size_t memory_bytes, int threads);

}  // namespace graphbox
