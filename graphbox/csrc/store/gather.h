// Copies from random places of memory, each asked for ahead, into results that are written from front to back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "parallel/parallel_for.h"
#include "portability/cpu.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace graphbox {

struct CopiedRange {
  const std::byte* source;
  std::byte* target;
  std::size_t bytes;
};

// Results of this size leave the caches before they are used: they are written past them, which saves loading the
// lines that are overwritten.
inline constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;
inline constexpr std::size_t kPrefetchedBytes = 8192;  // asked for and not yet copied, at most
inline constexpr std::int64_t kMostPrefetched = 32;    // ranges
inline constexpr std::int64_t kFewestPrefetched = 8;
inline constexpr std::uint64_t kGroupBytes = std::uint64_t{1} << 20;  // that one thread copies at a time

GRAPHBOX_INLINE void prefetch_range(const std::byte* begin, std::size_t bytes) {
  const std::size_t most = std::min<std::size_t>(bytes, 1024);  // the processor follows by itself from there
  for (std::size_t line = 0; line < most; line += kCacheLineBytes) {
    prefetch(begin + line);
  }
  prefetch(begin + most - (most > 0));
}

GRAPHBOX_INLINE void copy_streamed(const CopiedRange& range) {
#if defined(__SSE2__)
  // Whole lines only: past the caches a part of a line costs more than all of it.
  if ((reinterpret_cast<std::uintptr_t>(range.target) | range.bytes) % kCacheLineBytes == 0) {
    for (std::size_t part = 0; part < range.bytes; part += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(range.target + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(range.source + part)));
    }
    return;
  }
#endif
  std::memcpy(range.target, range.source, range.bytes);
}

GRAPHBOX_INLINE void copy_range(const CopiedRange& range, bool streamed) {
  if (streamed) {
    copy_streamed(range);
  } else {
    std::memcpy(range.target, range.source, range.bytes);
  }
}

// After copies past the caches, so that other threads see them.
GRAPHBOX_INLINE void finish_copies(bool streamed) {
#if defined(__SSE2__)
  if (streamed) {
    _mm_sfence();
  }
#else
  static_cast<void>(streamed);
#endif
}

// Copies range_of(i) for i in [first, last). `mean_bytes` of a range decides how far ahead memory is asked for.
template <bool kStreamed, typename RangeOf>
void gather(std::int64_t first, std::int64_t last, std::size_t mean_bytes, const RangeOf& given) {
  const RangeOf range_of = given;
  const auto fitting = static_cast<std::int64_t>(kPrefetchedBytes / std::max<std::size_t>(mean_bytes, 1));
  const std::int64_t distance = std::clamp(fitting, kFewestPrefetched, kMostPrefetched);
  // A function of its own around prefetches has no effect a compiler sees, and GCC leaves calls of it out.
  for (std::int64_t i = first; i < std::min(first + distance, last); ++i) {
    const CopiedRange range = range_of(i);
    prefetch_range(range.source, range.bytes);
  }
  for (std::int64_t i = first; i < last; ++i) {
    if (i + distance < last) {
      const CopiedRange ahead = range_of(i + distance);
      prefetch_range(ahead.source, ahead.bytes);
    }
    copy_range(range_of(i), kStreamed);
  }
  finish_copies(kStreamed);
}

// The same by several threads: copies range_of(i) for i in [0, count), `total_bytes` in all.
template <typename RangeOf>
void gather_all(std::int64_t count, std::uint64_t total_bytes, int threads, const RangeOf& range_of) {
  const std::uint64_t mean_bytes = total_bytes / static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1));
  const auto group = static_cast<std::int64_t>(kGroupBytes / std::clamp<std::uint64_t>(mean_bytes, 64, kGroupBytes));
  const bool streamed = total_bytes >= kStreamedBytes;
  parallel_for(threads, (count + group - 1) / group, [&](std::int64_t number) {
    const std::int64_t first = number * group;
    const std::int64_t last = std::min(first + group, count);
    if (streamed) {
      gather<true>(first, last, mean_bytes, range_of);
    } else {
      gather<false>(first, last, mean_bytes, range_of);
    }
  });
}

// Rows of one length in memory.
struct RowTable {
  const std::byte* data;
  std::int64_t rows;
  std::uint64_t row_bytes;
};

// out[i] = the row index[i]. A row that is not there is a usage error, before anything is copied.
void gather_rows(const RowTable& table, std::span<const std::int64_t> index, int threads, std::byte* out);

}  // namespace graphbox
