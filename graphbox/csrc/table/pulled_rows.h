// Where the rows of some keys are: what a pull says and a push takes.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "memory/buffer.h"

namespace graphbox {

// The rows that a pull found, kNoRow for keys without one. They are those of its keys until some row loses its key.
struct PulledRows {
  // No table's: whoever pushes to these rows looks the keys up again.
  static constexpr std::uint64_t kOutdated = std::numeric_limits<std::uint64_t>::max();

  // Those of several pulls of one table, one after another.
  static PulledRows joined(const std::vector<const PulledRows*>& parts);

  // Takes the rows that a later pull found for the keys at `positions`.
  void replace(const std::int64_t* positions, const PulledRows& later);

  // Writes for each result whether one of its keys had no row, or one that `pushed` has, too. The keys of result i are
  // those from offsets[i] to offsets[i + 1]; null: key i.
  void stale(const std::vector<const PulledRows*>& pushed, const std::int64_t* offsets, std::int64_t results,
             bool* out) const;

  PooledArray<std::int64_t> keys;
  PooledArray<std::uint32_t> rows;
  std::uint64_t version = 0;  // of the table: that of its rows' keys
  std::uint64_t changes = 0;  // the table's count of them before the rows were read
};

}  // namespace graphbox
