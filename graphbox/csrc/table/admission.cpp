#include "table/admission.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "errors/error.h"
#include "portability/cpu.h"

namespace graphbox {
namespace {

constexpr std::size_t kBlock = 16;  // keys whose counters are asked for before the first is needed

constexpr std::uint32_t kMostCount = kElsewhere - 1;  // that an index can hold in place of a row

struct KeyCount {
  std::int64_t key;
  std::uint64_t count;
};

}  // namespace

KeyAdmission::KeyAdmission(const PolicyConfig& config, std::uint64_t seed)
    : config_(config),
      random_(derive_key(Stream::kAdmission, seed, 0, 0)),
      threshold_(static_cast<std::uint64_t>(config.admission_probability * 4294967296.0)),
      sketch_(config.admission == Admission::kSketch ? config.sketch_bytes / kDepth * kDepth : 0) {}

bool KeyAdmission::admits(std::int64_t key, std::uint32_t pass) const {
  switch (config_.admission) {
    case Admission::kAll:
      return true;
    case Admission::kProbability:
      return DrawSequence(random_, 0, 0, static_cast<std::uint64_t>(key)).block(pass)[0] < threshold_;
    case Admission::kSketch:
      return estimate(cells_of(key)) >= config_.admission_count;
    case Admission::kCount:
      break;
  }
  const std::uint32_t count = counts_.find(key, counts_.hash(key));
  return count != kNoRow && count >= config_.admission_count;
}

void KeyAdmission::count(const std::int64_t* keys, const std::vector<std::int64_t>& positions) {
  if (config_.admission == Admission::kSketch) {
    count_in_sketch(keys, positions);
  } else if (config_.admission == Admission::kCount) {
    counts_.reserve(counted_keys_ + positions.size());
    for (const std::int64_t position : positions) {
      count_exactly(keys[position]);
      counted_.push_back(keys[position]);
    }
  }
  pending_pulls_ = positions.size();
}

void KeyAdmission::keep() {
  raised_.clear();
  counted_.clear();
  pulls_ += std::exchange(pending_pulls_, 0);
  while (config_.halve_after != 0 && pulls_ >= config_.halve_after) {
    halve();
  }
}

void KeyAdmission::take_back() {
  std::for_each(raised_.rbegin(), raised_.rend(), [&](const auto& cell) { sketch_[cell.first] = cell.second; });
  for (const std::int64_t key : counted_) {
    const std::uint64_t hash = counts_.hash(key);
    const std::uint32_t count = counts_.find(key, hash);
    if (count == 1) {
      forget(key);
    } else {
      counts_.replace(key, hash, count - 1);
    }
  }
  raised_.clear();
  counted_.clear();
  pending_pulls_ = 0;
}

void KeyAdmission::count_exactly(std::int64_t key) {
  const std::uint64_t hash = counts_.hash(key);
  const std::uint32_t count = counts_.find(key, hash);
  if (count == kNoRow) {
    counts_.insert(key, hash, 1);
    ++counted_keys_;
  } else if (count < kMostCount) {
    counts_.replace(key, hash, count + 1);
  }
}

void KeyAdmission::forget(std::int64_t key) {
  if (config_.admission != Admission::kCount) {
    return;
  }
  const std::uint64_t hash = counts_.hash(key);
  if (counts_.find(key, hash) != kNoRow) {
    counts_.erase(key, hash);
    --counted_keys_;
  }
}

std::uint64_t KeyAdmission::bytes_for(std::uint64_t more_keys) const {
  if (config_.admission != Admission::kCount || counts_.has_room_for(counted_keys_ + more_keys)) {
    return bytes();
  }
  return bytes() + counts_.bytes_for(counted_keys_ + more_keys);
}

// --- The sketch ------------------------------------------------------------------------------------------------------

KeyAdmission::Cells KeyAdmission::cells_of(std::int64_t key) const {
  const std::uint64_t width = sketch_.size() / kDepth;
  const PhiloxBlock words = DrawSequence(random_, 0, 0, static_cast<std::uint64_t>(key)).block(0);
  Cells cells;
  for (std::size_t row = 0; row < kDepth; ++row) {
    cells[row] = row * width + (std::uint64_t{words[row]} * width >> 32);
  }
  return cells;
}

std::uint8_t KeyAdmission::estimate(const Cells& cells) const {
  return std::min({sketch_[cells[0]], sketch_[cells[1]], sketch_[cells[2]], sketch_[cells[3]]});
}

void KeyAdmission::count_in_sketch(const std::int64_t* keys, const std::vector<std::int64_t>& positions) {
  std::array<Cells, kBlock> cells;
  for (std::size_t begin = 0; begin < positions.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, positions.size() - begin);
    for (std::size_t i = 0; i < size; ++i) {
      cells[i] = cells_of(keys[positions[begin + i]]);
      for (const std::uint64_t cell : cells[i]) {
        prefetch(sketch_.data() + cell);
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint8_t least = estimate(cells[i]);
      for (const std::uint64_t cell : cells[i]) {
        if (sketch_[cell] == least && least != UINT8_MAX) {
          raised_.emplace_back(cell, least);
          ++sketch_[cell];
        }
      }
    }
  }
}

void KeyAdmission::halve() {
  pulls_ /= 2;
  for (std::uint8_t& cell : sketch_) {
    cell = static_cast<std::uint8_t>(cell / 2);
  }
  std::vector<std::int64_t> gone;
  counts_.for_each([&](std::int64_t key, std::uint32_t& count) {
    count /= 2;
    if (count == 0) {
      gone.push_back(key);
    }
  });
  for (const std::int64_t key : gone) {
    forget(key);
  }
}

// --- Kept with the table ---------------------------------------------------------------------------------------------

// How many pulls were counted since the last halving, then the sketch, or keys and their counts in the order of keys.
std::vector<std::byte> KeyAdmission::state() const {
  std::vector<KeyCount> counts;
  counts_.for_each([&](std::int64_t key, std::uint32_t count) { counts.push_back({key, count}); });
  std::sort(counts.begin(), counts.end(), [](const KeyCount& a, const KeyCount& b) { return a.key < b.key; });
  const std::size_t count_bytes = counts.size() * sizeof(KeyCount);
  std::vector<std::byte> state(sizeof pulls_ + sketch_.size() + count_bytes);
  std::memcpy(state.data(), &pulls_, sizeof pulls_);
  if (!sketch_.empty()) {
    std::memcpy(state.data() + sizeof pulls_, sketch_.data(), sketch_.size());
  }
  if (!counts.empty()) {
    std::memcpy(state.data() + sizeof pulls_ + sketch_.size(), counts.data(), count_bytes);
  }
  return state;
}

void KeyAdmission::add_state(const std::byte* state, std::size_t bytes,
                             const std::function<bool(std::int64_t)>& is_of_table) {
  const bool counts_keys = config_.admission == Admission::kCount;
  const std::size_t rest = bytes - std::min(bytes, sizeof pulls_);
  if (bytes < sizeof pulls_ || (counts_keys ? rest % sizeof(KeyCount) != 0 : rest != sketch_.size())) {
    throw Error(ErrorKind::kFormat,
                "the counts of keys without a row do not fit the table's admission: " + std::to_string(bytes) + " bytes");
  }
  std::uint64_t pulls = 0;
  std::memcpy(&pulls, state, sizeof pulls);
  pulls_ += pulls;
  state += sizeof pulls;
  for (std::size_t cell = 0; cell < sketch_.size(); ++cell) {
    const unsigned sum = sketch_[cell] + std::to_integer<unsigned>(state[cell]);
    sketch_[cell] = static_cast<std::uint8_t>(std::min<unsigned>(sum, UINT8_MAX));
  }
  if (!counts_keys) {
    return;
  }
  for (std::size_t i = 0; i < rest / sizeof(KeyCount); ++i) {
    KeyCount added;
    std::memcpy(&added, state + i * sizeof added, sizeof added);
    if (!is_of_table(added.key)) {
      continue;
    }
    const std::uint64_t hash = counts_.hash(added.key);
    const std::uint32_t count = counts_.find(added.key, hash);
    if (count == kNoRow) {
      counts_.reserve(counted_keys_ + 1);
      counts_.insert(added.key, hash, static_cast<std::uint32_t>(std::min<std::uint64_t>(added.count, kMostCount)));
      ++counted_keys_;
    } else {
      counts_.replace(added.key, hash, static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                           std::uint64_t{count} + added.count, kMostCount)));
    }
  }
}

}  // namespace graphbox
