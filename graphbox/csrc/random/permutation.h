// Random orders.
#pragma once

#include <cstdint>
#include <utility>

#include "random/philox.h"

namespace graphbox {

// Fisher and Yates' shuffle of 0 ... size - 1 into `order`. The draw for place i has position i.
inline void permutation(PhiloxKey key, std::int64_t* order, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {
    const DrawSequence draws(key, 0, 0, static_cast<std::uint64_t>(i));
    const auto j = static_cast<std::int64_t>(draws.bounded_wide(0, static_cast<std::uint64_t>(i) + 1));
    order[i] = i;
    std::swap(order[i], order[j]);
  }
}

}  // namespace graphbox
