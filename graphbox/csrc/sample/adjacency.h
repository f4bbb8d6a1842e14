// Adjacency of one edge type as the samplers read it: arrays of the caller, never trusted.
#pragma once

#include <cstdint>
#include <string>

#include "errors/error.h"
#include "portability/cpu.h"
#include "sample/choice.h"

namespace graphbox {

// Compressed rows: the neighbours of row v are indices[indptr[v] ... indptr[v + 1] - 1]. CSC and CSR alike.
struct Adjacency {
  const std::int64_t* indptr = nullptr;
  const std::int32_t* narrow_indices = nullptr;  // exactly one of the two is set, unless there are no edges
  const std::int64_t* wide_indices = nullptr;
  std::int64_t num_rows = 0;
  std::int64_t num_edges = 0;
  std::string name;  // for messages
};

// The edges of `row`, checked: a damaged indptr never leads out of `indices`.
GRAPHBOX_INLINE EdgeSpan edges_of(const Adjacency& adjacency, std::int64_t row) {
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

[[noreturn]] inline void throw_bad_neighbor(const Adjacency& adjacency, std::int64_t edge, std::int64_t node,
                                            std::int64_t num_nodes) {
  throw Error(ErrorKind::kData,
              "indices must be in [0, " + std::to_string(num_nodes) + "); edge " + std::to_string(edge) +
                  " leads to node " + std::to_string(node),
              adjacency.name, "the graph is damaged: import it again");
}

}  // namespace graphbox
