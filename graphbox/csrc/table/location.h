// Where the row of a key is: what the index says of it.
#pragma once

#include <cstdint>

#include "table/row_index.h"

namespace graphbox {

// Numbers below this are rows of the slab, those from it on are places in segments: 15 bits for the slot of the
// segment and 16 for the place in it. kNoRow is none of both.
inline constexpr std::uint32_t kFirstColdLocation = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kMostSegments = (std::uint32_t{1} << 15) - 1;
inline constexpr std::uint32_t kMostRowsOfSegment = std::uint32_t{1} << 16;

constexpr bool is_hot(std::uint32_t location) { return location < kFirstColdLocation; }
constexpr bool is_cold(std::uint32_t location) { return location >= kFirstColdLocation && location != kNoRow; }

constexpr std::uint32_t cold_location(std::uint32_t slot, std::uint32_t place) {
  return kFirstColdLocation | slot << 16 | place;
}
constexpr std::uint32_t slot_of(std::uint32_t location) { return (location & ~kFirstColdLocation) >> 16; }
constexpr std::uint32_t place_of(std::uint32_t location) { return location & 0xFFFF; }

}  // namespace graphbox
