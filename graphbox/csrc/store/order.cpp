#include "store/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "errors/error.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr unsigned kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;

constexpr std::size_t kChunkRequests = std::size_t{1} << 18;  // of a pass, that one thread puts in order at a time
constexpr std::size_t kMostChunks = 16;

struct Keyed {
  std::uint32_t unit;
  std::uint32_t position;
};

// One stable pass of a radix sort.
void sort_digit(const PooledArray<Keyed>& from, PooledArray<Keyed>& to, unsigned shift) {
  std::array<std::uint32_t, kDigits + 1> begin{};
  for (const Keyed& each : from) {
    ++begin[(each.unit >> shift) % kDigits + 1];
  }
  for (std::size_t digit = 0; digit < kDigits; ++digit) {
    begin[digit + 1] += begin[digit];
  }
  for (const Keyed& each : from) {
    to[begin[(each.unit >> shift) % kDigits]++] = each;
  }
}

}  // namespace

PooledArray<std::uint32_t> order_by_unit(std::span<const Fragment> fragments) {
  const auto count = static_cast<std::int64_t>(fragments.size());
  PooledArray<Keyed> keyed(count);
  PooledArray<Keyed> sorted(count);
  std::uint32_t least = UINT32_MAX;
  std::uint32_t most = 0;
  for (const Fragment& each : fragments) {
    least = std::min(least, each.unit);
    most = std::max(most, each.unit);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    keyed[i] = {fragments[static_cast<std::size_t>(i)].unit - least, static_cast<std::uint32_t>(i)};
  }
  const unsigned bits = most > least ? static_cast<unsigned>(std::bit_width(most - least)) : 0;
  for (unsigned shift = 0; shift < bits; shift += kDigitBits) {
    sort_digit(keyed, sorted, shift);
    std::swap(keyed, sorted);
  }
  PooledArray<std::uint32_t> order(count);
  for (std::int64_t i = 0; i < count; ++i) {
    order[i] = keyed[i].position;
  }
  return order;
}

PassOrder order_pass(std::span<const std::int64_t> indices, std::int64_t limit, std::int64_t part_requests,
                     int threads) {
  constexpr unsigned kRangeBits = 12;
  constexpr std::size_t kRanges = std::size_t{1} << kRangeBits;
  if (indices.size() >= UINT32_MAX) {
    throw Error(ErrorKind::kUsage,
                "expected fewer than 2^32 requests at once, received " + std::to_string(indices.size()), "index");
  }
  const auto bits = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(limit)));
  const unsigned shift = bits > kRangeBits ? bits - kRangeBits : 0;
  const auto range_of = [&](std::size_t i) { return static_cast<std::uint64_t>(indices[i]) >> shift; };
  // Each chunk of the requests counts its own, and then knows where in each range its own go.
  const std::size_t chunks = std::clamp<std::size_t>(indices.size() / kChunkRequests, 1, kMostChunks);
  const auto chunk_begin = [&](std::size_t chunk) { return indices.size() * chunk / chunks; };
  std::vector<std::uint32_t> next(chunks * kRanges, 0);
  parallel_for(threads, static_cast<std::int64_t>(chunks), [&](std::int64_t number) {
    const auto chunk = static_cast<std::size_t>(number);
    std::uint32_t* const counts = next.data() + chunk * kRanges;
    for (std::size_t i = chunk_begin(chunk); i < chunk_begin(chunk + 1); ++i) {
      ++counts[range_of(i)];
    }
  });
  std::vector<std::int64_t> begin(kRanges + 1, 0);
  for (std::size_t range = 0; range < kRanges; ++range) {
    auto place = static_cast<std::uint32_t>(begin[range]);
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      place += std::exchange(next[chunk * kRanges + range], place);
    }
    begin[range + 1] = place;
  }
  PassOrder order;
  order.bounds.push_back(0);
  for (std::size_t range = 0; range < kRanges; ++range) {
    if (begin[range + 1] - order.bounds.back() > part_requests && begin[range] > order.bounds.back()) {
      order.bounds.push_back(begin[range]);
    }
    while (begin[range + 1] - order.bounds.back() > part_requests) {  // one range with more than a part
      order.bounds.push_back(order.bounds.back() + part_requests);
    }
  }
  const auto count = static_cast<std::int64_t>(indices.size());
  if (order.bounds.back() < count) {
    order.bounds.push_back(count);
  }
  order.positions.resize(count);
  std::uint32_t* const positions = order.positions.data();
  parallel_for(threads, static_cast<std::int64_t>(chunks), [&](std::int64_t number) {
    const auto chunk = static_cast<std::size_t>(number);
    std::uint32_t* const places = next.data() + chunk * kRanges;
    for (std::size_t i = chunk_begin(chunk); i < chunk_begin(chunk + 1); ++i) {
      positions[places[range_of(i)]++] = static_cast<std::uint32_t>(i);
    }
  });
  return order;
}

}  // namespace graphbox
