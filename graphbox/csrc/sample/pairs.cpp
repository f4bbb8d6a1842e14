#include "sample/pairs.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkWalks = 1024;

}  // namespace

template <typename Visit>
void SkipGramPairs::for_each_walk(std::int64_t chunk, Visit visit) const {
  const std::int64_t end = std::min((chunk + 1) * kChunkWalks, request_.num_walks);
  std::vector<std::int64_t> keys;
  std::vector<std::int64_t> columns;
  for (std::int64_t walk = chunk * kChunkWalks; walk < end; ++walk) {
    visit(read_walk(request_, walk, keys, columns));
  }
}

SkipGramPairs::SkipGramPairs(const SkipGramRequest& request)
    : request_(request), num_chunks_((request.num_walks + kChunkWalks - 1) / kChunkWalks) {
  chunk_offsets_.assign(static_cast<std::size_t>(num_chunks_ + 1), 0);
  parallel_for(request.threads, num_chunks_, [&](std::int64_t chunk) {
    chunk_offsets_[static_cast<std::size_t>(chunk + 1)] = count_chunk(chunk);
  });
  std::partial_sum(chunk_offsets_.begin(), chunk_offsets_.end(), chunk_offsets_.begin());
}

std::int64_t SkipGramPairs::count_chunk(std::int64_t chunk) const {
  std::int64_t count = 0;
  for_each_walk(chunk, [&](const KeptWalk& walk) {
    for_each_center(request_, walk, [&](std::int64_t, std::int64_t first, std::int64_t last) {
      count += last - first - 1;
    });
  });
  return count;
}

void SkipGramPairs::write(PairOutput output) const {
  parallel_for(request_.threads, num_chunks_, [&](std::int64_t chunk) { write_chunk(chunk, output); });
}

void SkipGramPairs::write_chunk(std::int64_t chunk, PairOutput output) const {
  const auto [centers, contexts] = output;
  std::int64_t pair = chunk_offsets_[static_cast<std::size_t>(chunk)];
  for_each_walk(chunk, [&](const KeptWalk& walk) {
    const std::int64_t* const keys = walk.keys.data();
    for_each_center(request_, walk, [&](std::int64_t center, std::int64_t first, std::int64_t last) {
      for (std::int64_t context = first; context < last; ++context) {
        if (context != center) {
          centers[pair] = keys[center];
          contexts[pair] = keys[context];
          ++pair;
        }
      }
    });
  });
}

}  // namespace graphbox
