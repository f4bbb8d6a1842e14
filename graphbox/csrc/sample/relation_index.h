// Index of the relations with one target type that have edges to a node: where there are many, most have none.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/buffer.h"
#include "sample/adjacency.h"

namespace graphbox {

// The edges of a node in one relation.
struct IndexedEdges {
  std::int64_t begin;
  std::uint32_t degree;    // above 0
  std::uint32_t relation;  // its number among those of the index
};

// The lists of all nodes of a type that are not empty, those of a node next to each other: one look finds what would
// take one into the indptr of each relation. 8 bytes for each node, 16 for each such list.
class RelationIndex {
 public:
  // Of one or more relations without overlays, all with the same number of rows. The same for any number of threads.
  // Keeps no reference to the arrays. Throws kDoesNotFit where it would take more memory than their indptr do.
  RelationIndex(const std::vector<Adjacency>& relations, int threads);

  std::int64_t num_rows() const { return num_rows_; }
  // Of each relation the number of its edges.
  const std::vector<std::int64_t>& num_edges() const { return num_edges_; }
  std::size_t bytes() const { return firsts_.bytes() + lists_.bytes(); }

  // The lists of `row` are lists()[firsts()[row] ... firsts()[row + 1] - 1], by relation. Behind the last of all kRun
  // more may be read.
  static constexpr std::int64_t kRun = 8;
  const std::int64_t* firsts() const { return reinterpret_cast<const std::int64_t*>(firsts_.data()); }
  const IndexedEdges* lists() const { return reinterpret_cast<const IndexedEdges*>(lists_.data()); }

 private:
  std::int64_t num_rows_;
  std::vector<std::int64_t> num_edges_;
  Buffer firsts_;
  Buffer lists_;
};

}  // namespace graphbox
