// A stable, parallel radix sort of records by an unsigned integer key.
//
// The highest bits split the records into buckets, in parallel and out of cache once; buckets that fit into the cache
// of a core are then sorted from the lowest bits up. Bits that are the same in all records of a bucket cost nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "parallel/parallel_for.h"
#include "portability/cpu.h"

namespace graphbox {
namespace radix {

inline constexpr std::int64_t kCacheBytes = std::int64_t{1} << 18;
inline constexpr int kMostDigitBits = 11;
inline constexpr std::int64_t kFewRecords = 32;

template <typename Record>
using KeyOf = std::remove_cvref_t<decltype(Record{}.key)>;

inline int width_of(std::uint64_t bits) { return static_cast<int>(std::bit_width(bits)); }
inline int width_of(Uint128 bits) {
  const auto high = static_cast<std::uint64_t>(bits >> 64);
  return high != 0 ? 64 + width_of(high) : width_of(static_cast<std::uint64_t>(bits));
}

// The bits in which some records differ.
template <typename Record>
KeyOf<Record> varying_bits(const Record* records, std::int64_t count) {
  KeyOf<Record> varying = 0;
  for (std::int64_t i = 1; i < count; ++i) {
    varying |= records[i].key ^ records[0].key;
  }
  return varying;
}

template <typename Record>
void insertion_sort(Record* records, std::int64_t count) {
  for (std::int64_t i = 1; i < count; ++i) {
    const Record record = records[i];
    std::int64_t place = i;
    for (; place > 0 && record.key < records[place - 1].key; --place) {
      records[place] = records[place - 1];
    }
    records[place] = record;
  }
}

// Moves records to `to`, ordered by the digit at `shift`.
template <typename Record>
void scatter(const Record* from, Record* to, std::int64_t count, int shift, int bits, std::int64_t* starts) {
  const auto mask = static_cast<std::uint32_t>((1U << bits) - 1);
  std::fill_n(starts, (std::size_t{1} << bits) + 1, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    ++starts[(static_cast<std::uint32_t>(from[i].key >> shift) & mask) + 1];
  }
  for (std::uint32_t digit = 0; digit < mask; ++digit) {
    starts[digit + 1] += starts[digit];
  }
  for (std::int64_t i = 0; i < count; ++i) {
    to[starts[static_cast<std::uint32_t>(from[i].key >> shift) & mask]++] = from[i];
  }
}

// Sorts the records in `from`, with `other` as room for as many; the result lies in `other` when `into_other`.
template <typename Record>
void sort_segment(Record* from, Record* other, std::int64_t count, bool into_other) {
  const auto settle = [&](const Record* at) {
    Record* const wanted = into_other ? other : from;
    if (at != wanted && count > 0) {
      std::memcpy(static_cast<void*>(wanted), at, static_cast<std::size_t>(count) * sizeof(Record));
    }
  };
  if (count <= kFewRecords) {
    insertion_sort(from, count);
    return settle(from);
  }
  const KeyOf<Record> varying = varying_bits(from, count);
  const int width = width_of(varying);
  if (width == 0) {
    return settle(from);
  }
  std::array<std::int64_t, (1 << kMostDigitBits) + 1> starts;
  if (count * static_cast<std::int64_t>(sizeof(Record)) > kCacheBytes) {
    constexpr int kBits = 8;
    const int shift = std::max(0, width - kBits);
    scatter(from, other, count, shift, kBits, starts.data());
    std::int64_t start = 0;
    for (int digit = 0; digit < 1 << kBits; ++digit) {  // starts[digit] has become the end of the bucket
      const std::int64_t end = starts[static_cast<std::size_t>(digit)];
      sort_segment(other + start, from + start, end - start, !into_other);
      start = end;
    }
    return;
  }
  Record* at = from;
  Record* next = other;
  const int most = count >= 4096 ? kMostDigitBits : 8;
  for (int shift = 0; shift < width;) {
    const auto rest = static_cast<KeyOf<Record>>(varying >> shift);
    if ((rest & 1U) == 0) {  // these bits are the same everywhere
      ++shift;
      continue;
    }
    const int left = (width - shift + most - 1) / most;
    const int bits = (width - shift + left - 1) / left;
    scatter(at, next, count, shift, bits, starts.data());
    std::swap(at, next);
    shift += bits;
  }
  settle(at);
}

struct Segment {
  std::int64_t first;
  std::int64_t count;
  bool in_other;
};

// Splits a large segment by its highest bits, with all threads, into the other array. Adds the parts to `parts`.
template <typename Record>
void split(Record* records, Record* other, const Segment& segment, int threads, std::vector<Segment>& parts) {
  const Record* const from = (segment.in_other ? other : records) + segment.first;
  Record* const to = (segment.in_other ? records : other) + segment.first;
  const std::int64_t chunks = threads;
  const auto start_of = [&](std::int64_t chunk) { return segment.count * chunk / chunks; };
  std::vector<KeyOf<Record>> differing(static_cast<std::size_t>(chunks));
  parallel_for(threads, chunks, [&](std::int64_t chunk) {
    KeyOf<Record> varying = 0;
    for (std::int64_t i = start_of(chunk); i < start_of(chunk + 1); ++i) {
      varying |= from[i].key ^ from[0].key;
    }
    differing[static_cast<std::size_t>(chunk)] = varying;
  });
  KeyOf<Record> varying = 0;
  for (const KeyOf<Record>& bits : differing) {
    varying |= bits;
  }
  constexpr std::size_t kBuckets = std::size_t{1} << kMostDigitBits;
  const int shift = std::max(0, width_of(varying) - kMostDigitBits);
  const auto digit_of = [&](const Record& record) {
    return static_cast<std::size_t>(static_cast<std::uint32_t>(record.key >> shift) & (kBuckets - 1));
  };
  std::vector<std::array<std::int64_t, kBuckets>> places(static_cast<std::size_t>(chunks));
  parallel_for(threads, chunks, [&](std::int64_t chunk) {
    std::array<std::int64_t, kBuckets>& counts = places[static_cast<std::size_t>(chunk)];
    counts.fill(0);
    for (std::int64_t i = start_of(chunk); i < start_of(chunk + 1); ++i) {
      ++counts[digit_of(from[i])];
    }
  });
  std::int64_t place = 0;
  for (std::size_t digit = 0; digit < kBuckets; ++digit) {
    const std::int64_t first = place;
    for (std::array<std::int64_t, kBuckets>& counts : places) {
      place += std::exchange(counts[digit], place);
    }
    if (place > first) {
      parts.push_back({segment.first + first, place - first, !segment.in_other});
    }
  }
  parallel_for(threads, chunks, [&](std::int64_t chunk) {
    std::array<std::int64_t, kBuckets>& next = places[static_cast<std::size_t>(chunk)];
    for (std::int64_t i = start_of(chunk); i < start_of(chunk + 1); ++i) {
      to[next[digit_of(from[i])]++] = from[i];
    }
  });
}

}  // namespace radix

// Sorts `records` by their key; `other` is room for as many.
template <typename Record>
void radix_sort(Record* records, Record* other, std::int64_t count, int threads) {
  using radix::Segment;
  const std::int64_t small = std::max(radix::kCacheBytes / static_cast<std::int64_t>(sizeof(Record)),
                                      count / (16 * bounded_threads(threads)));
  std::vector<Segment> open = {{0, count, false}};
  std::vector<Segment> small_segments;
  while (!open.empty()) {
    const Segment segment = open.back();
    open.pop_back();
    const Record* const from = (segment.in_other ? other : records) + segment.first;
    const bool uniform = segment.count > small && from[0].key == from[segment.count - 1].key &&
                         radix::varying_bits(from, segment.count) == 0;
    if (segment.count <= small || uniform) {
      small_segments.push_back(segment);
    } else {
      radix::split(records, other, segment, threads, open);
    }
  }
  std::sort(small_segments.begin(), small_segments.end(), [](const Segment& a, const Segment& b) {
    return a.count != b.count ? a.count > b.count : a.first < b.first;  // the largest first, so that threads end together
  });
  parallel_for(threads, static_cast<std::int64_t>(small_segments.size()), [&](std::int64_t i) {
    const Segment& segment = small_segments[static_cast<std::size_t>(i)];
    Record* const from = (segment.in_other ? other : records) + segment.first;
    Record* const spare = (segment.in_other ? records : other) + segment.first;
    radix::sort_segment(from, spare, segment.count, segment.in_other);
  });
}

}  // namespace graphbox
