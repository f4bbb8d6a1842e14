// Makes the hash index of ids that others hold, with several threads, the same whatever their number.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "errors/error.h"
#include "graph/id_index.h"
#include "graph/ids_view.h"
#include "memory/buffer.h"
#include "parallel/parallel_for.h"

namespace graphbox {

// The hashes of a block of rows, and the rows dealt out to the owners of the partitions: threads each own a range of
// partitions, where no other thread writes, and meet their rows in order.
class HashedBlock {
 public:
  static constexpr std::int64_t kRows = std::int64_t{1} << 16;

  explicit HashedBlock(int threads)
      : threads_(bounded_threads(threads)), hashes_(kRows), rows_(static_cast<std::size_t>(threads_)) {}

  std::uint64_t hash(std::uint32_t row) const { return hashes_[row]; }
  const std::vector<std::uint32_t>& rows_of(std::int64_t owner) const { return rows_[static_cast<std::size_t>(owner)]; }
  int owners(const IndexLayout& layout) const {
    return static_cast<int>(std::min<std::int64_t>(threads_, layout.partitions()));
  }

  // Takes rows [first, first + count) of the ids for which `valid(row - first)` holds.
  template <typename Ids, typename Valid>
  void take(const Ids& ids, std::int64_t first, std::int64_t count, const IndexLayout& layout, const Valid& valid) {
    parallel_for(threads_, (count + kHashChunk - 1) / kHashChunk, [&](std::int64_t chunk) {
      const std::int64_t end = std::min(count, (chunk + 1) * kHashChunk);
      for (std::int64_t i = chunk * kHashChunk; i < end; ++i) {
        hashes_[static_cast<std::size_t>(i)] = ids.hash(first + i);
      }
    });
    const int owners = this->owners(layout);
    parallel_for(threads_, owners, [&](std::int64_t owner) {
      std::vector<std::uint32_t>& rows = rows_[static_cast<std::size_t>(owner)];
      rows.resize(static_cast<std::size_t>(count));
      std::uint32_t* next = rows.data();
      for (std::int64_t i = 0; i < count; ++i) {
        *next = static_cast<std::uint32_t>(i);
        const std::int64_t partition = layout.partition_of(hashes_[static_cast<std::size_t>(i)]);
        next += (partition * owners >> layout.partition_bits) == owner && valid(i) ? 1 : 0;
      }
      rows.resize(static_cast<std::size_t>(next - rows.data()));
    });
  }

 private:
  static constexpr std::int64_t kHashChunk = std::int64_t{1} << 13;

  int threads_;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::vector<std::uint32_t>> rows_;
};

// The slots of an index in memory.
class IdIndex {
 public:
  const IndexLayout& layout() const { return layout_; }
  bool is_wide() const { return wide_; }
  const std::byte* data() const { return entries_.data(); }
  std::size_t size_bytes() const { return static_cast<std::size_t>(layout_.slots()) * (wide_ ? 8 : 4); }
  template <typename Entry>
  Entry* entries() const {
    return reinterpret_cast<Entry*>(entries_.data());
  }

  static std::size_t bytes_of(const IndexLayout& layout, bool wide) {
    const std::size_t bytes = static_cast<std::size_t>(layout.slots()) * (wide ? 8 : 4);
    return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  }

  // Enters ids 0 to count - 1, but for those whose `valid` (when given) is 0, in place of all that was there. The layout is made larger where ids are hashed so
  // unevenly that a partition would have no empty slot; `may_hold(bytes)` is asked before, and may throw.
  template <typename Ids, typename MayHold>
  void build(const Ids& ids, std::int64_t count, const std::uint8_t* valid, const IndexLayout& layout, bool wide,
             int threads, HashedBlock& block, const MayHold& may_hold) {
    layout_ = layout;
    wide_ = wide;
    for (;; layout_.slots_per_partition *= 2) {
      if (layout_.slots_per_partition > kMostGrowth * layout.slots_per_partition) {
        refuse_uneven();
      }
      entries_ = Buffer();  // nothing of the old one is needed
      may_hold(bytes_of(layout_, wide_));
      entries_ = Buffer(size_bytes());
      clear(threads);
      if (wide_ ? enter<std::int64_t>(ids, count, valid, threads, block)
                : enter<std::int32_t>(ids, count, valid, threads, block)) {
        return;
      }
    }
  }

 private:
  void clear(int threads) {
    constexpr std::size_t kChunk = std::size_t{4} << 20;
    parallel_for(threads, static_cast<std::int64_t>((entries_.bytes() + kChunk - 1) / kChunk), [&](std::int64_t i) {
      const std::size_t start = static_cast<std::size_t>(i) * kChunk;
      std::memset(entries_.data() + start, 0xFF, std::min(kChunk, entries_.bytes() - start));
    });
  }

  // Slots that a search passes where ids are hashed evenly: hardly ever more than a few dozen of a table half full.
  static constexpr std::int64_t kFewPassed = 64;
  static constexpr std::int64_t kMostPassed = 4096;
  static constexpr std::int64_t kMostGrowth = 16;

  [[noreturn]] static void refuse_uneven() {
    throw Error(ErrorKind::kFormat,
                "expected ids whose hashes differ, received many that are hashed alike: they were chosen for that", {},
                "number the nodes anew");
  }

  template <typename Entry, typename Ids>
  bool enter(const Ids& ids, std::int64_t count, const std::uint8_t* valid, int threads, HashedBlock& block);

  IndexLayout layout_;
  bool wide_ = false;
  Buffer entries_;
};

// False when a partition would have no empty slot left. An id that occurs again after long searches for it is left out:
// the first one is found. Ids with hashes so alike that searches are longer still were chosen for that.
template <typename Entry, typename Ids>
bool IdIndex::enter(const Ids& ids, std::int64_t count, const std::uint8_t* valid, int threads, HashedBlock& block) {
  Entry* const slots = entries<Entry>();
  const std::int64_t slots_per_partition = layout_.slots_per_partition;
  std::vector<std::int64_t> used(static_cast<std::size_t>(layout_.partitions()), 0);
  std::atomic<bool> uneven = false;
  for (std::int64_t first = 0; first < count; first += HashedBlock::kRows) {
    block.take(ids, first, std::min(HashedBlock::kRows, count - first), layout_,
               [&](std::int64_t row) { return valid == nullptr || valid[first + row] != 0; });
    parallel_for(threads, block.owners(layout_), [&](std::int64_t owner) {
      constexpr std::size_t kAhead = 16;
      const std::vector<std::uint32_t>& rows = block.rows_of(owner);
      for (std::size_t k = 0; k < rows.size(); ++k) {
        if (k + kAhead < rows.size()) {
          prefetch_write(slots + layout_.first_slot_of(block.hash(rows[k + kAhead])));
        }
        const std::uint64_t hash = block.hash(rows[k]);
        const std::int64_t partition = layout_.partition_of(hash);
        std::int64_t& used_of_partition = used[static_cast<std::size_t>(partition)];
        if (used_of_partition + 1 >= slots_per_partition) {
          used_of_partition = slots_per_partition;
          return;  // seen again below
        }
        const std::int64_t row = first + rows[k];
        Entry* const of_partition = slots + partition * slots_per_partition;
        std::int64_t slot = layout_.start_slot_of(hash);
        std::int64_t passed = 0;
        bool is_repeated = false;
        while (of_partition[slot] != -1 && !is_repeated && passed <= kMostPassed) {
          is_repeated = ++passed > kFewPassed && is_same(ids[of_partition[slot]], ids[row]);
          slot = slot + 1 == slots_per_partition ? 0 : slot + 1;
        }
        if (passed > kMostPassed && !is_repeated) {
          uneven = true;
          return;
        }
        if (!is_repeated) {
          of_partition[slot] = static_cast<Entry>(row);
          ++used_of_partition;
        }
      }
    });
    if (uneven) {
      refuse_uneven();
    }
    if (*std::max_element(used.begin(), used.end()) >= slots_per_partition) {
      return false;
    }
  }
  return true;
}

}  // namespace graphbox
