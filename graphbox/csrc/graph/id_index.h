// The hash index of original ids: where it looks for an id, and lookups through it. Its layout is part of the format of
// graphs (docs/formats/graph.md, Ids): the same table is built in memory, written to disk and read from a mapped file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "errors/error.h"
#include "graph/ids_view.h"
#include "parallel/parallel_for.h"
#include "portability/cpu.h"

namespace graphbox {

inline constexpr std::int64_t kNodesPerPartition = std::int64_t{1} << 16;
inline constexpr std::int64_t kMostNarrowNodes = std::int64_t{1} << 31;

// Where the ids of `num_nodes` nodes have their slots: a power of two of partitions by the highest bits of the hash, of
// equal size, about half full. A search goes up from the start slot and wraps around inside the partition.
struct IndexLayout {
  int partition_bits = 0;
  std::int64_t slots_per_partition = 2;

  // The layout of that many nodes, unless the ids are so unevenly hashed that a partition has no empty slot: then the
  // partitions are made twice as large until each has one.
  static IndexLayout of(std::int64_t num_nodes) {
    IndexLayout layout;
    while (num_nodes >> layout.partition_bits > kNodesPerPartition) {
      ++layout.partition_bits;
    }
    const std::int64_t partitions = std::int64_t{1} << layout.partition_bits;
    layout.slots_per_partition = 2 * std::max<std::int64_t>(1, (num_nodes + partitions - 1) / partitions);
    return layout;
  }

  // The layout of an index on disk, told by its length.
  static IndexLayout of_file(std::int64_t num_nodes, std::int64_t num_slots, const std::string& name) {
    IndexLayout layout = of(num_nodes);
    const std::int64_t slots = layout.slots_per_partition;
    layout.slots_per_partition = num_slots >> layout.partition_bits;
    if (num_slots != layout.slots() || layout.slots_per_partition < slots ||
        layout.slots_per_partition > std::int64_t{1} << 31) {
      throw Error(ErrorKind::kFormat,
                  "expected an index of " + std::to_string(num_nodes) + " ids, received one of " +
                      std::to_string(num_slots) + " slots",
                  name, "import the graph again");
    }
    return layout;
  }

  std::int64_t partitions() const { return std::int64_t{1} << partition_bits; }
  std::int64_t slots() const { return slots_per_partition << partition_bits; }
  std::int64_t partition_of(std::uint64_t hash) const {
    return partition_bits == 0 ? 0 : static_cast<std::int64_t>(hash >> (64 - partition_bits));
  }
  // Within the partition.
  std::int64_t start_slot_of(std::uint64_t hash) const {
    return static_cast<std::int64_t>((hash & 0xFFFFFFFFU) * static_cast<std::uint64_t>(slots_per_partition) >> 32);
  }
  // Of the whole index.
  std::int64_t first_slot_of(std::uint64_t hash) const {
    return partition_of(hash) * slots_per_partition + start_slot_of(hash);
  }
  bool operator==(const IndexLayout&) const = default;
};

// An index over ids that others hold. Entry is int32, or int64 from more than 2^31 nodes on; -1 is an empty slot.
template <typename Entry, typename Ids>
class IndexView {
 public:
  // `name` is the file that messages name when an entry is no node.
  IndexView(const Entry* entries, const IndexLayout& layout, Ids ids, std::int64_t num_nodes, std::string name = {})
      : entries_(entries), layout_(layout), ids_(ids), num_nodes_(num_nodes), name_(std::move(name)) {}

  // Writes the index of each asked id, -1 where it is none, to `found`. Memory is asked for ahead in three steps.
  template <typename Asked>
  void find(const Asked& asked, std::int64_t first, std::int64_t count, std::int64_t* found) const {
    constexpr std::int64_t kAhead = 16;  // of each step before the next
    constexpr std::int64_t kRing = 64;
    std::uint64_t hashes[kRing];
    std::int64_t entries[kRing];
    for (std::int64_t step = 0; step < count + 3 * kAhead; ++step) {
      if (step < count) {
        const std::uint64_t hash = asked.hash(first + step);
        hashes[step % kRing] = hash;
        prefetch(entries_ + layout_.first_slot_of(hash));
      }
      if (const std::int64_t i = step - kAhead; i >= 0 && i < count) {
        const std::int64_t entry = entries_[layout_.first_slot_of(hashes[i % kRing])];
        entries[i % kRing] = entry;
        if (entry >= 0) {
          ids_.prefetch_place(entry);
        }
      }
      if (const std::int64_t i = step - 2 * kAhead; i >= 0 && i < count) {
        const std::int64_t entry = entries[i % kRing];
        if (entry >= 0 && entry < num_nodes_) {
          ids_.prefetch_value(entry);
        }
      }
      if (const std::int64_t i = step - 3 * kAhead; i >= 0) {
        found[i] = search(asked[first + i], hashes[i % kRing]);
      }
    }
  }

 private:
  std::int64_t search(const typename Ids::Value& id, std::uint64_t hash) const {
    const Entry* const partition = entries_ + layout_.partition_of(hash) * layout_.slots_per_partition;
    std::int64_t slot = layout_.start_slot_of(hash);
    for (std::int64_t probed = 0; probed < layout_.slots_per_partition; ++probed) {
      const std::int64_t entry = partition[slot];
      if (entry == -1) {
        return -1;
      }
      if (entry < 0 || entry >= num_nodes_ || !ids_.holds(entry)) {
        damaged(entry);
      }
      if (is_same(ids_[entry], id)) {
        return entry;
      }
      slot = slot + 1 == layout_.slots_per_partition ? 0 : slot + 1;
    }
    return -1;
  }

  [[noreturn]] void damaged(std::int64_t entry) const {
    throw Error(ErrorKind::kFormat,
                "expected an index of " + std::to_string(num_nodes_) + " ids, found entry " + std::to_string(entry) +
                    " in it: the file is damaged",
                name_, "import the graph again");
  }

  const Entry* entries_;
  IndexLayout layout_;
  Ids ids_;
  std::int64_t num_nodes_;
  std::string name_;
};

// The same by several threads, over entries of either width.
template <typename Ids, typename Asked>
void find_in_index(const std::byte* entries, bool wide, const IndexLayout& layout, const Ids& ids,
                   std::int64_t num_nodes, const Asked& asked, std::int64_t count, std::int64_t* found, int threads,
                   const std::string& name) {
  constexpr std::int64_t kChunk = std::int64_t{1} << 13;
  const auto find = [&](const auto* of_type) {
    const IndexView view(of_type, layout, ids, num_nodes, name);
    parallel_for(threads, (count + kChunk - 1) / kChunk, [&](std::int64_t chunk) {
      const std::int64_t first = chunk * kChunk;
      view.find(asked, first, std::min(kChunk, count - first), found + first);
    });
  };
  if (wide) {
    find(reinterpret_cast<const std::int64_t*>(entries));
  } else {
    find(reinterpret_cast<const std::int32_t*>(entries));
  }
}

}  // namespace graphbox
