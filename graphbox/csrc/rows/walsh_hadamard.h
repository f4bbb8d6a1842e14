// The Walsh-Hadamard transform of blocks of small integers, eight at a time in vectors of 16 bytes, which every
// instruction set has. Integers are exact, so all instruction sets give the same numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "portability/cpu.h"

namespace graphbox {

using Shorts [[gnu::vector_size(16)]] = std::int16_t;
using UnsignedShorts [[gnu::vector_size(16)]] = std::uint16_t;

inline constexpr std::size_t kShortLanes = 8;
inline constexpr std::size_t kTransformed = 64;         // elements at most in one call of transform()
inline constexpr std::size_t kLargestTransform = 256;   // elements at most of a block: sums of codes fit 16 bits

// Element 8 * lane + k of a block in lane `lane` of the k-th vector, and after transform() element 8 * k + lane.
using ShortBlock = std::array<Shorts, kTransformed / kShortLanes>;

namespace walsh_hadamard_detail {

// One stage between vectors whose numbers differ in `kBit`. The bit then is the lowest of the lane, and the highest bit
// of the lane takes its place in the numbers of the vectors.
template <std::size_t kBit, std::size_t kVectors>
GRAPHBOX_INLINE void add_and_interleave(ShortBlock& block) {
  for (std::size_t low = 0; low < kVectors; ++low) {
    if ((low & kBit) == 0) {
      const Shorts sum = block[low] + block[low | kBit];
      const Shorts difference = block[low] - block[low | kBit];
      block[low] = __builtin_shuffle(sum, difference, Shorts{0, 8, 1, 9, 2, 10, 3, 11});
      block[low | kBit] = __builtin_shuffle(sum, difference, Shorts{4, 12, 5, 13, 6, 14, 7, 15});
    }
  }
}

template <std::size_t kBit, std::size_t kVectors>
GRAPHBOX_INLINE void add(ShortBlock& block) {
  for (std::size_t low = 0; low < kVectors; ++low) {
    if ((low & kBit) == 0) {
      const Shorts sum = block[low] + block[low | kBit];
      block[low | kBit] = block[low] - block[low | kBit];
      block[low] = sum;
    }
  }
}

}  // namespace walsh_hadamard_detail

// Of kSize elements, 8, 16, 32 or 64; those behind must be zero, and are undefined afterwards. Not normalized.
template <std::size_t kSize>
GRAPHBOX_INLINE void transform(ShortBlock& block) {
  using namespace walsh_hadamard_detail;
  constexpr std::size_t kVectors = kSize / kShortLanes;
  add_and_interleave<4, 8>(block);
  // Halves of zeros stay zero.
  add_and_interleave<2, (kVectors > 4 ? 8 : 4)>(block);
  add_and_interleave<1, (kVectors > 4 ? 8 : kVectors > 2 ? 4 : 2)>(block);
  if constexpr (kVectors > 4) {
    add<4, kVectors>(block);
  }
  if constexpr (kVectors > 2) {
    add<2, kVectors>(block);
  }
  if constexpr (kVectors > 1) {
    add<1, kVectors>(block);
  }
}

// One stage of `size` elements in memory, between the first and the second half of each `2 * distance`.
GRAPHBOX_INLINE void add_in_memory(std::int16_t* __restrict elements, std::size_t size, std::size_t distance) {
  for (std::size_t start = 0; start < size; start += 2 * distance) {
    for (std::size_t i = start; i < start + distance; ++i) {
      const auto sum = static_cast<std::int16_t>(elements[i] + elements[i + distance]);
      elements[i + distance] = static_cast<std::int16_t>(elements[i] - elements[i + distance]);
      elements[i] = sum;
    }
  }
}

}  // namespace graphbox
