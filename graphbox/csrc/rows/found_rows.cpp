#include "rows/found_rows.h"

#include <algorithm>
#include <array>

#include "portability/instruction_set.h"
#include "rows/rotated_group.h"
#include "rows/stored_rows.h"
#include "store/gather.h"

namespace graphbox {
namespace {

constexpr auto kInOrder = [] {
  std::array<std::uint16_t, kFoundTogether> places{};
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] = static_cast<std::uint16_t>(i);
  }
  return places;
}();

constexpr std::size_t kAhead = 2 * kFoundTogether;         // rows that are found, and asked for, before they are decoded
constexpr std::size_t kRing = 4 * kFoundTogether;          // places of found rows
constexpr std::size_t kClustersAhead = 4 * kFoundTogether;  // asked for before rows are found
constexpr std::size_t kResultsAhead = 8;

template <std::size_t kRows>
GRAPHBOX_INLINE void decode_any_group(const RotatedRows& table, const RowGroup& group, std::int16_t* sums) {
  switch (table.arrays().bits) {
    case 2:
      return decode_group<2, kRows>(table, group, sums);
    case 3:
      return decode_group<3, kRows>(table, group, sums);
    default:
      return decode_group<4, kRows>(table, group, sums);
  }
}

GRAPHBOX_INLINE void write_same(const FoundRow& found, std::size_t dim, float* __restrict out) {
  const auto* __restrict const row = static_cast<const float*>(found.row);
  const float* __restrict const added = found.added;
  if (added == nullptr) {
    std::copy_n(row, dim, out);
    return;
  }
  for (std::size_t i = 0; i < dim; ++i) {
    out[i] = row[i] + added[i];
  }
}

// Results are written in order, as far as it goes: the processor loads lines that are written one after the other ahead, but
// the many other reads here can make it lose track.
GRAPHBOX_INLINE void prefetch_result(float* row, std::size_t dim) {
  for (std::size_t column = 0; column < dim; column += kCacheLineBytes / sizeof(float)) {
    prefetch_write(row + column);
  }
}

// Finds the next rows and asks for their codes.
GRAPHBOX_INLINE void find_next(const StoredRows& rows, const FoundTables& tables, std::span<const std::int64_t> index,
                               std::size_t start, FoundRow* found) {
  const std::size_t count = std::min(kFoundTogether, index.size() - start);
  if (tables.clusters != nullptr) {
    for (std::size_t i = start; i < start + count; ++i) {
      prefetch(tables.clusters + index[std::min(i + kClustersAhead, index.size() - 1)]);
    }
  }
  rows.find(index.subspan(start, count), kInOrder.data(), found);
  for (std::size_t i = 0; i < count; ++i) {
    if (found[i].table != nullptr) {
      prefetch_range(static_cast<const std::byte*>(found[i].row), found[i].table->row_bytes());
    }
  }
}

template <std::size_t kRows>
GRAPHBOX_INLINE void take_all(const StoredRows& rows, const FoundTables& tables, std::span<const std::int64_t> index,
                              std::int16_t* sums, const RowOutput& out) {
  std::array<FoundRow, kRing> ring;
  // Rows of one table wait for each other, so that their results are written close to where the others are.
  std::array<RowGroup, 2> groups{};
  std::size_t next = 0;
  for (std::size_t i = 0; i < index.size(); ++i) {
    for (; next < std::min(i + kAhead, index.size()); next += kFoundTogether) {
      find_next(rows, tables, index, next, ring.data() + next % kRing);
    }
    prefetch_result(out.row(std::min(i + kResultsAhead, index.size() - 1)), rows.dim());
    const FoundRow& own = ring[i % kRing];
    if (own.table == nullptr) {
      write_same(own, rows.dim(), out.row(i));
      continue;
    }
    RowGroup& group = groups[own.table == tables.tables[0] ? 0 : 1];
    group.rows[group.count] = static_cast<const std::uint8_t*>(own.row);
    group.added[group.count] = own.added;
    group.results[group.count++] = out.row(i);
    if (group.count == kRotatedTogether) {
      decode_any_group<kRows>(*own.table, group, sums);
      group.count = 0;
    }
  }
  for (std::size_t i = 0; i < tables.tables.size(); ++i) {
    if (groups[i].count > 0) {
      decode_any_group<kRows>(*tables.tables[i], groups[i], sums);
    }
  }
}

}  // namespace

void take_found(const StoredRows& rows, const FoundTables& tables, std::span<const std::int64_t> index,
                const RowOutput& out) {
  std::vector<std::int16_t> sums(kRotatedTogether * rows.dim());
  run_with_instruction_set([&]<InstructionSet kSet>(ForSet<kSet>) GRAPHBOX_INLINE_LAMBDA {
    take_all<kRowsInVector<kSet>>(rows, tables, index, sums.data(), out);
  });
}

}  // namespace graphbox
