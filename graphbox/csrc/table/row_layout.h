// What a row of a table holds.
//
// Besides the slab, where the parts of a row stand apart, rows exist as records: all of a row in contiguous bytes, its
// values, the state of each value, then the numbers it has once. Segments and checkpoints hold records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "table/optimizer.h"

namespace graphbox {

// What policies know of a row.
struct RowCounters {
  float shows;
  float clicks;
  std::uint32_t last_seen_pass;
  std::uint32_t last_seen_minute;  // since 1970
};
static_assert(sizeof(RowCounters) == 16);

struct RowLayout {
  RowLayout(std::size_t row_dim, Optimizer optimizer, bool with_counters)
      : dim(row_dim),
        floats(row_dim * (1 + state_per_value(optimizer))),
        has_accumulator(graphbox::has_accumulator(optimizer)),
        has_steps(graphbox::has_steps(optimizer)),
        has_counters(with_counters) {}

  std::size_t record_bytes() const {
    return floats * sizeof(float) + (has_accumulator ? sizeof(float) : 0) + (has_steps ? sizeof(std::uint32_t) : 0) +
           (has_counters ? sizeof(RowCounters) : 0);
  }

  std::size_t dim;
  std::size_t floats;    // values and the state of each of them
  bool has_accumulator;  // state that the row has once
  bool has_steps;
  bool has_counters;
};

}  // namespace graphbox
