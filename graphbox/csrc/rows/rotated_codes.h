// Codes of rotated rows, taken out of the packed bytes of several rows at once. Each row has 16 bytes of a vector.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "portability/cpu.h"
#include "portability/instruction_set.h"
#include "rows/walsh_hadamard.h"

namespace graphbox {

inline constexpr std::size_t kFactorBytes = 2 * sizeof(std::uint16_t);  // scale and bias, in front of the codes

// Rows whose codes fill a vector of an instruction set.
template <InstructionSet kSet>
constexpr std::size_t kRowsInVector = kSet == InstructionSet::kAvx512 ? 4 : kSet == InstructionSet::kAvx2 ? 2 : 1;

constexpr std::size_t bytes_of_bits(std::size_t bits) { return (bits + 7) / 8; }

namespace rotated_codes_detail {

using TwoWords = ShortGroup<1>::Words;
using FourWords = ShortGroup<2>::Words;

template <std::size_t kBytes>
using Word = std::conditional_t<
    kBytes == 8, std::uint64_t,
    std::conditional_t<kBytes == 4, std::uint32_t, std::conditional_t<kBytes == 2, std::uint16_t, std::uint8_t>>>;

// kBytes, at most 16, of each row at an offset into the row's share of the vector; the rest is zero. The vector is made
// of registers: made of memory that was just written in parts it would wait for the writes.
template <std::size_t kBytes, std::size_t kRows>
GRAPHBOX_INLINE void load_codes(typename ShortGroup<kRows>::Unsigned& codes,
                                const std::array<const std::uint8_t*, kRows>& rows, std::size_t offset) {
  std::array<TwoWords, kRows> parts;
  for (std::size_t row = 0; row < kRows; ++row) {
    if constexpr (kBytes == sizeof(TwoWords)) {
      std::memcpy(&parts[row], rows[row] + offset, kBytes);
    } else {
      Word<kBytes> word;
      std::memcpy(&word, rows[row] + offset, kBytes);
      parts[row] = TwoWords{static_cast<std::int64_t>(word), 0};
    }
  }
  if constexpr (kRows == 1) {
    codes = reinterpret_cast<typename ShortGroup<kRows>::Unsigned>(parts[0]);
  } else {
    const FourWords first = __builtin_shufflevector(parts[0], parts[1], 0, 1, 2, 3);
    if constexpr (kRows == 2) {
      codes = reinterpret_cast<typename ShortGroup<kRows>::Unsigned>(first);
    } else {
      const FourWords second = __builtin_shufflevector(parts[2], parts[3], 0, 1, 2, 3);
      codes = reinterpret_cast<typename ShortGroup<kRows>::Unsigned>(
          __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7));
    }
  }
}

// The places of the even or odd numbers of two vectors, those of the first before those of the second in each row.
template <std::size_t kRows>
constexpr std::array<std::uint16_t, kRows * kShortLanes> every_2nd(std::size_t from) {
  std::array<std::uint16_t, kRows * kShortLanes> places{};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t vector = i % kShortLanes / 4;
    const std::size_t row = i / kShortLanes;
    places[i] = static_cast<std::uint16_t>(vector * places.size() + row * kShortLanes + i % 4 * 2 + from);
  }
  return places;
}

template <std::size_t kRows, std::size_t kFrom>
constexpr auto kEvery2nd = every_2nd<kRows>(kFrom);

}  // namespace rotated_codes_detail

// Codes of kRows rows.
template <int kBits, std::size_t kRows>
class Codes {
 public:
  using Signed = typename ShortGroup<kRows>::Signed;
  using Unsigned = typename ShortGroup<kRows>::Unsigned;

  GRAPHBOX_INLINE Codes(const std::array<const std::uint8_t*, kRows>& rows, std::size_t dim)
      : rows_(rows), high_(kFactorBytes + bytes_of_bits(2 * dim)) {}

  // kSize codes from `start`, a multiple of kSize.
  template <std::size_t kSize>
  GRAPHBOX_INLINE void unpack(std::size_t start, ShortBlock<kRows>& block) const {
    if constexpr (kBits == 4) {
      Unsigned first;
      Unsigned second{};
      rotated_codes_detail::load_codes<std::min<std::size_t>(kSize / 2, 16)>(first, rows_, kFactorBytes + start / 2);
      if constexpr (kSize > 32) {
        rotated_codes_detail::load_codes<16>(second, rows_, kFactorBytes + start / 2 + 16);
      }
      // Eight codes of a lane are in two neighbours.
      for (std::size_t odd = 0; odd < 2; ++odd) {
        Unsigned places;
        std::memcpy(&places, odd == 0 ? &rotated_codes_detail::kEvery2nd<kRows, 0> : &rotated_codes_detail::kEvery2nd<kRows, 1>, sizeof(places));
        const Unsigned four = __builtin_shuffle(first, second, places);
        for (std::size_t i = 0; i < 4; ++i) {
          block[4 * odd + i] = reinterpret_cast<Signed>((four >> 4 * static_cast<int>(i)) & 15);
        }
      }
    } else {
      Unsigned codes;
      rotated_codes_detail::load_codes<kSize / 4>(codes, rows_, kFactorBytes + start / 4);
      for (int i = 0; i < 8; ++i) {
        block[static_cast<std::size_t>(i)] = reinterpret_cast<Signed>((codes >> 2 * i) & 3);
      }
    }
    if constexpr (kBits == 3) {
      add_high_bits<kSize>(start, block);
    }
  }

  GRAPHBOX_INLINE int code(std::size_t row, std::size_t i) const {
    const std::uint8_t* const low = rows_[row] + kFactorBytes;
    if constexpr (kBits == 4) {
      return low[i / 2] >> (4 * (i % 2)) & 15;
    }
    const int pair = low[i / 4] >> (2 * (i % 4)) & 3;
    return kBits == 2 ? pair : pair | (rows_[row][high_ + i / 8] >> (i % 8) & 1) << 2;
  }

 private:
  template <std::size_t kSize>
  GRAPHBOX_INLINE void add_high_bits(std::size_t start, ShortBlock<kRows>& block) const {
    Unsigned bytes;
    rotated_codes_detail::load_codes<kSize / 8>(bytes, rows_, high_ + start / 8);
    // A byte for each lane; what is above it does not matter.
    const Unsigned shifted = bytes >> 8;
    Unsigned halves;
    std::memcpy(&halves, &walsh_hadamard_detail::kFirstHalves<kRows>, sizeof(halves));
    const Unsigned eight = __builtin_shuffle(bytes, shifted, halves);
    for (int i = 0; i < 8; ++i) {
      block[static_cast<std::size_t>(i)] |= reinterpret_cast<Signed>(((eight << 2) >> i) & 4);
    }
  }

  std::array<const std::uint8_t*, kRows> rows_;
  std::size_t high_;
};

}  // namespace graphbox
