// The keys of a batch brought together by their rows, on several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/buffer.h"

namespace graphbox {

// A key of a batch.
struct GroupedKey {
  static constexpr std::uint32_t kNoSum = (std::uint32_t{1} << 30) - 1;

  std::uint32_t row;
  std::uint32_t position;      // in the batch
  std::uint32_t sum : 30;      // of its row's gradients: the number of that sum in the group, where there are others
  std::uint32_t is_first : 1;  // of its row's keys
  std::uint32_t is_last : 1;
};

// A batch in groups, such that all keys of a row are in one, in the order of the batch: so a thread that has a group
// reads gradients nearly from front to back. The groups are few for the same reason.
class RowGroups {
 public:
  // `rows` of `count` keys, at most 2^30; those of kNoRow are left out.
  RowGroups(const std::uint32_t* rows, std::int64_t count, int threads);

  std::int64_t groups() const { return static_cast<std::int64_t>(begins_.size()) - 1; }

  struct Keys {
    const GroupedKey* keys;
    std::int64_t count;
    std::int64_t sums;  // how many rows have several keys
  };

  // To be called once for each group; several threads may do so.
  Keys keys_of(std::int64_t group);

 private:
  void divide(const std::uint32_t* rows, std::int64_t count, std::uint64_t groups, int threads);

  std::vector<std::int64_t> begins_;  // of groups, and the end of the last one
  PooledArray<GroupedKey> keys_;
};

}  // namespace graphbox
