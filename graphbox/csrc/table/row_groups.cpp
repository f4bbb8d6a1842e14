#include "table/row_groups.h"

#include <algorithm>
#include <bit>

#include "parallel/divide.h"
#include "parallel/parallel_for.h"
#include "portability/cpu.h"
#include "table/row_index.h"

namespace graphbox {
namespace {

constexpr std::int64_t kGroupsOfThread = 2;  // so that one that is held up does not hold up all
constexpr std::int64_t kFewestGroupKeys = 1024;  // on average
constexpr std::int64_t kMostGroupKeys = std::int64_t{1} << 17;

// Scales a hash to a number below `range`.
std::uint64_t scaled(std::uint32_t hash, std::uint64_t range) { return std::uint64_t{hash} * range >> 32; }

// Other factors for groups and for places within one: these would be crowded if all shared the upper bits.
std::uint32_t group_hash(std::uint32_t row) { return row * 0x85EBCA6BU; }
std::uint32_t place_hash(std::uint32_t row) { return row * 0x9E3779B1U; }

// The last of the keys of each row of a group, so far.
class LastKeys {
 public:
  struct Slot {
    std::uint32_t row;
    std::uint32_t key;
  };

  explicit LastKeys(std::int64_t keys)
      : count_(std::bit_ceil(static_cast<std::uint64_t>(keys + keys / 2))), slots_(static_cast<std::int64_t>(count_)) {
    std::fill_n(slots_.data(), count_, Slot{kNoRow, 0});
  }

  GRAPHBOX_INLINE void prefetch(std::uint32_t row) const { prefetch_write(slots_.data() + home(row)); }

  // That of the row, or the free one that it may take.
  Slot& of(std::uint32_t row) {
    std::uint64_t place = home(row);
    while (slots_.data()[place].row != row && slots_.data()[place].row != kNoRow) {
      place = (place + 1) & (count_ - 1);
    }
    return slots_.data()[place];
  }

 private:
  std::uint64_t home(std::uint32_t row) const { return scaled(place_hash(row), count_); }

  std::uint64_t count_;
  PooledArray<Slot> slots_;
};

}  // namespace

RowGroups::RowGroups(const std::uint32_t* rows, std::int64_t count, int threads) : keys_(count) {
  const std::int64_t for_threads = threads <= 1 ? 1 : bounded_threads(threads) * kGroupsOfThread;
  const std::int64_t groups = std::clamp(for_threads, count / kMostGroupKeys, count / kFewestGroupKeys);
  divide(rows, count, static_cast<std::uint64_t>(std::max(groups, std::int64_t{1})), threads);
}

void RowGroups::divide(const std::uint32_t* rows, std::int64_t count, std::uint64_t groups, int threads) {
  GroupedKey* const keys = keys_.data();
  begins_ = graphbox::divide(
      threads, count, groups,
      [=](std::int64_t i) { return rows[i] != kNoRow ? scaled(group_hash(rows[i]), groups) : groups; },
      [=](std::int64_t place, std::int64_t i) {
        keys[place].row = rows[i];
        keys[place].position = static_cast<std::uint32_t>(i);
      });
}

RowGroups::Keys RowGroups::keys_of(std::int64_t group) {
  constexpr std::int64_t kDistance = 16;
  const std::int64_t begin = begins_[static_cast<std::size_t>(group)];
  const std::int64_t count = begins_[static_cast<std::size_t>(group) + 1] - begin;
  GroupedKey* const keys = keys_.data() + begin;
  if (count == 0) {
    return {keys, 0, 0};
  }
  LastKeys last_keys(count);
  std::uint32_t sums = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    last_keys.prefetch(keys[std::min(i + kDistance, count - 1)].row);
    GroupedKey& key = keys[i];
    LastKeys::Slot& slot = last_keys.of(key.row);
    key.is_first = slot.row == kNoRow ? 1 : 0;
    key.is_last = 1;
    key.sum = GroupedKey::kNoSum;
    if (!key.is_first) {
      GroupedKey& before = keys[slot.key];
      before.is_last = 0;
      before.sum = (before.sum == GroupedKey::kNoSum ? sums++ : before.sum) & GroupedKey::kNoSum;
      key.sum = before.sum;
    }
    slot = {key.row, static_cast<std::uint32_t>(i)};
  }
  return {keys, count, sums};
}

}  // namespace graphbox
