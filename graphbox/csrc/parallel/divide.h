// Brings items together by the groups that they belong to, on several threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/parallel_for.h"

namespace graphbox {

// Calls put(place, item) for items 0 ... count - 1 with the places that they have when those of a group stand together,
// in their order; group_of(item) is below `groups`, or `groups` for one that is left out. Returns where the groups
// begin, and the end of the last one.
//
// Counts the items of each group in each part of them, then knows where each part puts its items of each group.
template <typename GroupOf, typename Put>
std::vector<std::int64_t> divide(int threads, std::int64_t count, std::uint64_t groups, const GroupOf& group_of,
                                 const Put& put) {
  constexpr std::int64_t kPartItems = 8192;  // of one thread at a time, or more where that makes too many parts
  constexpr std::int64_t kMostParts = 64;
  const std::int64_t part_items = std::max(kPartItems, (count + kMostParts - 1) / kMostParts);
  const std::int64_t parts = (count + part_items - 1) / part_items;
  std::vector<std::int64_t> places(static_cast<std::size_t>(parts) * groups, 0);
  const auto for_items = [&](const auto& visit) {
    parallel_for(threads, parts, [&](std::int64_t part) {
      std::int64_t* const of_part = places.data() + static_cast<std::size_t>(part) * groups;
      const std::int64_t end = std::min((part + 1) * part_items, count);
      for (std::int64_t item = part * part_items; item < end; ++item) {
        if (const std::uint64_t group = group_of(item); group < groups) [[likely]] {
          visit(of_part[group], item);
        }
      }
    });
  };
  for_items([](std::int64_t& items, std::int64_t) { ++items; });
  std::vector<std::int64_t> begins;
  begins.reserve(groups + 1);
  std::int64_t before = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    begins.push_back(before);
    for (std::size_t place = group; place < places.size(); place += groups) {
      before += std::exchange(places[place], before);
    }
  }
  begins.push_back(before);
  for_items([&](std::int64_t& place, std::int64_t item) { put(place++, item); });
  return begins;
}

}  // namespace graphbox
