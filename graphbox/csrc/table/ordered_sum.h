// The order in which gradients of a row, and rows of a bag, are added: parts of kSummedTogether in their order, then the
// sums of the parts in theirs. A device adds the parts of a long sum side by side, and the bits are the same everywhere.
#pragma once

#include <cstdint>

namespace graphbox {

inline constexpr std::uint32_t kSummedTogether = 256;

// Whether what has so many before it in its sum is the first of a part.
inline bool begins_part(std::uint64_t before) { return before % kSummedTogether == 0; }

}  // namespace graphbox
