// Layout of a row of a table.
//
// Besides the slab, where the parts of a row stand apart, rows exist as records: all of a row in contiguous bytes, its
// values, the state of each value, then the numbers it has once. Segments and checkpoints hold records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "table/optimizer.h"

namespace graphbox {

// Policy counters of a row.
struct RowCounters {
  float shows;
  float clicks;
  std::uint32_t last_seen_pass;    // that created or pushed the row
  std::uint32_t last_seen_second;  // since 1970
};
static_assert(sizeof(RowCounters) == 16);

// Type of a row's stored values; its state is always of float32.
enum class ValueType : std::uint32_t {
  kFloat32 = 0,
  kFloat16 = 1,  // rounded stochastically, by draws that the row's steps number
  kInt8 = 2,     // a float32 scale, then values in units of it: for lookups alone
};
inline constexpr std::uint32_t kValueTypes = 3;

constexpr std::size_t value_bytes_of(ValueType type, std::size_t dim) {
  switch (type) {
    case ValueType::kFloat16: return dim * sizeof(std::uint16_t);
    case ValueType::kInt8: return sizeof(float) + dim;
    default: return dim * sizeof(float);
  }
}

struct RowLayout {
  RowLayout(std::size_t row_dim, ValueType type, Optimizer optimizer, bool with_counters)
      : dim(row_dim),
        value_type(type),
        value_bytes(value_bytes_of(type, row_dim)),
        state_bytes(row_dim * state_per_value(optimizer) * sizeof(float)),
        has_accumulator(graphbox::has_accumulator(optimizer)),
        has_steps(graphbox::has_steps(optimizer) || type == ValueType::kFloat16),
        has_counters(with_counters) {}

  std::size_t record_bytes() const {
    return value_bytes + state_bytes + (has_accumulator ? sizeof(float) : 0) +
           (has_steps ? sizeof(std::uint32_t) : 0) + (has_counters ? sizeof(RowCounters) : 0);
  }

  std::size_t dim;
  ValueType value_type;
  std::size_t value_bytes;  // of all values, and of the state of all of them
  std::size_t state_bytes;
  bool has_accumulator;  // state that the row has once
  bool has_steps;
  bool has_counters;
};

}  // namespace graphbox
