// Arithmetic on sixteen numbers at a time, for functions compiled for several instruction sets: each cuts them as wide
// as it can. Every element is computed in one order, so that all give the same bits.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portability/cpu.h"

namespace graphbox {

inline constexpr std::size_t kLaneCount = 16;

using Lanes [[gnu::vector_size(64)]] = float;
using IntLanes [[gnu::vector_size(64)]] = std::int32_t;

constexpr std::size_t whole_lanes(std::size_t count) { return (count + kLaneCount - 1) / kLaneCount * kLaneCount; }

// By reference: passing them by value means something else for each instruction set.
GRAPHBOX_INLINE void load(Lanes& lanes, const float* from) { std::memcpy(&lanes, from, sizeof(lanes)); }
GRAPHBOX_INLINE void store(float* to, const Lanes& lanes) { std::memcpy(to, &lanes, sizeof(lanes)); }

// exponential = e^-|x|, to about 2e-7 of itself; NaN where x is infinite or NaN.
GRAPHBOX_INLINE void exp_of_negative_absolute(const Lanes& x, Lanes& exponential) {
  constexpr float kMost = 87.0F;  // e^-87 is still a normal number
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: adding it leaves no bits below 1
  Lanes absolute = x < 0.0F ? -x : x;
  absolute = absolute > kMost ? absolute - absolute + kMost : absolute;
  const Lanes exponent = absolute * -1.44269504F;
  const Lanes whole = (exponent + kRounder) - kRounder;
  const Lanes rest = (exponent - whole) * 0.693147181F;  // in [-ln 2 / 2, ln 2 / 2]
  const Lanes power =
      1.0F +
      rest * (1.0F + rest * (0.5F + rest * (1.0F / 6 + rest * (1.0F / 24 + rest * (1.0F / 120 + rest * (1.0F / 720))))));
  const IntLanes bits = (__builtin_convertvector(whole, IntLanes) + 127) << 23;
  Lanes scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  exponential = power * scale;
}

// A matrix whose element (row, column) is at data[row * row_stride + column * column_stride].
struct StridedMatrix {
  const float* data;
  std::size_t row_stride;
  std::size_t column_stride;
};

namespace lanes_detail {

template <std::size_t kRows, std::size_t kVectors, bool kAdd>
GRAPHBOX_INLINE void product_tile(const StridedMatrix& a, const float* b, std::size_t b_stride, std::size_t depth,
                                  float* c, std::size_t c_stride) {
  std::array<std::array<Lanes, kVectors>, kRows> sums;
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t vector = 0; vector < kVectors; ++vector) {
      if constexpr (kAdd) {
        load(sums[row][vector], c + row * c_stride + vector * kLaneCount);
      } else {
        sums[row][vector] = Lanes{};
      }
    }
  }
  const float* column = a.data;
  for (std::size_t k = 0; k < depth; ++k, column += a.column_stride, b += b_stride) {
    std::array<Lanes, kVectors> right;
    for (std::size_t vector = 0; vector < kVectors; ++vector) {
      load(right[vector], b + vector * kLaneCount);
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      const float left = column[row * a.row_stride];
      for (std::size_t vector = 0; vector < kVectors; ++vector) {
        sums[row][vector] += left * right[vector];
      }
    }
  }
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t vector = 0; vector < kVectors; ++vector) {
      store(c + row * c_stride + vector * kLaneCount, sums[row][vector]);
    }
  }
}

// As many rows at a time as there are; returns the number of the next row.
template <std::size_t kRows, std::size_t kVectors, bool kAdd>
GRAPHBOX_INLINE std::size_t product_rows(const StridedMatrix& a, std::size_t row, std::size_t rows, const float* b,
                                         std::size_t b_stride, std::size_t depth, float* c, std::size_t c_stride) {
  for (; row + kRows <= rows; row += kRows) {
    const StridedMatrix part = {a.data + row * a.row_stride, a.row_stride, a.column_stride};
    product_tile<kRows, kVectors, kAdd>(part, b, b_stride, depth, c + row * c_stride, c_stride);
  }
  return row;
}

template <std::size_t kVectors, bool kAdd>
GRAPHBOX_INLINE void product_columns(const StridedMatrix& a, std::size_t rows, const float* b, std::size_t b_stride,
                                     std::size_t depth, float* c, std::size_t c_stride) {
  std::size_t row = product_rows<8, kVectors, kAdd>(a, 0, rows, b, b_stride, depth, c, c_stride);
  row = product_rows<4, kVectors, kAdd>(a, row, rows, b, b_stride, depth, c, c_stride);
  row = product_rows<2, kVectors, kAdd>(a, row, rows, b, b_stride, depth, c, c_stride);
  product_rows<1, kVectors, kAdd>(a, row, rows, b, b_stride, depth, c, c_stride);
}

}  // namespace lanes_detail

// c = a b, or with kAdd c += a b, of `rows` x `depth` and `depth` x `columns` numbers; b and c have contiguous rows,
// `columns` is a multiple of kLaneCount.
template <bool kAdd>
GRAPHBOX_INLINE void product(const StridedMatrix& a, std::size_t rows, const float* b, std::size_t b_stride,
                             std::size_t columns, std::size_t depth, float* c, std::size_t c_stride) {
  std::size_t column = 0;
  for (; column + 2 * kLaneCount <= columns; column += 2 * kLaneCount) {
    lanes_detail::product_columns<2, kAdd>(a, rows, b + column, b_stride, depth, c + column, c_stride);
  }
  if (column < columns) {
    lanes_detail::product_columns<1, kAdd>(a, rows, b + column, b_stride, depth, c + column, c_stride);
  }
}

}  // namespace graphbox
