// Policy arithmetic on the counters of a row.
//
// Shows and clicks stand as they were in the pass that last saw the row: decay for the passes since is applied lazily,
// on read. So the end of a pass touches no row, wherever rows are.
#pragma once

#include <cstdint>

#include "table/policy.h"
#include "table/row_layout.h"

namespace graphbox {

// base^exponent, the same bits everywhere.
inline double whole_power(double base, std::uint32_t exponent) {
  double result = 1;
  for (; exponent != 0; exponent >>= 1) {
    result = (exponent & 1) != 0 ? result * base : result;
    base *= base;
  }
  return result;
}

inline std::uint32_t elapsed(std::uint32_t since, std::uint32_t now) { return now > since ? now - since : 0; }

// Counters as they are in a pass: last_seen_pass stays.
inline RowCounters decayed(RowCounters counters, std::uint32_t pass, float decay) {
  const std::uint32_t passes = elapsed(counters.last_seen_pass, pass);
  if (passes != 0 && decay != 1) {
    const auto factor = static_cast<float>(whole_power(static_cast<double>(decay), passes));
    counters.shows *= factor;
    counters.clicks *= factor;
  }
  return counters;
}

// Of counters that are decayed.
inline float score_of(const RowCounters& counters, const PolicyConfig& policies) {
  return (counters.shows - counters.clicks) * policies.nonclick_weight + counters.clicks * policies.click_weight;
}

}  // namespace graphbox
