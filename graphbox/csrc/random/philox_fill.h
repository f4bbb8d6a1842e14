// Many Philox words at once, several blocks in the lanes of a vector register.
#pragma once

#include <cstdint>

#include "random/philox.h"

namespace graphbox {

inline constexpr std::uint32_t kPhiloxGroupWords = 32;  // of eight blocks

// Writes the words of draws 32 * first_group ... 32 * (first_group + groups) - 1 of a position: as DrawSequence::block
// would. `place` is word 1 of the counter.
void philox_fill(PhiloxKey key, std::uint32_t place, std::uint64_t position, std::uint32_t first_group,
                 std::uint32_t groups, std::uint32_t* words);

}  // namespace graphbox
