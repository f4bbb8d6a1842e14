#include "sample/pairs.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "errors/error.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkWalks = 1024;
constexpr std::uint32_t kKeepHop = 1;  // of the counter; hop 0 has the draws of windows

// The words of the draws of one walk, in rising order of their numbers.
class Words {
 public:
  Words(PhiloxKey key, std::uint32_t hop, std::int64_t position)
      : draws_(key, hop, 0, static_cast<std::uint64_t>(position)) {}
  const DrawSequence& draws() const { return draws_; }
  std::uint32_t operator[](std::uint32_t draw) {
    if (!known_ || draw / 4 != number_) {
      number_ = draw / 4;
      block_ = draws_.block(number_);
      known_ = true;
    }
    return block_[draw % 4];
  }

 private:
  DrawSequence draws_;
  PhiloxBlock block_{};
  std::uint32_t number_ = 0;
  bool known_ = false;
};

[[noreturn]] void throw_no_probability(const SkipGramRequest& request, std::int64_t key, std::int64_t walk) {
  const std::string of_walk = ", walk " + std::to_string(walk) + " has key " + std::to_string(key);
  if (key < 0 || key >= request.num_keep) {
    throw Error(ErrorKind::kUsage,
                "expected probabilities for all keys; it has " + std::to_string(request.num_keep) + of_walk,
                "subsample");
  }
  throw Error(ErrorKind::kUsage,
              "expected probabilities, 0 to 1, received " + std::to_string(request.keep[key]) + of_walk, "subsample",
              "keep_probability(visits, threshold) makes them");
}

}  // namespace

// What is left of a walk: keys, and the columns they stood in.
struct SkipGramPairs::Walk {
  std::int64_t position;
  std::span<const std::int64_t> keys;
  const std::int64_t* columns;  // null: 0, 1, 2, ...
  const std::int64_t* types;    // of the columns, or null

  std::int64_t column(std::int64_t place) const { return columns != nullptr ? columns[place] : place; }
  std::int64_t type(std::int64_t place) const { return types[column(place)]; }
};

SkipGramPairs::Walk SkipGramPairs::read(std::int64_t walk, std::vector<std::int64_t>& keys,
                                        std::vector<std::int64_t>& columns) const {
  const std::int64_t* const nodes = request_.walks + walk * request_.width;
  const std::int64_t length = std::find_if(nodes, nodes + request_.width, [](auto node) { return node < 0; }) - nodes;
  const std::int64_t position = request_.first_position + walk;
  const std::int64_t first_column = request_.path_of != nullptr ? request_.path_of[walk] * request_.width : 0;
  const std::int64_t* const types = request_.column_types != nullptr ? request_.column_types + first_column : nullptr;
  if (request_.column_offsets == nullptr && request_.keep == nullptr) {
    return {position, {nodes, static_cast<std::size_t>(length)}, nullptr, types};
  }
  const std::int64_t* const offsets =
      request_.column_offsets != nullptr ? request_.column_offsets + first_column : nullptr;
  keys.clear();
  columns.clear();
  Words words(request_.key, kKeepHop, position);
  for (std::int64_t column = 0; column < length; ++column) {
    const std::int64_t key = nodes[column] + (offsets != nullptr ? offsets[column] : 0);
    if (request_.keep != nullptr) {
      if (key < 0 || key >= request_.num_keep || !(request_.keep[key] >= 0 && request_.keep[key] <= 1)) [[unlikely]] {
        throw_no_probability(request_, key, position);
      }
      if (static_cast<double>(words[static_cast<std::uint32_t>(column)]) >= request_.keep[key] * 0x1p32) {
        continue;
      }
    }
    keys.push_back(key);
    columns.push_back(column);
  }
  return {position, keys, columns.data(), types};
}

template <typename Visit>
void SkipGramPairs::for_each_walk(std::int64_t chunk, Visit visit) const {
  const std::int64_t end = std::min((chunk + 1) * kChunkWalks, request_.num_walks);
  std::vector<std::int64_t> keys;
  std::vector<std::int64_t> columns;
  for (std::int64_t walk = chunk * kChunkWalks; walk < end; ++walk) {
    visit(read(walk, keys, columns));
  }
}

// Calls visit(centre, first context, one past the last), places in walk.keys, for each centre of the walk.
template <typename Visit>
void SkipGramPairs::for_each_center(const Walk& walk, Visit visit) const {
  const auto length = static_cast<std::int64_t>(walk.keys.size());
  Words words(request_.key, 0, walk.position);
  for (std::int64_t center = 0; center < length; ++center) {
    std::int64_t window = request_.window;
    if (request_.dynamic_window) {
      const auto draw = static_cast<std::uint32_t>(walk.column(center));
      window = 1 + words.draws().bounded(words[draw], draw, static_cast<std::uint32_t>(request_.window));
    }
    visit(center, std::max<std::int64_t>(0, center - window), std::min(length, center + window + 1));
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
  for_each_walk(chunk, [&](const Walk& walk) {
    for_each_center(walk, [&](std::int64_t center, std::int64_t first, std::int64_t last) {
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
  for_each_walk(chunk, [&](const Walk& walk) {
    const std::int64_t* const keys = walk.keys.data();
    for_each_center(walk, [&](std::int64_t center, std::int64_t first, std::int64_t last) {
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
  for_each_walk(chunk, [&](const Walk& walk) {
    for_each_center(walk, [&](std::int64_t center, std::int64_t first, std::int64_t last) {
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
