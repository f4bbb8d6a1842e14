// Decodes a few rotated rows at once, for functions that are compiled for several instruction sets.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portability/cpu.h"
#include "rows/rotated_codes.h"
#include "rows/rotated_rows.h"
#include "rows/walsh_hadamard.h"
#include "table/float16.h"

namespace graphbox {

// Rows are transformed four at a time, and then written, so that loads of the second step need not wait for stores of
// the first. An instruction set transforms as many of them at once as its vectors hold.
inline constexpr std::size_t kRotatedTogether = 4;

// Rows of one table, at most kRotatedTogether.
struct RowGroup {
  std::array<const std::uint8_t*, kRotatedTogether> rows;
  std::array<float*, kRotatedTogether> results;
  std::array<const float*, kRotatedTogether> added{};  // to each row; null: nothing
  std::size_t count = 0;
};

namespace rotated_group_detail {

// Writes kVectors vectors to each row's numbers, in the longest stores that hold one row alone: loads of the second step
// that are longer than the stores before them would wait until those are in the cache.
template <std::size_t kVectors, std::size_t kRows>
GRAPHBOX_INLINE void store_rows(const typename ShortGroup<kRows>::Signed* vectors, std::size_t dim, std::int16_t* to) {
  using Words = typename ShortGroup<kRows>::Words;
  if constexpr (kRows == 4 && kVectors % 4 == 0) {
    for (std::size_t i = 0; i < kVectors; i += 4) {
      const auto a = reinterpret_cast<Words>(vectors[i]);
      const auto b = reinterpret_cast<Words>(vectors[i + 1]);
      const auto c = reinterpret_cast<Words>(vectors[i + 2]);
      const auto d = reinterpret_cast<Words>(vectors[i + 3]);
      const Words ab01 = __builtin_shufflevector(a, b, 0, 1, 8, 9, 2, 3, 10, 11);
      const Words ab23 = __builtin_shufflevector(a, b, 4, 5, 12, 13, 6, 7, 14, 15);
      const Words cd01 = __builtin_shufflevector(c, d, 0, 1, 8, 9, 2, 3, 10, 11);
      const Words cd23 = __builtin_shufflevector(c, d, 4, 5, 12, 13, 6, 7, 14, 15);
      const std::array<Words, 4> rows = {__builtin_shufflevector(ab01, cd01, 0, 1, 2, 3, 8, 9, 10, 11),
                                         __builtin_shufflevector(ab01, cd01, 4, 5, 6, 7, 12, 13, 14, 15),
                                         __builtin_shufflevector(ab23, cd23, 0, 1, 2, 3, 8, 9, 10, 11),
                                         __builtin_shufflevector(ab23, cd23, 4, 5, 6, 7, 12, 13, 14, 15)};
      for (std::size_t row = 0; row < kRows; ++row) {
        std::memcpy(to + row * dim + i * kShortLanes, &rows[row], sizeof(rows[row]));
      }
    }
  } else if constexpr (kRows == 2 && kVectors % 2 == 0) {
    for (std::size_t i = 0; i < kVectors; i += 2) {
      const auto a = reinterpret_cast<Words>(vectors[i]);
      const auto b = reinterpret_cast<Words>(vectors[i + 1]);
      const Words first = __builtin_shufflevector(a, b, 0, 1, 4, 5);
      const Words second = __builtin_shufflevector(a, b, 2, 3, 6, 7);
      std::memcpy(to + i * kShortLanes, &first, sizeof(first));
      std::memcpy(to + dim + i * kShortLanes, &second, sizeof(second));
    }
  } else {
    for (std::size_t i = 0; i < kVectors; ++i) {
      std::array<ShortGroup<1>::Words, kRows> shares;
      std::memcpy(&shares, &vectors[i], sizeof(shares));
      for (std::size_t row = 0; row < kRows; ++row) {
        std::memcpy(to + row * dim + i * kShortLanes, &shares[row], sizeof(shares[row]));
      }
    }
  }
}

template <int kBits, std::size_t kSize, std::size_t kRows>
GRAPHBOX_INLINE void transform_part(const Codes<kBits, kRows>& codes, std::size_t start, std::size_t dim,
                                    std::int16_t* sums) {
  ShortBlock<kRows> block;
  codes.template unpack<kSize>(start, block);
  transform<kSize, kRows>(block);
  store_rows<kSize / kShortLanes, kRows>(block.data(), dim, sums + start);
}

// sums[row * dim + start ...] = the transform of the codes of one block of each row.
template <int kBits, std::size_t kRows>
GRAPHBOX_INLINE void transform_block(const Codes<kBits, kRows>& codes, const RotatedRows::Block& block,
                                     std::size_t dim, std::int16_t* sums) {
  std::size_t distance = std::min(block.size, kTransformed);
  if (block.size >= kTransformed) {
    for (std::size_t part = block.start; part < block.start + block.size; part += kTransformed) {
      transform_part<kBits, kTransformed>(codes, part, dim, sums);
    }
  } else if (block.size == 32) {
    transform_part<kBits, 32>(codes, block.start, dim, sums);
  } else if (block.size == 16) {
    transform_part<kBits, 16>(codes, block.start, dim, sums);
  } else if (block.size == 8) {
    transform_part<kBits, 8>(codes, block.start, dim, sums);
  } else {
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t i = block.start; i < block.start + block.size; ++i) {
        sums[row * dim + i] = static_cast<std::int16_t>(codes.code(row, i));
      }
    }
    distance = 1;
  }
  for (; distance < block.size; distance *= 2) {
    for (std::size_t row = 0; row < kRows; ++row) {
      add_in_memory(sums + row * dim + block.start, block.size, distance);
    }
  }
}

GRAPHBOX_INLINE void write_row(const RotatedRows& table, const std::int16_t* __restrict sums, float scale, float bias,
                               float* __restrict out) {
  const std::size_t dim = table.dim();
  const float* __restrict weights = table.weights();
  // Not with __builtin_convertvector, which GCC cuts into scalars before it knows the instruction set.
  for (std::size_t i = 0; i < dim; ++i) {
    out[i] = static_cast<float>(sums[i]) * scale * weights[i];
  }
  for (const RotatedRows::Block& block : table.blocks()) {
    const auto sum = static_cast<float>(sums[block.start]);
    out[block.start] = sum * scale * weights[block.start] + bias * block.bias_weight;
  }
}

// The same, and `added` to it.
GRAPHBOX_INLINE void write_sum(const RotatedRows& table, const std::int16_t* __restrict sums, float scale, float bias,
                               const float* __restrict added, float* __restrict out) {
  const std::size_t dim = table.dim();
  const float* __restrict weights = table.weights();
  for (std::size_t i = 0; i < dim; ++i) {
    out[i] = static_cast<float>(sums[i]) * scale * weights[i] + added[i];
  }
  for (const RotatedRows::Block& block : table.blocks()) {
    const auto sum = static_cast<float>(sums[block.start]);
    out[block.start] = sum * scale * weights[block.start] + bias * block.bias_weight + added[block.start];
  }
}

// Scale and bias of four rows, made of registers: loaded from where parts of it were just written it would wait for the
// writes, and those for all before them.
using FourFactors [[gnu::vector_size(16)]] = std::uint32_t;

GRAPHBOX_INLINE std::uint32_t factors_of(const RowGroup& group, std::size_t row) {
  std::uint32_t factors;
  static_assert(sizeof(factors) == kFactorBytes);
  std::memcpy(&factors, group.rows[std::min(row, group.count - 1)], sizeof(factors));
  return factors;
}

}  // namespace rotated_group_detail

// `sums`: kRotatedTogether * dim numbers to work in.
template <int kBits, std::size_t kRows>
GRAPHBOX_INLINE void decode_group(const RotatedRows& table, const RowGroup& group, std::int16_t* sums) {
  using namespace rotated_group_detail;
  const std::size_t dim = table.dim();
  std::array<std::uint16_t, 2 * kRotatedTogether> halves;
  std::array<float, 2 * kRotatedTogether> factors;
  for (std::size_t first = 0; first < kRotatedTogether; first += kRows) {
    std::array<const std::uint8_t*, kRows> rows;
    for (std::size_t row = 0; row < kRows; ++row) {
      // At the end the last one again, whose results are not written.
      rows[row] = group.rows[std::min(first + row, group.count - 1)];
    }
    const Codes<kBits, kRows> codes(rows, dim);
    for (const RotatedRows::Block& block : table.blocks()) {
      transform_block(codes, block, dim, sums + first * dim);
    }
  }
  const FourFactors packed = {factors_of(group, 0), factors_of(group, 1), factors_of(group, 2), factors_of(group, 3)};
  std::memcpy(halves.data(), &packed, sizeof(packed));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i] = float16_value(halves[i]);
  }
  for (std::size_t i = 0; i < group.count; ++i) {
    if (group.added[i] == nullptr) {
      write_row(table, sums + i * dim, factors[2 * i], factors[2 * i + 1], group.results[i]);
    } else {
      write_sum(table, sums + i * dim, factors[2 * i], factors[2 * i + 1], group.added[i], group.results[i]);
    }
  }
}

}  // namespace graphbox
