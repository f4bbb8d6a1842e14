#include "train/skip_gram_batch.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "errors/error.h"
#include "train/lanes.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkRows = 96;

// Numbers different keys in the order they come.
class KeyNumbers {
 public:
  explicit KeyNumbers(std::size_t most)
      : shift_(64 - std::countr_zero(std::bit_ceil(most * 2 + 2))), slots_(std::bit_ceil(most * 2 + 2), Slot{kNone, 0}) {}

  std::uint32_t number(std::int64_t key) {
    std::size_t slot = (static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15U) >> shift_;
    while (slots_[slot].key != key) {
      if (slots_[slot].key == kNone) {
        slots_[slot] = {key, count_++};
        return slots_[slot].number;
      }
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slots_[slot].number;
  }

  std::uint32_t count() const { return count_; }

 private:
  static constexpr std::int64_t kNone = -1;
  struct Slot {
    std::int64_t key;
    std::uint32_t number;
  };

  int shift_;
  std::vector<Slot> slots_;
  std::uint32_t count_ = 0;
};

struct Item {
  std::int64_t key;
  std::uint32_t source;
};

// Brings the sources of each key together, in their order.
SkipGramBatch::Updates grouped(std::span<const Item> items) {
  SkipGramBatch::Updates updates;
  KeyNumbers numbers(items.size());
  std::vector<std::uint32_t> number_of(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::uint32_t number = numbers.number(items[i].key);
    number_of[i] = number;
    if (number == updates.keys.size()) {
      updates.keys.push_back(items[i].key);
      updates.begins.push_back(0);
    }
    ++updates.begins[number];
  }
  std::uint32_t before = 0;
  for (std::uint32_t& begin : updates.begins) {
    before += std::exchange(begin, before);
  }
  updates.begins.push_back(before);
  std::vector<std::uint32_t> place(updates.begins);
  updates.sources.resize(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    updates.sources[place[number_of[i]]++] = items[i].source;
  }
  return updates;
}

}  // namespace

void SkipGramBatch::make(const SkipGramBatchRequest& request) {
  walks_.resize(request.walks->start.size() * static_cast<std::size_t>(request.walks->length + 1));
  random_walks(*request.walks, walks_.data());
  negatives.resize(static_cast<std::size_t>(request.num_negatives));
  request.negatives->sample(request.negative_key, negatives.data(), request.num_negatives, 1);
  add_windows(request);
  find_centers();
  find_updates(request.has_one_table);
}

void SkipGramBatch::add_windows(const SkipGramBatchRequest& request) {
  SkipGramRequest windows = *request.windows;
  windows.walks = walks_.data();
  windows.num_walks = static_cast<std::int64_t>(request.walks->start.size());
  windows.path_of = request.walks->path_of.empty() ? nullptr : request.walks->path_of.data();
  keys.clear();
  first.clear();
  last.clear();
  center_uses_.clear();
  context_uses_.clear();
  chunks.assign(1, 0);
  num_pairs = 0;
  std::vector<std::int64_t> kept;
  std::vector<std::int64_t> columns;
  for (std::int64_t number = 0; number < windows.num_walks; ++number) {
    const KeptWalk walk = read_walk(windows, number, kept, columns);
    const std::size_t start = keys.size();
    if (start + walk.keys.size() > INT32_MAX / 4) {
      throw Error(ErrorKind::kDoesNotFit, "a batch of walks visits more than 2^29 nodes", {}, "lower batch_size");
    }
    for (const std::int64_t key : walk.keys) {
      if (key < 0 || key >= request.num_keys) {
        throw Error(ErrorKind::kUsage,
                    "expected keys in [0, " + std::to_string(request.num_keys) + "), received " + std::to_string(key));
      }
      keys.push_back(static_cast<std::int32_t>(key));
    }
    center_uses_.resize(keys.size(), 0);
    context_uses_.resize(keys.size(), 0);
    const std::int32_t* const key_at = keys.data() + start;
    std::int32_t* const context_uses = context_uses_.data() + start;
    const auto shift = static_cast<std::int64_t>(start);
    for_each_center(windows, walk, [&](std::int64_t center, std::int64_t begin, std::int64_t end) {
      first.push_back(static_cast<std::int32_t>(shift + begin));
      last.push_back(static_cast<std::int32_t>(shift + end));
      std::int32_t pairs = 0;
      for (std::int64_t context = begin; context < end; ++context) {
        const std::int32_t is_pair = key_at[context] != key_at[center] ? 1 : 0;
        context_uses[context] += is_pair;
        pairs += is_pair;
      }
      center_uses_[start + static_cast<std::size_t>(center)] = pairs;
      num_pairs += pairs;
    });
    if (std::ssize(keys) - chunks.back() >= kChunkRows) {
      chunks.push_back(std::ssize(keys));
    }
  }
  num_rows = std::ssize(keys);
  if (chunks.back() != num_rows) {
    chunks.push_back(num_rows);
  }
  keys.resize(keys.size() + kLaneCount, 0);
}

void SkipGramBatch::find_centers() {
  centers.clear();
  center_pairs.clear();
  KeyNumbers numbers(static_cast<std::size_t>(num_rows));
  for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
    if (center_uses_[row] == 0) {
      continue;
    }
    const std::uint32_t number = numbers.number(keys[row]);
    if (number == centers.size()) {
      centers.push_back(keys[row]);
      center_pairs.push_back(0);
    }
    center_pairs[number] += static_cast<float>(center_uses_[row]);
  }
}

void SkipGramBatch::find_updates(bool has_one_table) {
  std::vector<Item> items;
  items.reserve(static_cast<std::size_t>(num_sources()));
  for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
    if (center_uses_[row] > 0) {
      items.push_back({keys[row], static_cast<std::uint32_t>(row)});
    }
  }
  for (std::size_t center = 0; center < centers.size(); ++center) {
    items.push_back({centers[center], static_cast<std::uint32_t>(first_center_source()) + static_cast<std::uint32_t>(center)});
  }
  updates.clear();
  if (!has_one_table) {
    updates.push_back(grouped(items));
    items.clear();
  }
  for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
    if (context_uses_[row] > 0) {
      items.push_back({keys[row], static_cast<std::uint32_t>(num_rows) + static_cast<std::uint32_t>(row)});
    }
  }
  auto source = static_cast<std::uint32_t>(first_negative_source());
  for (std::int64_t block = 0; block < num_blocks(); ++block) {
    for (const std::int64_t negative : negatives) {
      items.push_back({negative, source++});
    }
  }
  updates.push_back(grouped(items));
}

}  // namespace graphbox
