// unit -> slot: an array of all units, or a table of those that have a slot where that takes less memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

class UnitIndex {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  UnitIndex(std::uint32_t units, std::uint32_t slots)
      : direct_(is_direct(units, slots)),
        entries_(direct_ ? units : places(slots)),
        memory_(static_cast<std::size_t>(bytes_for(units, slots))) {
    if (memory_.bytes() < kHugePageBytes) {  // larger memory comes zeroed, and is touched only where it is used
      std::memset(memory_.data(), 0, memory_.bytes());
    }
  }

  static std::uint64_t bytes_for(std::uint32_t units, std::uint32_t slots) {
    return is_direct(units, slots) ? std::uint64_t{units} * sizeof(std::uint32_t) : places(slots) * sizeof(Entry);
  }
  std::uint64_t bytes() const { return memory_.bytes(); }

  GRAPHBOX_INLINE void prefetch_entry(std::uint32_t unit) const {
    prefetch(direct_ ? static_cast<const void*>(slots() + unit) : static_cast<const void*>(table() + home(unit)));
  }

  std::uint32_t find(std::uint32_t unit) const {
    if (direct_) {
      return slots()[unit] - 1;
    }
    for (std::uint64_t place = home(unit);; place = next(place)) {
      const Entry& entry = table()[place];
      if (entry.slot_plus_one == 0 || entry.unit == unit) {
        return entry.slot_plus_one - 1;
      }
    }
  }

  // The unit must not be there.
  void insert(std::uint32_t unit, std::uint32_t slot) {
    if (direct_) {
      slots()[unit] = slot + 1;
      return;
    }
    std::uint64_t place = home(unit);
    while (table()[place].slot_plus_one != 0) {
      place = next(place);
    }
    table()[place] = {unit, slot + 1};
  }

  // The unit must be there. Moves those behind it up, so that no search ends early (Knuth, volume 3, 6.4, R).
  void erase(std::uint32_t unit) {
    if (direct_) {
      slots()[unit] = 0;
      return;
    }
    std::uint64_t hole = home(unit);
    while (table()[hole].unit != unit || table()[hole].slot_plus_one == 0) {
      hole = next(hole);
    }
    for (std::uint64_t place = next(hole); table()[place].slot_plus_one != 0; place = next(place)) {
      const std::uint64_t wanted = home(table()[place].unit);
      const bool between = hole <= place ? hole < wanted && wanted <= place : hole < wanted || wanted <= place;
      if (!between) {
        table()[hole] = table()[place];
        hole = place;
      }
    }
    table()[hole] = {};
  }

 private:
  struct Entry {
    std::uint32_t unit;
    std::uint32_t slot_plus_one;
  };

  // Two thirds full at most.
  static std::uint64_t places(std::uint32_t slots) { return std::uint64_t{slots} + slots / 2 + 2; }
  static bool is_direct(std::uint32_t units, std::uint32_t slots) {
    return std::uint64_t{units} * sizeof(std::uint32_t) <= places(slots) * sizeof(Entry);
  }
  std::uint64_t home(std::uint32_t unit) const {
    const std::uint64_t mixed = (unit ^ std::uint64_t{unit} << 32) * 0x9E3779B97F4A7C15ULL;
    return static_cast<std::uint64_t>(static_cast<Uint128>(mixed) * entries_ >> 64);
  }
  std::uint64_t next(std::uint64_t place) const { return place + 1 == entries_ ? 0 : place + 1; }
  std::uint32_t* slots() const { return reinterpret_cast<std::uint32_t*>(memory_.data()); }
  Entry* table() const { return reinterpret_cast<Entry*>(memory_.data()); }

  bool direct_;
  std::uint64_t entries_;
  Buffer memory_;
};

}  // namespace graphbox
