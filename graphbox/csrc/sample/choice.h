// Chooses which of a node's edges are sampled.
#pragma once

#include <cstdint>

#include "random/philox.h"
#include "sample/offset_set.h"

namespace graphbox {

// The edges of one node, as positions in `indices`.
struct EdgeSpan {
  std::int64_t begin;
  std::int64_t degree;
};

// Number of edges sampled of a node with `degree` of them when `wanted` are requested (-1: all).
GRAPHBOX_INLINE std::int64_t choice_count(std::int64_t degree, std::int64_t wanted, bool replace) {
  if (wanted < 0) {
    return degree;
  }
  if (replace) {
    return degree > 0 ? wanted : 0;
  }
  return degree < wanted ? degree : wanted;
}

// Writes choice_count() edge positions to `out`. Draw i of the sequence decides the i-th of them. One for each thread.
class EdgeChooser {
 public:
  void choose(const DrawSequence& draws, EdgeSpan edges, std::int64_t wanted, bool replace, std::int64_t* out);

 private:
  void without_replacement(const DrawSequence& draws, EdgeSpan edges, std::uint32_t count, std::int64_t* out);
  void with_set(const DrawSequence& draws, EdgeSpan edges, std::uint32_t count, std::int64_t* out);

  OffsetSet taken_;
};

}  // namespace graphbox
