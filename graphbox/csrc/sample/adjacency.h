// Adjacency of one edge type as the samplers read it: arrays of the caller, never trusted.
#pragma once

#include <cstdint>
#include <string>

#include "errors/error.h"
#include "portability/cpu.h"
#include "sample/choice.h"
#include "sample/overlay.h"

namespace graphbox {

// Compressed rows: the neighbours of row v are indices[indptr[v] ... indptr[v + 1] - 1]. CSC and CSR alike.
// With an overlay some rows have other lists, and there can be more rows. Edges have positions: those of `indices`
// first, from num_edges on those of the overlay.
struct Adjacency {
  const std::int64_t* indptr = nullptr;
  const std::int32_t* narrow_indices = nullptr;  // exactly one of the two is set, unless there are no edges
  const std::int64_t* wide_indices = nullptr;
  std::int64_t num_rows = 0;
  std::int64_t num_edges = 0;
  std::string name;  // for messages
  const Overlay* overlay = nullptr;
  std::int64_t num_base_rows = 0;  // rows of indptr, where there is an overlay
};

// One of two addresses or numbers. What is new of a graph cannot be predicted, and compilers branch on conditions as they
// like, but not on this.
template <typename Value>
GRAPHBOX_INLINE const Value* either(bool is_first, const Value* first, const Value* second) {
  const std::uintptr_t mask = 0 - static_cast<std::uintptr_t>(is_first);
  return reinterpret_cast<const Value*>((reinterpret_cast<std::uintptr_t>(first) & mask) |
                                        (reinterpret_cast<std::uintptr_t>(second) & ~mask));
}
GRAPHBOX_INLINE std::int64_t either(bool is_first, std::int64_t first, std::int64_t second) {
  const std::int64_t mask = 0 - static_cast<std::int64_t>(is_first);
  return (first & mask) | (second & ~mask);
}

// Where the begin of a row's list, and after it its end, stand: in the indptr of the base or of the overlay.
struct RowBounds {
  const std::int64_t* bounds;
  std::int64_t number;  // of the row's new list, -1: it has none
};

// There is an overlay.
GRAPHBOX_INLINE RowBounds bounds_of(const Adjacency& adjacency, std::int64_t row) {
  static constexpr std::int64_t kNoEdges[2] = {0, 0};
  const std::int64_t number = adjacency.overlay->find(row);
  const std::int64_t* const base = row < adjacency.num_base_rows ? adjacency.indptr + row : kNoEdges;
  return {either(number >= 0, adjacency.overlay->bounds(number), base), number};
}

[[noreturn]] inline void throw_bad_bounds(const Adjacency& adjacency, std::int64_t begin, std::int64_t end,
                                          std::int64_t row) {
  throw Error(ErrorKind::kData,
              "indptr must rise from 0 to the number of edges, " + std::to_string(adjacency.num_edges) +
                  "; it goes from " + std::to_string(begin) + " to " + std::to_string(end) + " at node " +
                  std::to_string(row),
              adjacency.name, "the graph is damaged: import it again");
}

// The edges of `row` between its bounds, checked: a damaged indptr never leads out of `indices`.
GRAPHBOX_INLINE EdgeSpan edges_between(const Adjacency& adjacency, RowBounds place, std::int64_t row) {
  const std::int64_t begin = place.bounds[0];
  const std::int64_t end = place.bounds[1];
  const bool is_new = place.number >= 0;
  const std::int64_t edges = either(is_new, adjacency.overlay->num_edges(), adjacency.num_edges);
  if (begin < 0 || end < begin || end > edges) [[unlikely]] {
    throw_bad_bounds(adjacency, begin, end, row);
  }
  return {begin + either(is_new, adjacency.num_edges, 0), end - begin};
}

// The edges of `row`.
GRAPHBOX_INLINE EdgeSpan edges_of(const Adjacency& adjacency, std::int64_t row) {
  if (adjacency.overlay != nullptr) [[unlikely]] {
    return edges_between(adjacency, bounds_of(adjacency, row), row);
  }
  const std::int64_t begin = adjacency.indptr[row];
  const std::int64_t end = adjacency.indptr[row + 1];
  if (begin < 0 || end < begin || end > adjacency.num_edges) [[unlikely]] {
    throw_bad_bounds(adjacency, begin, end, row);
  }
  return {begin, end - begin};
}

// Asks for what edges_of() will read.
GRAPHBOX_INLINE void prefetch_row(const Adjacency& adjacency, std::int64_t row) {
  prefetch(adjacency.indptr + row);
  if (adjacency.overlay != nullptr) [[unlikely]] {
    adjacency.overlay->prefetch_row(row);
  }
}

// Where the neighbour of the edge at `position` stands. `indices` are those of the adjacency.
template <typename Index>
GRAPHBOX_INLINE const Index* neighbor_at(const Adjacency& adjacency, const Index* indices, std::int64_t position) {
  if (adjacency.overlay == nullptr) [[likely]] {
    return indices + position;
  }
  const bool is_new = position >= adjacency.num_edges;
  const Index* const list = either(is_new, adjacency.overlay->template indices<Index>(), indices);
  return list + (position - either(is_new, adjacency.num_edges, 0));
}

// The id of the edge at `position`.
GRAPHBOX_INLINE std::int64_t edge_id_at(const Adjacency& adjacency, std::int64_t position) {
  return position < adjacency.num_edges ? position : adjacency.overlay->edge_ids()[position - adjacency.num_edges];
}

[[noreturn]] inline void throw_bad_neighbor(const Adjacency& adjacency, std::int64_t edge, std::int64_t node,
                                            std::int64_t num_nodes) {
  throw Error(ErrorKind::kData,
              "indices must be in [0, " + std::to_string(num_nodes) + "); edge " + std::to_string(edge) +
                  " leads to node " + std::to_string(node),
              adjacency.name, "the graph is damaged: import it again");
}

}  // namespace graphbox
