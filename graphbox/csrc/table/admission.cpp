#include "table/admission.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "errors/error.h"
#include "portability/cpu.h"

namespace graphbox {
namespace {

constexpr std::size_t kBlock = 16;  // keys whose counters are asked for before the first is needed

constexpr std::uint32_t kMostCount = (std::uint32_t{1} << 30) - 1;  // that an index holds in place of a row, with a bit

// Kinds of a state's contents.
constexpr std::uint32_t kAll = 0;
constexpr std::uint32_t kChanges = 1;

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
  return count != kNoRow && (count & ~kChangedCount) >= config_.admission_count;
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
    if ((count & ~kChangedCount) == 1) {
      drop_count(key);
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
    counts_.insert(key, hash, 1 | kChangedCount);
    ++counted_keys_;
  } else if ((count & ~kChangedCount) < kMostCount) {
    counts_.replace(key, hash, (count + 1) | kChangedCount);
  }
}

void KeyAdmission::forget(std::int64_t key) {
  if (config_.admission != Admission::kCount || counts_.find(key, counts_.hash(key)) == kNoRow) {
    return;
  }
  drop_count(key);
  for (Following& following : following_) {
    std::vector<std::int64_t>& removed = following.now.removed;
    if (!following.is_on) {
      continue;
    }
    if (removed.size() == removed.capacity()) {  // the same key may come and go
      std::sort(removed.begin(), removed.end());
      removed.erase(std::unique(removed.begin(), removed.end()), removed.end());
    }
    removed.push_back(key);
  }
}

void KeyAdmission::drop_count(std::int64_t key) {
  counts_.erase(key, counts_.hash(key));
  --counted_keys_;
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
          note_cell(cell);
        }
      }
    }
  }
}

void KeyAdmission::halve() {
  pulls_ /= 2;
  for (Following& following : following_) {
    following.now.halvings += following.is_on ? 1 : 0;
  }
  for (std::uint8_t& cell : sketch_) {
    cell = static_cast<std::uint8_t>(cell / 2);
  }
  std::vector<std::int64_t> gone;
  counts_.for_each([&](std::int64_t key, std::uint32_t& count) {
    const std::uint32_t half = (count & ~kChangedCount) / 2;
    count = half | (count & kChangedCount);
    if (half == 0) {
      gone.push_back(key);
    }
  });
  for (const std::int64_t key : gone) {
    drop_count(key);
  }
}

// --- Following -------------------------------------------------------------------------------------------------------

std::uint64_t KeyAdmission::followed_bytes() const {
  std::uint64_t numbers = 0;
  for (const Following& following : following_) {
    numbers += following.now.cells.size() + following.now.removed.capacity() + following.changed_then.capacity();
    numbers += following.before ? following.before->cells.size() + following.before->removed.capacity() : 0;
  }
  return numbers * sizeof(std::uint64_t);
}

std::uint64_t KeyAdmission::most_bytes() const {
  const std::uint64_t followed = kFollowers * 2 * cell_words() * sizeof(std::uint64_t);  // since then, and before
  return sketch_.size() + exact_bytes() + std::max(followed, followed_bytes());
}

void KeyAdmission::note_cell(std::uint64_t cell) {
  for (Following& following : following_) {
    if (following.is_on) {
      following.now.cells[cell / 64] |= std::uint64_t{1} << (cell % 64);
    }
  }
}

void KeyAdmission::follow(Follower follower) {
  Following& following = following_[follower];
  following = {};
  following.is_on = true;
  begin_next(follower);
  following.before.reset();
  following.changed_then = {};
}

bool KeyAdmission::has_changed(Follower follower) const {
  const Following& following = following_[follower];
  return !following.is_on || following.now.pulls != pulls_ || following.now.halvings > 0 ||
         !following.now.removed.empty() ||
         std::any_of(following.now.cells.begin(), following.now.cells.end(), [](std::uint64_t bits) { return bits != 0; });
}

void KeyAdmission::begin_next(Follower follower) {
  Following& following = following_[follower];
  if (following.is_on) {
    following.before = std::exchange(following.now, {});
  }
  following.is_on = true;
  following.now.cells.resize(cell_words());
  following.now.pulls = pulls_;
  if (follower != kChain) {  // tables with rows on SSD count in a sketch alone
    return;
  }
  counts_.for_each([&](std::int64_t key, std::uint32_t& count) {
    if ((count & kChangedCount) != 0) {
      following.changed_then.push_back(key);
      count &= ~kChangedCount;
    }
  });
}

void KeyAdmission::confirm(Follower follower) {
  following_[follower].before.reset();
  following_[follower].changed_then = {};
}

void KeyAdmission::restore(Follower follower) {
  Following& following = following_[follower];
  if (!following.before) {
    following = {};  // there is nothing to go on from
    return;
  }
  for (std::size_t word = 0; word < following.now.cells.size(); ++word) {
    following.now.cells[word] |= following.before->cells[word];
  }
  following.now.removed.insert(following.now.removed.end(), following.before->removed.begin(),
                               following.before->removed.end());
  following.now.halvings += following.before->halvings;
  following.now.pulls = following.before->pulls;
  for (const std::int64_t key : following.changed_then) {
    const std::uint64_t hash = counts_.hash(key);
    const std::uint32_t count = counts_.find(key, hash);
    if (count != kNoRow) {
      counts_.replace(key, hash, count | kChangedCount);
    }
  }
  confirm(follower);
}

// --- Kept with the table ---------------------------------------------------------------------------------------------

namespace {

class StateWriter {
 public:
  template <typename Number>
  void add(Number number) {
    add(&number, sizeof number);
  }
  void add(const void* data, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(data);
    state_.insert(state_.end(), begin, begin + bytes);
  }
  // Seven bits in each byte, the lowest first; the last byte's highest bit is not set (LEB128).
  void add_short(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) {
      state_.push_back(static_cast<std::byte>(number | 0x80));
    }
    state_.push_back(static_cast<std::byte>(number));
  }
  std::vector<std::byte> take() { return std::move(state_); }

 private:
  std::vector<std::byte> state_;
};

class StateReader {
 public:
  StateReader(const std::byte* state, std::size_t bytes) : next_(state), end_(state + bytes) {}

  const std::byte* rest() const { return next_; }
  std::size_t bytes() const { return static_cast<std::size_t>(end_ - next_); }
  template <typename Number>
  Number take() {
    Number number;
    check(bytes() >= sizeof number);
    std::memcpy(&number, next_, sizeof number);
    next_ += sizeof number;
    return number;
  }
  std::uint64_t take_short() {
    std::uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
      check(shift < 64);
      const auto byte = static_cast<std::uint64_t>(take<std::uint8_t>());
      number |= (byte & 0x7F) << shift;
      if (byte < 0x80) {
        return number;
      }
    }
  }
  static void check(bool fits) {
    if (!fits) {
      throw Error(ErrorKind::kFormat, "the counts of keys without a row do not fit the table's admission");
    }
  }

 private:
  const std::byte* next_;
  const std::byte* end_;
};

}  // namespace

// The number of pulls since the last halving; then the sketch, or keys and their counts in the order of keys.
std::vector<std::byte> KeyAdmission::state() const {
  std::vector<KeyCount> counts;
  counts_.for_each(
      [&](std::int64_t key, std::uint32_t count) { counts.push_back({key, count & ~kChangedCount}); });
  std::sort(counts.begin(), counts.end(), [](const KeyCount& a, const KeyCount& b) { return a.key < b.key; });
  StateWriter state;
  state.add(pulls_);
  state.add(kAll);
  state.add(sketch_.data(), sketch_.size());
  state.add(counts.data(), counts.size() * sizeof(KeyCount));
  return state.take();
}

// The same with halvings, then cells of the sketch as they are now: how many are skipped, and the value; or keys that
// are counted no more, and keys and their counts.
std::vector<std::byte> KeyAdmission::changes(Follower follower) const {
  const Following& following = following_[follower];
  if (!following.is_on) {
    return state();
  }
  std::vector<std::byte> changed = config_.admission == Admission::kCount ? count_changes(following.now)
                                                                          : cell_changes(following.now);
  const std::uint64_t all = sizeof pulls_ + sizeof kAll + sketch_.size() + counted_keys_ * sizeof(KeyCount);
  return changed.size() < all ? changed : state();
}

std::vector<std::byte> KeyAdmission::cell_changes(const Changes& changes) const {
  StateWriter state;
  state.add(pulls_);
  state.add(kChanges);
  state.add(changes.halvings);
  std::uint64_t next = 0;
  for (std::size_t word = 0; word < changes.cells.size(); ++word) {
    for (std::uint64_t bits = changes.cells[word]; bits != 0; bits &= bits - 1) {
      const std::uint64_t cell = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
      state.add_short(cell - next);
      state.add(sketch_[cell]);
      next = cell + 1;
    }
  }
  return state.take();
}

std::vector<std::byte> KeyAdmission::count_changes(const Changes& changes) const {
  std::vector<std::int64_t> removed = changes.removed;
  std::sort(removed.begin(), removed.end());
  removed.erase(std::unique(removed.begin(), removed.end()), removed.end());
  std::vector<KeyCount> counts;
  counts_.for_each([&](std::int64_t key, std::uint32_t count) {
    if ((count & kChangedCount) != 0) {
      counts.push_back({key, count & ~kChangedCount});
    }
  });
  std::sort(counts.begin(), counts.end(), [](const KeyCount& a, const KeyCount& b) { return a.key < b.key; });
  StateWriter state;
  state.add(pulls_);
  state.add(kChanges);
  state.add(changes.halvings);
  state.add(std::uint64_t{removed.size()});
  state.add(removed.data(), removed.size() * sizeof(std::int64_t));
  state.add(counts.data(), counts.size() * sizeof(KeyCount));
  return state.take();
}

void KeyAdmission::add_state(const std::byte* state, std::size_t bytes, const IsOfTable& is_of_table) {
  StateReader reader(state, bytes);
  const auto pulls = reader.take<std::uint64_t>();
  const auto form = reader.take<std::uint32_t>();
  StateReader::check(form <= kChanges);
  const bool counts_keys = config_.admission == Admission::kCount;
  if (form == kAll) {
    if (counts_keys) {
      counts_ = RowIndex();
      counted_keys_ = 0;
      add_counts(reader.rest(), reader.bytes(), is_of_table);
    } else {
      StateReader::check(reader.bytes() == sketch_.size());
      std::transform(reader.rest(), reader.rest() + reader.bytes(), sketch_.begin(), std::to_integer<std::uint8_t>);
    }
    following_ = {};  // all may have changed: each begins with all of it again
    pulls_ = pulls;
    return;
  }
  for (auto halvings = std::min<std::uint32_t>(reader.take<std::uint32_t>(), 32); halvings > 0; --halvings) {
    halve();
  }
  if (counts_keys) {
    for (auto removed = reader.take<std::uint64_t>(); removed > 0; --removed) {
      forget(reader.take<std::int64_t>());
    }
    add_counts(reader.rest(), reader.bytes(), is_of_table);
  } else {
    add_cell_changes(reader.rest(), reader.bytes());
  }
  pulls_ = pulls;
}

void KeyAdmission::add_cell_changes(const std::byte* state, std::size_t bytes) {
  StateReader reader(state, bytes);
  for (std::uint64_t cell = 0; reader.bytes() > 0; ++cell) {
    const std::uint64_t skipped = reader.take_short();
    StateReader::check(skipped < sketch_.size() && cell + skipped < sketch_.size());
    cell += skipped;
    sketch_[cell] = reader.take<std::uint8_t>();
    note_cell(cell);
  }
}

// Pairs of keys and counts, which stand instead of those there are.
void KeyAdmission::add_counts(const std::byte* pairs, std::size_t bytes, const IsOfTable& is_of_table) {
  StateReader::check(bytes % sizeof(KeyCount) == 0);
  for (std::size_t i = 0; i < bytes / sizeof(KeyCount); ++i) {
    KeyCount added;
    std::memcpy(&added, pairs + i * sizeof added, sizeof added);
    if (!is_of_table(added.key)) {
      continue;
    }
    const std::uint64_t hash = counts_.hash(added.key);
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(added.count, kMostCount));
    if (counts_.find(added.key, hash) != kNoRow) {
      counts_.replace(added.key, hash, count | kChangedCount);
      continue;
    }
    counts_.reserve(counted_keys_ + 1);
    counts_.insert(added.key, counts_.hash(added.key), count | kChangedCount);
    ++counted_keys_;
  }
}

}  // namespace graphbox
