// A cache of units of one size. What stays is decided by use: SIEVE (Zhang et al., NSDI 2024), whose hand walks from
// the oldest unit to the newest and takes the place of the first that was not used since it came by.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "memory/buffer.h"
#include "portability/cpu.h"
#include "store/cache.h"
#include "store/gather.h"
#include "store/unit_index.h"

namespace graphbox {
namespace {

constexpr std::uint32_t kNone = UnitIndex::kNone;
constexpr std::uint32_t kFewestSlots = 16;
constexpr std::size_t kLargestGroup = 64;  // fragments whose memory is asked for together, one group ahead of copying
constexpr std::size_t kSmallestGroup = 12;

struct Slot {
  std::uint32_t unit;
  std::uint32_t newer;  // slot of the unit that came next
};

std::uint64_t bytes_for(const UnitLayout& layout, std::uint32_t slots) {
  return buffer_bytes(std::uint64_t{slots} * layout.unit_bytes) + buffer_bytes(std::uint64_t{slots} * sizeof(Slot)) +
         buffer_bytes(slots) + buffer_bytes(UnitIndex::bytes_for(layout.units, slots));
}

class SieveCache : public Cache {
 public:
  SieveCache(const UnitLayout& layout, std::uint32_t slots)
      : layout_(layout),
        slots_(slots),
        group_(std::clamp(kPrefetchedBytes / layout.unit_bytes, kSmallestGroup, kLargestGroup)),
        index_(layout.units, slots),
        data_(std::size_t{slots} * layout.unit_bytes),
        links_(std::size_t{slots} * sizeof(Slot)),
        uses_(slots) {}

  void copy(std::span<const Fragment> fragments, bool streamed, std::vector<Fragment>& missing) override {
    {
      const std::lock_guard turn(turn_);  // so that those who want to write get their turn
    }
    const std::shared_lock lock(mutex_);
    std::array<std::array<std::uint32_t, kLargestGroup>, 2> found;
    const std::size_t groups = (fragments.size() + group_ - 1) / group_;
    const auto group = [&](std::size_t number) {
      return fragments.subspan(number * group_, std::min(group_, fragments.size() - number * group_));
    };
    for (std::size_t number = 0; number < groups + 2; ++number) {
      if (number < groups) {
        for (const Fragment& each : group(number)) {
          index_.prefetch_entry(each.unit);
        }
      }
      if (number >= 1 && number - 1 < groups) {
        find(group(number - 1), found[(number - 1) % 2].data());
      }
      if (number >= 2) {
        copy_found(group(number - 2), found[number % 2].data(), streamed, missing);
      }
    }
    finish_copies(streamed);
  }

  void offer(const ReadStretch& stretch, Access access) override {
    const std::lock_guard turn(turn_);
    const std::lock_guard lock(mutex_);
    for (const WantedUnit& each : stretch.wanted) {
      if (index_.find(each.unit) != kNone) {
        continue;  // another thread read it as well
      }
      const std::uint32_t slot = used_ < slots_ ? used_++ : evict(each.uses, access);
      if (slot == kNone) {
        continue;
      }
      const std::uint64_t begin = layout_.begin(each.unit);
      const std::uint64_t bytes = std::min<std::uint64_t>(layout_.unit_bytes, stretch.end - begin);
      std::memcpy(address(slot), stretch.data + (begin - stretch.begin), bytes);
      uses(slot).store(static_cast<std::uint8_t>(std::min(each.uses - 1, kMostUses)), std::memory_order_relaxed);
      index_.insert(each.unit, slot);
      link(slot) = {each.unit, kNone};
      if (newest_ != kNone) {
        link(newest_).newer = slot;
      } else {
        oldest_ = slot;
      }
      newest_ = slot;
    }
  }

  std::uint64_t resident_bytes() const override {
    const std::shared_lock lock(mutex_);
    return std::uint64_t{used_} * (layout_.unit_bytes + sizeof(Slot) + 1) + index_.bytes();
  }

 private:
  static constexpr std::uint32_t kMostUses = 15;
  static constexpr std::uint32_t kAgingPeriod = 8;

  std::byte* address(std::uint32_t slot) const { return data_.data() + std::uint64_t{slot} * layout_.unit_bytes; }
  Slot& link(std::uint32_t slot) const { return reinterpret_cast<Slot*>(links_.data())[slot]; }
  std::atomic_ref<std::uint8_t> uses(std::uint32_t slot) const {
    return std::atomic_ref<std::uint8_t>(reinterpret_cast<std::uint8_t*>(uses_.data())[slot]);
  }

  void find(std::span<const Fragment> fragments, std::uint32_t* found) const {
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      const std::uint32_t slot = index_.find(fragments[i].unit);
      found[i] = slot;
      if (slot == kNone) {
        continue;
      }
      prefetch_range(address(slot) + fragments[i].within, fragments[i].bytes);
      prefetch_write(uses_.data() + slot);
    }
  }

  void copy_found(std::span<const Fragment> fragments, const std::uint32_t* found, bool streamed,
                  std::vector<Fragment>& missing) {
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      const Fragment& each = fragments[i];
      if (found[i] == kNone) {
        missing.push_back(each);
        continue;
      }
      copy_range({address(found[i]) + each.within, each.target, each.bytes}, streamed);
      // Counts of two threads at once may lose one: a use more or less decides nothing.
      const std::atomic_ref<std::uint8_t> count = uses(found[i]);
      const std::uint8_t before = count.load(std::memory_order_relaxed);
      if (before < kMostUses) {
        count.store(static_cast<std::uint8_t>(before + 1), std::memory_order_relaxed);
      }
    }
  }

  std::uint32_t evict(std::uint32_t candidate_uses, Access access) {
    return access == Access::kBatch ? evict_unused() : evict_for(candidate_uses);
  }

  // The hand goes on to the first unit without uses left, halving those it passes, and takes its slot.
  std::uint32_t evict_unused() {
    for (;;) {
      const std::uint8_t count = uses(at_hand()).load(std::memory_order_relaxed);
      if (count == 0) {
        return unlink_at_hand();
      }
      uses(hand_).store(count / 2, std::memory_order_relaxed);
      step();
    }
  }

  // A pass comes by everything, much of it once: it would so leave only what it read last. Here a unit must have been
  // used clearly more often than the one at the hand, which loses uses slowly; else none gives up its slot.
  std::uint32_t evict_for(std::uint32_t candidate_uses) {
    if (candidate_uses < 2) {
      return kNone;
    }
    const std::uint8_t count = uses(at_hand()).load(std::memory_order_relaxed);
    if (std::min(candidate_uses, kMostUses) > 2U * count + 1) {
      return unlink_at_hand();
    }
    if (count > 0 && ++passed_ % kAgingPeriod == 0) {
      uses(hand_).store(count - 1, std::memory_order_relaxed);
    }
    step();
    return kNone;
  }

  std::uint32_t at_hand() {
    if (hand_ == kNone) {
      hand_ = oldest_;
      before_hand_ = kNone;
    }
    return hand_;
  }

  void step() {
    before_hand_ = hand_;
    hand_ = link(hand_).newer;
  }

  std::uint32_t unlink_at_hand() {
    const std::uint32_t slot = hand_;
    const std::uint32_t newer = link(slot).newer;
    index_.erase(link(slot).unit);
    if (before_hand_ != kNone) {
      link(before_hand_).newer = newer;
    } else {
      oldest_ = newer;
    }
    if (newer == kNone) {
      newest_ = before_hand_;
    }
    hand_ = newer;
    return slot;
  }

  UnitLayout layout_;
  std::uint32_t slots_;
  std::size_t group_;
  mutable std::mutex turn_;
  mutable std::shared_mutex mutex_;  // of everything below; shared while copying
  UnitIndex index_;
  Buffer data_;
  Buffer links_;
  Buffer uses_;
  std::uint32_t used_ = 0;  // slots, from 0 on
  std::uint32_t oldest_ = kNone;
  std::uint32_t newest_ = kNone;
  std::uint32_t hand_ = kNone;
  std::uint32_t before_hand_ = kNone;  // the slot whose `newer` the hand is
  std::uint32_t passed_ = 0;
};

}  // namespace

std::unique_ptr<Cache> make_sieve_cache(const UnitLayout& layout, std::uint64_t budget_bytes) {
  std::uint32_t fits = 0;
  std::uint64_t too_many = std::uint64_t{layout.units} + 1;  // more slots never take less memory
  while (fits + 1 < too_many) {
    const auto middle = static_cast<std::uint32_t>(fits + (too_many - fits) / 2);
    if (bytes_for(layout, middle) <= budget_bytes) {
      fits = middle;
    } else {
      too_many = middle;
    }
  }
  if (fits < std::min(kFewestSlots, layout.units)) {
    return nullptr;
  }
  return std::make_unique<SieveCache>(layout, fits);
}

}  // namespace graphbox
