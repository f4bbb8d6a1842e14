// Chooses edges of sixteen nodes at once, in the lanes of vector registers: what EdgeChooser chooses, bit by bit.
#pragma once

#include <cstdint>
#include <span>

#include "random/philox.h"

namespace graphbox {

inline constexpr std::uint32_t kLanes = 16;
inline constexpr std::uint32_t kMostLaneChoices = 64;  // of one node: beyond, comparing them all is slower than a set

// Degrees and draw positions of the nodes in the lanes.
struct LaneNodes {
  alignas(64) std::uint32_t degree[kLanes];  // all above the number of choices, unless with replacement above 0
  alignas(64) std::uint32_t position_low[kLanes];
  alignas(64) std::uint32_t position_high[kLanes];
};

// The draws that the nodes have in common.
struct LaneDraws {
  PhiloxKey key;
  std::uint32_t hop;
  std::uint32_t relation;
  std::uint32_t count;  // choices of each node, up to kMostLaneChoices
  bool replace;
};

// The choices as edges counted from the node's first: of each lane, one choice after the other.
struct LaneOffsets {
  alignas(64) std::uint32_t values[kMostLaneChoices][kLanes];
};

// Returns, as bits, the lanes whose draws may have to be rejected; what was written for these is void.
using LaneChooser = std::uint32_t (*)(const LaneDraws& draws, const LaneNodes& nodes, LaneOffsets& offsets);

// Those that this processor can run, the fastest first; perhaps none.
std::span<const LaneChooser> lane_choosers();

}  // namespace graphbox
