#include "sample/pairs.h"

#include <algorithm>
#include <cstddef>
#include <span>

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
  const std::int64_t groups = num_groups();
  chunk_offsets_.assign(static_cast<std::size_t>((num_chunks_ + 1) * groups), 0);
  parallel_for(request.threads, num_chunks_, [&](std::int64_t chunk) { count_chunk(chunk, offsets_of(chunk + 1)); });
  for (std::size_t i = static_cast<std::size_t>(groups); i < chunk_offsets_.size(); ++i) {
    chunk_offsets_[i] += chunk_offsets_[i - static_cast<std::size_t>(groups)];
  }
}

void SkipGramPairs::count_chunk(std::int64_t chunk, std::int64_t* counts) const {
  for_each_walk(chunk, [&](const KeptWalk& walk) {
    for_each_center(request_, walk, [&](std::int64_t center, std::int64_t first, std::int64_t last) {
      if (walk.types == nullptr) {
        counts[0] += last - first - 1;
        return;
      }
      std::int64_t* const of_center = counts + walk.type(center) * request_.num_types;
      for (std::int64_t context = first; context < last; ++context) {
        ++of_center[walk.type(context)];
      }
      --of_center[walk.type(center)];
    });
  });
}

void SkipGramPairs::write(std::span<const PairOutput> groups) const {
  parallel_for(request_.threads, num_chunks_, [&](std::int64_t chunk) {
    if (request_.column_types != nullptr) {
      write_chunk_by_types(chunk, groups);
    } else {
      write_chunk(chunk, groups.front());
    }
  });
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

void SkipGramPairs::write_chunk_by_types(std::int64_t chunk, std::span<const PairOutput> groups) const {
  const auto first_offset = chunk_offsets_.begin() + chunk * num_groups();
  std::vector<std::int64_t> pairs(first_offset, first_offset + num_groups());
  for_each_walk(chunk, [&](const KeptWalk& walk) {
    for_each_center(request_, walk, [&](std::int64_t center, std::int64_t first, std::int64_t last) {
      for (std::int64_t context = first; context < last; ++context) {
        if (context != center) {
          const auto group = static_cast<std::size_t>(walk.type(center) * request_.num_types + walk.type(context));
          groups[group].centers[pairs[group]] = walk.keys[static_cast<std::size_t>(center)];
          groups[group].contexts[pairs[group]] = walk.keys[static_cast<std::size_t>(context)];
          ++pairs[group];
        }
      }
    });
  });
}

}  // namespace graphbox
