#include "table/pulled_rows.h"

#include <algorithm>
#include <bit>

#include "table/row_index.h"

namespace graphbox {
namespace {

// Some rows; kNoRow is always among them.
class RowSet {
 public:
  explicit RowSet(std::int64_t most)
      : slots_(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(most) * 2 + 2))),
        shift_(32 - std::countr_zero(static_cast<std::uint64_t>(slots_.size()))) {
    std::fill_n(slots_.data(), slots_.size(), kNoRow);
  }

  void insert(std::uint32_t row) { slots_[place_of(row)] = row; }
  bool contains(std::uint32_t row) const { return slots_[place_of(row)] == row; }

 private:
  std::int64_t place_of(std::uint32_t row) const {
    std::int64_t place = shift_ > 0 ? row * 0x9E3779B1U >> shift_ : row;
    while (slots_[place] != row && slots_[place] != kNoRow) {
      place = (place + 1) & (slots_.size() - 1);
    }
    return place;
  }

  PooledArray<std::uint32_t> slots_;
  int shift_;
};

}  // namespace

PulledRows PulledRows::joined(const std::vector<const PulledRows*>& parts) {
  std::int64_t count = 0;
  for (const PulledRows* part : parts) {
    count += part->rows.size();
  }
  PulledRows all;
  all.keys.resize(count);
  all.rows.resize(count);
  std::int64_t begin = 0;
  for (const PulledRows* part : parts) {
    std::copy(part->keys.begin(), part->keys.end(), all.keys.data() + begin);
    std::copy(part->rows.begin(), part->rows.end(), all.rows.data() + begin);
    begin += part->rows.size();
    all.version = part == parts.front() || part->version == all.version ? part->version : kOutdated;
    all.changes = part == parts.front() ? part->changes : std::min(all.changes, part->changes);
  }
  return all;
}

void PulledRows::replace(const std::int64_t* positions, const PulledRows& later) {
  for (std::int64_t i = 0; i < later.rows.size(); ++i) {
    rows[positions[i]] = later.rows[i];
  }
  version = later.version == version ? version : kOutdated;
}

void PulledRows::stale(const std::vector<const PulledRows*>& pushed, const std::int64_t* offsets, std::int64_t results,
                       bool* out) const {
  std::int64_t most = 0;
  for (const PulledRows* part : pushed) {
    if (part->version != version) {  // the numbers of rows may have changed their meaning
      std::fill_n(out, results, true);
      return;
    }
    most += part->rows.size();
  }
  RowSet set(most);
  for (const PulledRows* part : pushed) {
    for (const std::uint32_t row : part->rows) {
      set.insert(row);
    }
  }
  for (std::int64_t i = 0; i < results; ++i) {
    const std::int64_t end = offsets != nullptr ? offsets[i + 1] : i + 1;
    std::int64_t key = offsets != nullptr ? offsets[i] : i;
    while (key < end && !set.contains(rows[key])) {
      ++key;
    }
    out[i] = key < end;
  }
}

}  // namespace graphbox
