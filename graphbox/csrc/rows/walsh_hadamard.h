// The Walsh-Hadamard transform of blocks of small integers, of several rows at once: each row has 16 bytes of a vector,
// and no step crosses them, so that longer vectors do more rows with the same steps. Integers are exact, so all
// instruction sets give the same numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portability/cpu.h"

namespace graphbox {

inline constexpr std::size_t kShortLanes = 8;           // of each row
inline constexpr std::size_t kTransformed = 64;         // elements at most in one call of transform()
inline constexpr std::size_t kLargestTransform = 256;   // elements at most of a block: sums of codes fit 16 bits

// Vectors with eight numbers of each row.
template <std::size_t kRows>
struct ShortGroup;

template <>
struct ShortGroup<1> {
  using Signed [[gnu::vector_size(16)]] = std::int16_t;
  using Unsigned [[gnu::vector_size(16)]] = std::uint16_t;
  using Words [[gnu::vector_size(16)]] = std::int64_t;
};

template <>
struct ShortGroup<2> {
  using Signed [[gnu::vector_size(32)]] = std::int16_t;
  using Unsigned [[gnu::vector_size(32)]] = std::uint16_t;
  using Words [[gnu::vector_size(32)]] = std::int64_t;
};

template <>
struct ShortGroup<4> {
  using Signed [[gnu::vector_size(64)]] = std::int16_t;
  using Unsigned [[gnu::vector_size(64)]] = std::uint16_t;
  using Words [[gnu::vector_size(64)]] = std::int64_t;
};

template <std::size_t kRows>
using ShortBlock = std::array<typename ShortGroup<kRows>::Signed, kTransformed / kShortLanes>;

// Element 8 * lane + k of a row's block in lane `lane` of the k-th vector, and after transform() element 8 * k + lane.

namespace walsh_hadamard_detail {

// The places of the first or last four numbers of both vectors in turns, within each row.
template <std::size_t kRows>
constexpr std::array<std::int16_t, kRows * kShortLanes> interleaved(std::size_t from) {
  std::array<std::int16_t, kRows * kShortLanes> places{};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t first = i / kShortLanes * kShortLanes + from + i % kShortLanes / 2;
    places[i] = static_cast<std::int16_t>(i % 2 == 0 ? first : first + places.size());
  }
  return places;
}

template <std::size_t kRows>
inline constexpr auto kFirstHalves = interleaved<kRows>(0);
template <std::size_t kRows>
inline constexpr auto kLastHalves = interleaved<kRows>(kShortLanes / 2);

// One stage between vectors whose numbers differ in `kBit`. The bit then is the lowest of the lane, and the highest bit
// of the lane takes its place in the numbers of the vectors.
template <std::size_t kBit, std::size_t kVectors, std::size_t kRows>
GRAPHBOX_INLINE void add_and_interleave(ShortBlock<kRows>& block) {
  using Shorts = typename ShortGroup<kRows>::Signed;
  Shorts first;
  Shorts last;
  std::memcpy(&first, &kFirstHalves<kRows>, sizeof(first));
  std::memcpy(&last, &kLastHalves<kRows>, sizeof(last));
  for (std::size_t low = 0; low < kVectors; ++low) {
    if ((low & kBit) == 0) {
      const Shorts sum = block[low] + block[low | kBit];
      const Shorts difference = block[low] - block[low | kBit];
      block[low] = __builtin_shuffle(sum, difference, first);
      block[low | kBit] = __builtin_shuffle(sum, difference, last);
    }
  }
}

template <std::size_t kBit, std::size_t kVectors, std::size_t kRows>
GRAPHBOX_INLINE void add(ShortBlock<kRows>& block) {
  using Shorts = typename ShortGroup<kRows>::Signed;
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
template <std::size_t kSize, std::size_t kRows>
GRAPHBOX_INLINE void transform(ShortBlock<kRows>& block) {
  using namespace walsh_hadamard_detail;
  constexpr std::size_t kVectors = kSize / kShortLanes;
  add_and_interleave<4, 8, kRows>(block);
  // Halves of zeros stay zero.
  add_and_interleave<2, (kVectors > 4 ? 8 : 4), kRows>(block);
  add_and_interleave<1, (kVectors > 4 ? 8 : kVectors > 2 ? 4 : 2), kRows>(block);
  if constexpr (kVectors > 4) {
    add<4, kVectors, kRows>(block);
  }
  if constexpr (kVectors > 2) {
    add<2, kVectors, kRows>(block);
  }
  if constexpr (kVectors > 1) {
    add<1, kVectors, kRows>(block);
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
