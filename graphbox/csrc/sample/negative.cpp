#include "sample/negative.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "errors/error.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kBlock = 64;  // draws whose memory lines are asked for together
constexpr std::int64_t kChunk = 16384;
constexpr double kWords = 4294967296.0;  // 2^32

double checked_sum(std::span<const double> weights) {
  if (weights.empty() || weights.size() > UINT32_MAX) {
    throw Error(ErrorKind::kUsage,
                "weights must have 1 to 2^32 - 1 entries, received " + std::to_string(weights.size()), "weights");
  }
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0) || !std::isfinite(weights[i])) {
      throw Error(ErrorKind::kData,
                  "weights must be finite and not negative, received " + std::to_string(weights[i]) + " at position " +
                      std::to_string(i),
                  "weights");
    }
    sum += weights[i];
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw Error(ErrorKind::kData, "weights must have a finite sum above 0, received " + std::to_string(sum), "weights");
  }
  return sum;
}

}  // namespace

AliasTable::AliasTable(std::int64_t size) : size_(size) {
  if (size < 1 || size > std::int64_t{UINT32_MAX}) {
    throw Error(ErrorKind::kUsage, "expected 1 to 2^32 - 1 items, received " + std::to_string(size), "num_items");
  }
}

AliasTable::AliasTable(std::span<const double> weights) : size_(static_cast<std::int64_t>(weights.size())) {
  const double scale = static_cast<double>(weights.size()) / checked_sum(weights);
  const std::int64_t size = size_;
  entries_.resize(size);
  PooledArray<double> share(size);  // of an entry, 1 on average
  // Two stacks in one array: entries below their share grow from the left, the others from the right.
  PooledArray<std::uint32_t> stack(size);
  std::int64_t below = 0;
  std::int64_t above = size;
  for (std::int64_t i = 0; i < size; ++i) {
    share[i] = weights[static_cast<std::size_t>(i)] * scale;
    stack[share[i] < 1 ? below++ : --above] = static_cast<std::uint32_t>(i);
    entries_[i] = {UINT32_MAX, static_cast<std::uint32_t>(i)};
  }
  while (below > 0 && above < size) {
    const std::uint32_t poor = stack[below - 1];
    const std::uint32_t rich = stack[above];
    --below;
    entries_[poor] = {static_cast<std::uint32_t>(std::max(share[poor], 0.0) * kWords), rich};
    share[rich] -= 1 - share[poor];
    if (share[rich] < 1) {
      ++above;
      stack[below++] = rich;
    }
  }
  // Entries left over on either side have a share of 1 but for rounding, and keep themselves. Only an entry of weight 0
  // must never do that: there is a positive one to take its place.
  const auto heaviest = static_cast<std::uint32_t>(std::max_element(weights.begin(), weights.end()) - weights.begin());
  for (std::int64_t i = 0; i < size; ++i) {
    if (weights[static_cast<std::size_t>(i)] == 0 && entries_[i].alias == static_cast<std::uint32_t>(i)) {
      entries_[i] = {0, heaviest};
    }
  }
}

void AliasTable::sample(PhiloxKey key, std::int64_t* out, std::int64_t count, int threads) const {
  const auto range = static_cast<std::uint32_t>(size());
  const std::int64_t chunks = (count + kChunk - 1) / kChunk;
  parallel_for(threads, chunks, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunk, count);
    std::array<std::uint32_t, kBlock> columns;
    std::array<std::uint32_t, kBlock> coins;
    for (std::int64_t begin = chunk * kChunk; begin < end; begin += kBlock) {
      const auto size = static_cast<std::size_t>(std::min(kBlock, end - begin));
      for (std::size_t i = 0; i < size; i += 2) {
        const DrawSequence draws(key, 0, 0, (static_cast<std::uint64_t>(begin) + i) / 2);
        const PhiloxBlock words = draws.block(0);
        columns[i] = draws.bounded(words[0], 0, range);
        coins[i] = words[1];
        columns[i + 1] = draws.bounded(words[2], 2, range);
        coins[i + 1] = words[3];
        prefetch_column(columns[i]);
        prefetch_column(columns[i + 1]);
      }
      for (std::size_t i = 0; i < size; ++i) {
        out[begin + static_cast<std::int64_t>(i)] = item(columns[i], coins[i]);
      }
    }
  });
}

}  // namespace graphbox
