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

  PooledArray<std::int64_t> keys;
  PooledArray<std::uint32_t> rows;
  std::uint64_t version = 0;  // of the table: that of its rows' keys
};

}  // namespace graphbox
