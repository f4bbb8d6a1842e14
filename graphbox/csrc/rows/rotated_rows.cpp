#include "rows/rotated_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "portability/cpu.h"
#include "rows/rotated_codes.h"
#include "rows/rotated_products.h"
#include "store/gather.h"
#include "table/float16.h"

namespace graphbox {
namespace {

// Rows are transformed four at a time, and then written, so that loads of the second step need not wait for stores of
// the first. An instruction set transforms as many of them at once as its vectors hold.
constexpr std::size_t kRowsTogether = 4;
constexpr std::int64_t kPrefetchedRows = 24;

// The share of one row of a vector, 16 bytes.
template <std::size_t kRows, std::size_t kRow>
GRAPHBOX_INLINE void store_share(const typename ShortGroup<kRows>::Signed& sums, std::int16_t* to) {
  if constexpr (kRows == 1) {
    std::memcpy(to, &sums, sizeof(sums));
  } else {
    const auto words = reinterpret_cast<typename ShortGroup<kRows>::Words>(sums);
    const typename ShortGroup<1>::Words own = __builtin_shufflevector(words, words, 2 * kRow, 2 * kRow + 1);
    std::memcpy(to, &own, sizeof(own));
  }
}

template <int kBits, std::size_t kSize, std::size_t kRows>
GRAPHBOX_INLINE void transform_part(const Codes<kBits, kRows>& codes, std::size_t start, std::size_t dim,
                                    std::int16_t* sums) {
  ShortBlock<kRows> block;
  codes.template unpack<kSize>(start, block);
  transform<kSize, kRows>(block);
  for (std::size_t i = 0; i < kSize / kShortLanes; ++i) {
    [&]<std::size_t... kRow>(std::index_sequence<kRow...>) GRAPHBOX_INLINE_LAMBDA {
      (store_share<kRows, kRow>(block[i], sums + kRow * dim + start + i * kShortLanes), ...);
    }(std::make_index_sequence<kRows>());
  }
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

// For results that are scattered: no pattern foretells where they are written.
GRAPHBOX_INLINE void prefetch_write_range(const float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kCacheLineBytes / sizeof(float)) {
    prefetch_write(values + i);
  }
}

// `row_of` gives the row of each of `count` results.
template <int kBits, std::size_t kRows, typename RowOf>
GRAPHBOX_INLINE void decode_rows(const RotatedRows& table, std::int64_t count, const RowOf& row_of,
                                 const RowOutput& out) {
  const std::uint8_t* const packed = table.arrays().packed;
  const std::size_t row_bytes = table.row_bytes();
  const auto row_at = [&](std::int64_t i) { return packed + static_cast<std::size_t>(row_of(i)) * row_bytes; };
  const std::size_t dim = table.dim();
  std::vector<std::int16_t> sums(kRowsTogether * dim);
  std::array<std::uint16_t, 2 * kRowsTogether> halves;
  std::array<float, 2 * kRowsTogether> factors;
  for (std::int64_t start = 0; start < count; start += kRowsTogether) {
    for (std::size_t first = 0; first < kRowsTogether; first += kRows) {
      std::array<const std::uint8_t*, kRows> rows;
      for (std::size_t row = 0; row < kRows; ++row) {
        // At the end the last one again, whose results are not written.
        rows[row] = row_at(std::min(start + static_cast<std::int64_t>(first + row), count - 1));
        std::memcpy(&halves[2 * (first + row)], rows[row], kFactorBytes);
      }
      const Codes<kBits, kRows> codes(rows, dim);
      for (const RotatedRows::Block& block : table.blocks()) {
        transform_block(codes, block, dim, sums.data() + first * dim);
      }
    }
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i] = float16_value(halves[i]);
    }
    for (std::int64_t i = start; i < std::min(start + static_cast<std::int64_t>(kRowsTogether), count); ++i) {
      if (i + kPrefetchedRows < count) {
        prefetch_range(reinterpret_cast<const std::byte*>(row_at(i + kPrefetchedRows)), row_bytes);
        if (out.places != nullptr) {
          prefetch_write_range(out.row(static_cast<std::size_t>(i + kPrefetchedRows)), dim);
        }
      }
      const auto number = static_cast<std::size_t>(i - start);
      write_row(table, sums.data() + number * dim, factors[2 * number], factors[2 * number + 1],
                out.row(static_cast<std::size_t>(i)));
    }
  }
}

template <int kBits, typename RowOf>
void decode_to(const RotatedRows& table, std::int64_t count, const RowOf& row_of, const RowOutput& out) {
  run_with_instruction_set([&]<InstructionSet kSet>(ForSet<kSet>) GRAPHBOX_INLINE_LAMBDA {
    decode_rows<kBits, kRowsInVector<kSet>>(table, count, row_of, out);
  });
}

template <typename RowOf>
void decode_any(const RotatedRows& table, std::int64_t count, const RowOf& row_of, const RowOutput& out) {
  switch (table.arrays().bits) {
    case 2:
      return decode_to<2>(table, count, row_of, out);
    case 3:
      return decode_to<3>(table, count, row_of, out);
    default:
      return decode_to<4>(table, count, row_of, out);
  }
}

}  // namespace

std::size_t rotated_row_bytes(int bits, std::size_t dim) {
  const std::size_t codes = bits == 3 ? bytes_of_bits(2 * dim) + bytes_of_bits(dim)
                                      : bytes_of_bits(static_cast<std::size_t>(bits) * dim);
  return kFactorBytes + codes;
}

RotatedRows::RotatedRows(const RotatedArrays& arrays)
    : StoredRows(arrays.rows, arrays.dim),
      arrays_(arrays),
      row_bytes_(rotated_row_bytes(arrays.bits, arrays.dim)),
      weights_(arrays.dim) {
  for (std::size_t start = 0; start < arrays.dim;) {
    const std::size_t size = std::min(std::bit_floor(arrays.dim - start), kLargestTransform);
    const double root = std::sqrt(static_cast<double>(size));
    blocks_.push_back({start, size, static_cast<float>(root) * static_cast<float>(arrays.signs[start])});
    for (std::size_t i = start; i < start + size; ++i) {
      weights_[i] = static_cast<float>(1 / root) * static_cast<float>(arrays.signs[i]);
    }
    start += size;
  }
}

std::uint64_t RotatedRows::bytes() const {
  return static_cast<std::uint64_t>(rows()) * row_bytes_ + dim() * sizeof(std::int8_t);
}

void RotatedRows::take(std::span<const std::int64_t> index, const RowOutput& out) const {
  const auto row_of = [index](std::int64_t i) GRAPHBOX_INLINE_LAMBDA { return index[static_cast<std::size_t>(i)]; };
  decode_any(*this, static_cast<std::int64_t>(index.size()), row_of, out);
}

void RotatedRows::decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const {
  decode_any(*this, count, [start](std::int64_t i) GRAPHBOX_INLINE_LAMBDA { return start + i; }, {out, out_stride});
}

std::unique_ptr<ProductBounds> RotatedRows::product_bounds(std::span<const float> query) const {
  return RotatedProducts::of(*this, query);
}

}  // namespace graphbox
