// A small hash set of edge offsets, used again for one node after the other.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace graphbox {

class OffsetSet {
 public:
  // Empties the set and makes room for `count` values.
  void start(std::uint64_t count) {
    const std::uint64_t capacity = std::bit_ceil(count * 2);
    mask_ = capacity - 1;
    slots_.assign(capacity, 0);
  }

  // False when the set has the value.
  bool insert(std::uint64_t value) {
    const std::uint64_t slot = find(value);
    if (slots_[slot] != 0) {
      return false;
    }
    slots_[slot] = value + 1;
    return true;
  }

  bool contains(std::uint64_t value) const { return slots_[find(value)] != 0; }

 private:
  // Where the value is, or where it would be.
  std::uint64_t find(std::uint64_t value) const {
    std::uint64_t slot = value * 0x9E3779B97F4A7C15ULL >> 20 & mask_;
    while (slots_[slot] != 0 && slots_[slot] != value + 1) {
      slot = (slot + 1) & mask_;
    }
    return slot;
  }

  std::vector<std::uint64_t> slots_;  // values + 1, so that 0 is free
  std::uint64_t mask_ = 0;
};

}  // namespace graphbox
