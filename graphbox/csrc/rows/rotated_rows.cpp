#include "rows/rotated_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "portability/cpu.h"
#include "rows/rotated_group.h"
#include "rows/rotated_products.h"
#include "store/gather.h"
#include "table/float16.h"

namespace graphbox {
namespace {

constexpr std::int64_t kPrefetchedRows = 24;

// `row_of` gives the row of each of `count` results.
template <int kBits, std::size_t kRows, typename RowOf>
GRAPHBOX_INLINE void decode_rows(const RotatedRows& table, std::int64_t count, const RowOf& row_of,
                                 const RowOutput& out) {
  const auto row_at = [&](std::int64_t i) {
    return table.arrays().packed + static_cast<std::size_t>(row_of(i)) * table.row_bytes();
  };
  const auto prefetch_at = [&](std::int64_t i) {
    prefetch_range(reinterpret_cast<const std::byte*>(row_at(i)), table.row_bytes());
  };
  std::vector<std::int16_t> sums(kRotatedTogether * table.dim());
  for (std::int64_t i = 0; i < std::min(kPrefetchedRows, count); ++i) {
    prefetch_at(i);
  }
  for (std::int64_t start = 0; start < count; start += kRotatedTogether) {
    RowGroup group;
    group.count = static_cast<std::size_t>(std::min<std::int64_t>(kRotatedTogether, count - start));
    for (std::size_t i = 0; i < group.count; ++i) {
      const auto at = start + static_cast<std::int64_t>(i);
      group.rows[i] = row_at(at);
      group.results[i] = out.row(static_cast<std::size_t>(at));
      if (at + kPrefetchedRows < count) {
        prefetch_at(at + kPrefetchedRows);
      }
    }
    decode_group<kBits, kRows>(table, group, sums.data());
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

void RotatedRows::find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const {
  for (std::size_t i = 0; i < index.size(); ++i) {
    found[places[i]] = {this, arrays_.packed + static_cast<std::size_t>(index[i]) * row_bytes_, nullptr};
  }
}

std::unique_ptr<ProductBounds> RotatedRows::product_bounds(std::span<const float> query) const {
  return RotatedProducts::of(*this, query);
}

}  // namespace graphbox
