// Maps the node indices of a batch to their positions in it.
//
// Two ways with one interface: an array with an entry for each node of the type (one random access, nothing to clear:
// entries carry the number of the batch that wrote them), and a hash table for types with more nodes than that is
// worth, or of unknown size.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

// Largest node type mapped by an array: 8 bytes a node, 128 MiB.
inline constexpr std::int64_t kLargestDirectMap = std::int64_t{1} << 24;

class DirectNodeMap {
 public:
  explicit DirectNodeMap(std::int64_t num_nodes)
      : entries_(static_cast<std::size_t>(num_nodes) * sizeof(std::uint64_t)), num_nodes_(num_nodes) {
    clear();
  }

  std::int64_t num_nodes() const { return num_nodes_; }
  std::size_t bytes() const { return entries_.bytes(); }

  // Forgets all nodes.
  void start() {
    if (++batch_ == 0) {
      clear();
      batch_ = 1;
    }
  }

  GRAPHBOX_INLINE void prefetch(std::int64_t node) const { graphbox::prefetch_write(entries() + node); }

  // The position of `node`, which becomes `next` if it had none.
  std::uint32_t find_or_insert(std::int64_t node, std::uint32_t next) {
    std::uint64_t& entry = entries()[node];
    const std::uint64_t found = entry;
    // Whether a node is new cannot be predicted, so nothing branches on it: the entry is written either way.
    const bool is_known = __builtin_expect_with_probability(found >> 32 == batch_, 1, 0.5) != 0;
    const std::uint32_t position = is_known ? static_cast<std::uint32_t>(found) : next;
    entry = std::uint64_t{batch_} << 32 | position;
    return position;
  }

 private:
  // The batch that wrote an entry in its high half, the position in the low one.
  std::uint64_t* entries() const { return reinterpret_cast<std::uint64_t*>(entries_.data()); }
  void clear() {
    if (num_nodes_ > 0) {
      std::memset(entries_.data(), 0, static_cast<std::size_t>(num_nodes_) * sizeof(std::uint64_t));
    }
  }

  Buffer entries_;
  std::int64_t num_nodes_;
  std::uint32_t batch_ = 0;
};

class HashNodeMap {
 public:
  HashNodeMap() { allocate(1024); }

  std::size_t bytes() const { return entries_.bytes(); }

  void start() {
    used_ = 0;
    if (++batch_ == 0) {
      std::memset(entries_.data(), 0, entries_.bytes());
      batch_ = 1;
    }
  }

  GRAPHBOX_INLINE void prefetch(std::int64_t node) const { graphbox::prefetch_write(entries() + home(node)); }

  std::uint32_t find_or_insert(std::int64_t node, std::uint32_t next) {
    for (std::uint64_t slot = home(node);; slot = (slot + 1) & mask_) {
      Entry& entry = entries()[slot];
      if (entry.batch != batch_) {
        entry = {node, batch_, next};
        if (++used_ * 2 > mask_) {
          grow();
        }
        return next;
      }
      if (entry.node == node) {
        return entry.position;
      }
    }
  }

 private:
  struct Entry {
    std::int64_t node;
    std::uint32_t batch;
    std::uint32_t position;
  };

  Entry* entries() const { return reinterpret_cast<Entry*>(entries_.data()); }
  std::uint64_t home(std::int64_t node) const {
    // Fibonacci hashing: node indices are ours and dense, nobody can choose them to collide.
    return static_cast<std::uint64_t>(node) * 0x9E3779B97F4A7C15ULL >> shift_;
  }

  void allocate(std::uint64_t capacity) {
    entries_ = Buffer(capacity * sizeof(Entry));
    std::memset(entries_.data(), 0, entries_.bytes());
    mask_ = capacity - 1;
    shift_ = 64 - std::countr_zero(capacity);
    used_ = 0;
  }

  void grow() {
    const Buffer old = std::move(entries_);
    const auto* old_entries = reinterpret_cast<const Entry*>(old.data());
    const std::uint64_t old_capacity = mask_ + 1;
    const std::uint32_t old_batch = batch_;
    entries_ = Buffer();
    allocate(old_capacity * 2);
    batch_ = 1;
    for (std::uint64_t i = 0; i < old_capacity; ++i) {
      if (old_entries[i].batch == old_batch) {
        find_or_insert(old_entries[i].node, old_entries[i].position);
      }
    }
  }

  Buffer entries_;
  std::uint64_t mask_ = 0;
  std::uint64_t used_ = 0;
  int shift_ = 0;
  std::uint32_t batch_ = 0;
};

// Maps between uses: making one touches all its memory, which costs as much as sampling a batch. Thread safe.
template <typename Map>
class NodeMapPool {
 public:
  static NodeMapPool& shared() {
    static auto* pool = new NodeMapPool();  // never destroyed, as BufferPool
    return *pool;
  }

  // A started map for `num_nodes` nodes (ignored by hash maps).
  std::unique_ptr<Map> take(std::int64_t num_nodes) {
    std::unique_ptr<Map> map;
    {
      const std::lock_guard lock(mutex_);
      for (auto candidate = free_.begin(); candidate != free_.end(); ++candidate) {
        if (fits(**candidate, num_nodes)) {
          map = std::move(*candidate);
          free_.erase(candidate);
          held_bytes_ -= map->bytes();
          break;
        }
      }
    }
    if (!map) {
      if constexpr (std::is_same_v<Map, DirectNodeMap>) {
        map = std::make_unique<Map>(num_nodes);
      } else {
        map = std::make_unique<Map>();
      }
    }
    map->start();
    return map;
  }

  void give(std::unique_ptr<Map> map) noexcept {
    if (map->bytes() > kLimitBytes) {
      return;
    }
    try {
      const std::lock_guard lock(mutex_);
      while (!free_.empty() && (free_.size() >= kMostMaps || held_bytes_ + map->bytes() > kLimitBytes)) {
        held_bytes_ -= free_.front()->bytes();
        free_.erase(free_.begin());
      }
      held_bytes_ += map->bytes();
      free_.push_back(std::move(map));
    } catch (const std::bad_alloc&) {
      // No memory to remember the map in: it is freed instead.
    }
  }

  std::size_t held_bytes() const {
    const std::lock_guard lock(mutex_);
    return held_bytes_;
  }

  void release() {
    const std::lock_guard lock(mutex_);
    free_.clear();
    held_bytes_ = 0;
  }

 private:
  static constexpr std::size_t kMostMaps = 64;
  static constexpr std::size_t kLimitBytes = std::size_t{256} << 20;

  static bool fits(const Map& map, std::int64_t num_nodes) {
    if constexpr (std::is_same_v<Map, DirectNodeMap>) {
      return map.num_nodes() == num_nodes;
    } else {
      return map.bytes() > 0;
    }
  }

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Map>> free_;
  std::size_t held_bytes_ = 0;
};

}  // namespace graphbox
