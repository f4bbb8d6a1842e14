#include "rows/residual_rows.h"

#include <array>

#include "portability/instruction_set.h"
#include "store/gather.h"
#include "train/lanes.h"

namespace graphbox {
namespace {

constexpr std::int64_t kPrefetchedRows = 16;
constexpr std::size_t kVectors = 4;

GRAPHBOX_INLINE void add_row(const ResidualArrays& table, std::int64_t row, float* __restrict out) {
  const std::uint8_t* const codes = table.codes + static_cast<std::size_t>(row) * table.books;
  const std::size_t book_size = kCodebookRows * table.dim;
  std::size_t column = 0;
  for (; column + kVectors * kLaneCount <= table.dim; column += kVectors * kLaneCount) {
    std::array<Lanes, kVectors> sums{};
    const float* book = table.codebooks + column;
    for (std::size_t i = 0; i < table.books; ++i, book += book_size) {
      for (std::size_t vector = 0; vector < kVectors; ++vector) {
        Lanes part;
        load(part, book + codes[i] * table.dim + vector * kLaneCount);
        sums[vector] += part;
      }
    }
    for (std::size_t vector = 0; vector < kVectors; ++vector) {
      store(out + column + vector * kLaneCount, sums[vector]);
    }
  }
  for (std::size_t rest = column; rest < table.dim; ++rest) {
    out[rest] = 0.0F;
  }
  const float* book = table.codebooks;
  for (std::size_t i = 0; i < table.books && column < table.dim; ++i, book += book_size) {
    const float* const part = book + codes[i] * table.dim;
    for (std::size_t rest = column; rest < table.dim; ++rest) {
      out[rest] += part[rest];
    }
  }
}

GRAPHBOX_INLINE void take_sums(const ResidualArrays& table, std::span<const std::int64_t> index,
                               const RowOutput& out) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (i + kPrefetchedRows < index.size()) {
      const auto ahead = static_cast<std::size_t>(index[i + kPrefetchedRows]) * table.books;
      prefetch_range(reinterpret_cast<const std::byte*>(table.codes + ahead), table.books);
    }
    add_row(table, index[i], out.row(i));
  }
}

GRAPHBOX_INLINE void decode_sums(const ResidualArrays& table, std::int64_t start, std::int64_t count,
                                 const RowOutput& out) {
  for (std::int64_t i = 0; i < count; ++i) {
    add_row(table, start + i, out.row(static_cast<std::size_t>(i)));
  }
}

}  // namespace

std::uint64_t ResidualRows::bytes() const {
  return static_cast<std::uint64_t>(rows()) * arrays_.books + arrays_.books * kCodebookRows * dim() * sizeof(float);
}

void ResidualRows::take(std::span<const std::int64_t> index, const RowOutput& out) const {
  run_with_instruction_set([&](auto) GRAPHBOX_INLINE_LAMBDA { take_sums(arrays_, index, out); });
}

void ResidualRows::decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const {
  const RowOutput rows = {out, out_stride};
  run_with_instruction_set([&](auto) GRAPHBOX_INLINE_LAMBDA { decode_sums(arrays_, start, count, rows); });
}

}  // namespace graphbox
