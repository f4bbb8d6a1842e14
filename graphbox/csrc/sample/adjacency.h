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

// The edges of `row` in the base, checked: a damaged indptr never leads out of `indices`.
GRAPHBOX_INLINE EdgeSpan base_edges_of(const Adjacency& adjacency, std::int64_t row) {
  const std::int64_t begin = adjacency.indptr[row];
  const std::int64_t end = adjacency.indptr[row + 1];
  if (begin < 0 || end < begin || end > adjacency.num_edges) [[unlikely]] {
    throw Error(ErrorKind::kData,
                "indptr must rise from 0 to the number of edges, " + std::to_string(adjacency.num_edges) +
                    "; it goes from " + std::to_string(begin) + " to " + std::to_string(end) + " at node " +
                    std::to_string(row),
                adjacency.name, "the graph is damaged: import it again");
  }
  return {begin, end - begin};
}

// The edges of `row`.
GRAPHBOX_INLINE EdgeSpan edges_of(const Adjacency& adjacency, std::int64_t row) {
  if (adjacency.overlay == nullptr) [[likely]] {
    return base_edges_of(adjacency, row);
  }
  const std::int64_t number = adjacency.overlay->find(row);
  if (number >= 0) {
    return {adjacency.num_edges + adjacency.overlay->begin(number), adjacency.overlay->degree(number)};
  }
  return row < adjacency.num_base_rows ? base_edges_of(adjacency, row) : EdgeSpan{0, 0};
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
  if (adjacency.overlay == nullptr || position < adjacency.num_edges) [[likely]] {
    return indices + position;
  }
  if constexpr (sizeof(Index) == 4) {
    return adjacency.overlay->narrow_indices() + (position - adjacency.num_edges);
  } else {
    return adjacency.overlay->wide_indices() + (position - adjacency.num_edges);
  }
}

// The id of the edge at `position`.
GRAPHBOX_INLINE std::int64_t edge_id_at(const Adjacency& adjacency, std::int64_t position) {
  return position < adjacency.num_edges ? position : adjacency.overlay->edge_id(position - adjacency.num_edges);
}

[[noreturn]] inline void throw_bad_neighbor(const Adjacency& adjacency, std::int64_t edge, std::int64_t node,
                                            std::int64_t num_nodes) {
  throw Error(ErrorKind::kData,
              "indices must be in [0, " + std::to_string(num_nodes) + "); edge " + std::to_string(edge) +
                  " leads to node " + std::to_string(node),
              adjacency.name, "the graph is damaged: import it again");
}

}  // namespace graphbox
