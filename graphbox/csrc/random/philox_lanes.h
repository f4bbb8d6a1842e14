// Philox in the lanes of vector registers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "random/philox.h"

namespace graphbox {

// Blocks that are computed together. Words stand in the low halves of 64 bits, as products want them: so compilers make
// one vector multiplication of each, and what the high halves hold is never looked at. Loops over lanes must not be
// unrolled for that: GCC finds no vectors in what is left of them.
template <std::size_t kLanes>
struct PhiloxLanes {
  using Words = std::array<std::uint64_t, kLanes>;

  std::array<Words, 4> words;

  // Sets the lane's counter.
  GRAPHBOX_INLINE void start(std::size_t lane, std::uint32_t block, std::uint32_t place, std::uint64_t position) {
    words[0][lane] = block;
    words[1][lane] = place;
    words[2][lane] = position;
    words[3][lane] = position >> 32;
  }

  // Turns counters into blocks. For functions that are compiled for several instruction sets.
  GRAPHBOX_INLINE void run(PhiloxKey key) {
    using namespace philox_detail;
    for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 1
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t product0 = kMultiplier0 * (words[0][lane] & UINT32_MAX);
        const std::uint64_t product1 = kMultiplier1 * (words[2][lane] & UINT32_MAX);
        words[0][lane] = product1 >> 32 ^ words[1][lane] ^ key.low;
        words[1][lane] = product1;
        words[2][lane] = product0 >> 32 ^ words[3][lane] ^ key.high;
        words[3][lane] = product0;
      }
      key.low += kWeyl0;
      key.high += kWeyl1;
    }
  }

  // Writes the blocks, one after another.
  GRAPHBOX_INLINE void store(std::uint32_t* blocks) const {
#pragma GCC unroll 1
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      for (std::size_t number = 0; number < 4; ++number) {
        blocks[4 * lane + number] = word(number, lane);
      }
    }
  }

  GRAPHBOX_INLINE std::uint32_t word(std::size_t number, std::size_t lane) const {
    return static_cast<std::uint32_t>(words[number][lane]);
  }
};

}  // namespace graphbox
