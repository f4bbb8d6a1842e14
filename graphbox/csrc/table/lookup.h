// Finds the rows of a batch without waiting for memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "portability/cpu.h"
#include "table/location.h"
#include "table/row_index.h"
#include "table/slab.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace graphbox {

// Keys between the steps of a lookup, so that each step's memory has come when it is taken: the line of the index, for
// one key of eight another line of it, then those of the row.
inline constexpr std::int64_t kIndexDistance = 24;
inline constexpr std::int64_t kElsewhereDistance = 12;
inline constexpr std::int64_t kMostRowDistance = 24;
inline constexpr std::size_t kRowBytesAhead = 8192;  // fewer keys where rows are long

// Calls visit(i, row, place on SSD or kNoRow, data of the row) for keys begin ... end - 1 in order, when the row's first `row_bytes`
// are there; with 0, no row is asked for, and its data is null.
template <typename Visit>
GRAPHBOX_INLINE void look_up(const RowIndex& row_index, const Slab& slab, std::size_t row_bytes, const std::int64_t* keys,
                             std::int64_t begin, std::int64_t end, const Visit& given) {
  constexpr std::int64_t kRing = 64;
  static_assert(kIndexDistance + kElsewhereDistance + kMostRowDistance < kRing);
  const RowIndex::View index = row_index.view();
  const Slab::View places = slab.view();
  const Visit visit = given;
  std::array<std::uint64_t, kRing> hashes;
  std::array<std::uint32_t, kRing> rows;
  std::array<const std::byte*, kRing> data;
  const auto place = [](std::int64_t i) { return static_cast<std::size_t>(i) % kRing; };
  const auto ask_for_row = [&](std::int64_t i, std::uint32_t row) {
    const std::byte* const address = row_bytes > 0 && is_hot(row) ? places.data(row) : nullptr;
    data[place(i)] = address;
    if (address != nullptr) {
      prefetch_bytes(address, row_bytes);
    }
  };
  std::int64_t rows_ahead = 0;
  if (row_bytes > 0) {
    rows_ahead = std::clamp(static_cast<std::int64_t>(kRowBytesAhead / row_bytes), std::int64_t{2}, kMostRowDistance);
  }
  const std::int64_t distance = kIndexDistance + kElsewhereDistance + rows_ahead;
  for (std::int64_t i = begin; i < end + distance; ++i) {
    if (i < end) {
      hashes[place(i)] = index.hash(keys[i]);
      index.prefetch(hashes[place(i)]);
    }
    const std::int64_t first = i - kIndexDistance;
    if (first >= begin && first < end) {
      const std::uint32_t row = index.find_first(keys[first], hashes[place(first)]);
      rows[place(first)] = row;
      if (row != kElsewhere) [[likely]] {
        ask_for_row(first, row);
      }
    }
    const std::int64_t second = first - kElsewhereDistance;
    if (second >= begin && second < end && rows[place(second)] == kElsewhere) {
      const std::uint32_t row = index.find(keys[second], hashes[place(second)]);
      rows[place(second)] = row;
      ask_for_row(second, row);
    }
    const std::int64_t last = i - distance;
    if (last >= begin) {
      visit(last, rows[place(last)], data[place(last)]);
    }
  }
}

// Calls work(bytes), with a constant for the bytes of usual rows: what is done for each of them is then a few
// instructions without a branch.
template <typename Work>
GRAPHBOX_INLINE void with_constant_bytes(std::size_t bytes, const Work& work) {
  switch (bytes) {
    case 32:
      return work(std::integral_constant<std::size_t, 32>());
    case 64:
      return work(std::integral_constant<std::size_t, 64>());
    case 128:
      return work(std::integral_constant<std::size_t, 128>());
    case 256:
      return work(std::integral_constant<std::size_t, 256>());
    case 512:
      return work(std::integral_constant<std::size_t, 512>());
    default:
      return work(bytes);
  }
}

// Copies `bytes`, past the caches; both they and `target` are multiples of 16.
GRAPHBOX_INLINE void stream_bytes(const std::byte* source, float* target, std::size_t bytes) {
#if defined(__SSE2__)
  const auto* const parts = reinterpret_cast<const __m128i*>(source);
  auto* const targets = reinterpret_cast<__m128i*>(target);
  for (std::size_t part = 0; part < bytes / sizeof(__m128i); ++part) {
    _mm_stream_si128(targets + part, _mm_load_si128(parts + part));
  }
#else
  std::memcpy(target, source, bytes);
#endif
}

}  // namespace graphbox
