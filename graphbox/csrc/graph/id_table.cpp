#include "graph/id_table.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "errors/error.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kHashChunk = std::int64_t{1} << 13;
constexpr std::int64_t kFindChunk = std::int64_t{1} << 13;

std::int64_t chunks_of(std::int64_t count, std::int64_t chunk) { return (count + chunk - 1) / chunk; }

std::size_t index_bytes(const IndexLayout& layout, bool wide) {
  const std::size_t bytes = static_cast<std::size_t>(layout.slots()) * (wide ? 8 : 4);
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

}  // namespace

IdTable::IdTable(IdKind kind, std::size_t memory_bytes, int threads)
    : kind_(kind), memory_bytes_(memory_bytes), threads_(std::max(threads, 1)) {
  if (kind == IdKind::kInteger) {
    integers_ = GrowingArray<std::int64_t>(memory_bytes / 8 + 1);
  } else {
    offsets_ = GrowingArray<std::int64_t>(memory_bytes / 8 + 2);
    text_ = GrowingArray<char>(memory_bytes + 1);
    offsets_.append(0);
  }
  hashes_.resize(kBlock);
  slots_.resize(kBlock);
  rows_.resize(static_cast<std::size_t>(threads_));
}

std::size_t IdTable::held_bytes() const {
  return kWorkingBytes + index_bytes(layout_, wide_) + static_cast<std::size_t>(size_ + 1) * 8 + text_.size();
}

std::size_t IdTable::bytes_with(std::int64_t capacity, std::int64_t ids, std::size_t text_bytes) const {
  return kWorkingBytes + index_bytes(IndexLayout::of(capacity), capacity > kMostNarrowNodes) +
         static_cast<std::size_t>(ids + 1) * 8 + text_bytes;
}

bool IdTable::reserve(std::int64_t count, std::size_t text_bytes) {
  const std::int64_t wanted = size_ + count;
  const std::size_t text = text_.size() + text_bytes;
  if (wanted <= capacity_) {
    return bytes_with(capacity_, wanted, text) <= memory_bytes_;
  }
  for (const std::int64_t capacity : {std::max(2 * capacity_, wanted), std::max(wanted, size_ + size_ / 4), wanted}) {
    if (bytes_with(capacity, wanted, text) <= memory_bytes_) {
      capacity_ = capacity;
      rebuild(IndexLayout::of(capacity), capacity > kMostNarrowNodes);
      return true;
    }
  }
  return false;
}

IdBatch IdTable::ids() const {
  IdBatch batch;
  batch.kind = kind_;
  batch.size = size_;
  batch.integers = {integers_.data()};
  batch.strings = {offsets_.data(), text_.data(), static_cast<std::int64_t>(text_.size())};
  return batch;
}

// Threads each own a range of partitions, where no other thread writes.
int IdTable::owners() const { return static_cast<int>(std::min<std::int64_t>(threads_, layout_.partitions())); }

template <typename Ids>
void IdTable::hash_block(const Ids& ids, std::int64_t first, std::int64_t count) {
  parallel_for(threads_, chunks_of(count, kHashChunk), [&](std::int64_t chunk) {
    const std::int64_t end = std::min(count, (chunk + 1) * kHashChunk);
    for (std::int64_t i = chunk * kHashChunk; i < end; ++i) {
      hashes_[static_cast<std::size_t>(i)] = ids.hash(first + i);
    }
  });
}

// Deals the rows of a block out to the owners of their partitions, in order.
template <typename Valid>
void IdTable::share_rows(std::int64_t count, const Valid& valid) {
  const int owners = this->owners();
  parallel_for(threads_, owners, [&](std::int64_t owner) {
    std::vector<std::uint32_t>& rows = rows_[static_cast<std::size_t>(owner)];
    rows.resize(static_cast<std::size_t>(count));
    std::uint32_t* next = rows.data();
    for (std::int64_t i = 0; i < count; ++i) {
      *next = static_cast<std::uint32_t>(i);
      const std::int64_t partition = layout_.partition_of(hashes_[static_cast<std::size_t>(i)]);
      next += (partition * owners >> layout_.partition_bits) == owner && valid(i) ? 1 : 0;
    }
    rows.resize(static_cast<std::size_t>(next - rows.data()));
  });
}

// Makes a new index of all ids. Nothing of the old one is needed for it, so it goes first.
void IdTable::rebuild(const IndexLayout& layout, bool wide) {
  wide_ = wide;
  layout_ = layout;
  for (;; layout_.slots_per_partition *= 2) {
    entries_ = Buffer();
    if (layout_.slots_per_partition > layout.slots_per_partition && held_bytes() > memory_bytes_) {
      throw Error(ErrorKind::kDoesNotFit,
                  "expected an index of " + std::to_string(size_) + " ids within " + std::to_string(memory_bytes_) +
                      " bytes, but these ids have too many hash values in common: " + std::to_string(held_bytes()) +
                      " bytes are needed",
                  {}, "give more memory");
    }
    entries_ = Buffer(static_cast<std::size_t>(layout_.slots()) * (wide_ ? 8 : 4));
    constexpr std::size_t kChunk = std::size_t{4} << 20;
    parallel_for(threads_, static_cast<std::int64_t>((entries_.bytes() + kChunk - 1) / kChunk), [&](std::int64_t i) {
      const std::size_t start = static_cast<std::size_t>(i) * kChunk;
      std::memset(entries_.data() + start, 0xFF, std::min(kChunk, entries_.bytes() - start));
    });
    const bool placed = with_ids(ids(), [&](const auto& held) {
      return wide_ ? place_all<std::int64_t>(held) : place_all<std::int32_t>(held);
    });
    if (placed) {
      return;
    }
  }
}

// False when a partition would have no empty slot left.
template <typename Entry, typename Ids>
bool IdTable::place_all(const Ids& ids) {
  auto* const entries = reinterpret_cast<Entry*>(entries_.data());
  const std::int64_t slots = layout_.slots_per_partition;
  std::vector<std::int64_t> used(static_cast<std::size_t>(layout_.partitions()), 0);
  for (std::int64_t first = 0; first < size_; first += kBlock) {
    const std::int64_t count = std::min(kBlock, size_ - first);
    hash_block(ids, first, count);
    share_rows(count, [](std::int64_t) { return true; });
    parallel_for(threads_, owners(), [&](std::int64_t owner) {
      constexpr std::size_t kAhead = 16;
      const std::vector<std::uint32_t>& rows = rows_[static_cast<std::size_t>(owner)];
      for (std::size_t k = 0; k < rows.size(); ++k) {
        if (k + kAhead < rows.size()) {
          const std::uint64_t ahead = hashes_[rows[k + kAhead]];
          prefetch_write(entries + layout_.partition_of(ahead) * slots + layout_.start_slot_of(ahead));
        }
        const std::uint64_t hash = hashes_[rows[k]];
        const std::int64_t partition = layout_.partition_of(hash);
        if (++used[static_cast<std::size_t>(partition)] >= slots) {
          return;  // seen again below
        }
        std::int64_t slot = layout_.start_slot_of(hash);
        while (entries[partition * slots + slot] != -1) {
          slot = slot + 1 == slots ? 0 : slot + 1;
        }
        entries[partition * slots + slot] = static_cast<Entry>(first + rows[k]);
      }
    });
    if (*std::max_element(used.begin(), used.end()) >= slots) {
      return false;
    }
  }
  return true;
}

void IdTable::insert(const IdBatch& batch, const std::uint8_t* valid, std::int64_t* found) {
  const auto is_valid = [valid](std::int64_t row) { return valid == nullptr || valid[row] != 0; };
  if (kind_ == IdKind::kInteger) {
    insert_rows(ids().integers, batch.integers, batch.size, is_valid, found);
  } else {
    insert_rows(ids().strings, batch.strings, batch.size, is_valid, found);
  }
}

void IdTable::insert_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid,
                           std::int64_t* found) {
  const auto is_valid = [valid](std::int64_t end) { return valid == nullptr || valid[end >> 1] != 0; };
  if (kind_ == IdKind::kInteger) {
    insert_rows(ids().integers, PairedIds<IntegerIds>{sources.integers, targets.integers}, 2 * sources.size, is_valid,
                found);
  } else {
    insert_rows(ids().strings, PairedIds<StringIds>{sources.strings, targets.strings}, 2 * sources.size, is_valid,
                found);
  }
}

template <typename Held, typename Asked, typename Valid>
void IdTable::insert_rows(const Held& held, const Asked& asked, std::int64_t count, const Valid& valid,
                          std::int64_t* found) {
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t size = std::min(kBlock, count - first);
    const auto block_valid = [&](std::int64_t row) { return valid(first + row); };
    if (wide_) {
      insert_block<std::int64_t>(held, asked, block_valid, first, size, found + first);
    } else {
      insert_block<std::int32_t>(held, asked, block_valid, first, size, found + first);
    }
  }
}

// Numbers depend on the order of rows, slots on the order within a partition. So the owners of the partitions mark the
// rows whose id is new and point repetitions within the block to the first row; then one thread numbers them in order.
template <typename Entry, typename Held, typename Asked, typename Valid>
void IdTable::insert_block(const Held& held, const Asked& asked, const Valid& valid, std::int64_t first,
                           std::int64_t count, std::int64_t* found) {
  for (;;) {
    hash_block(asked, first, count);
    share_rows(count, valid);
    std::fill_n(found, count, -1);
    std::atomic<bool> full = false;
    parallel_for(threads_, owners(), [&](std::int64_t owner) {
      if (!probe_new<Entry>(held, asked, first, rows_[static_cast<std::size_t>(owner)], found)) {
        full = true;
      }
    });
    if (!full) {
      break;
    }
    // More ids share a partition than it has slots: all are made larger, and the block is begun again.
    IndexLayout larger = layout_;
    larger.slots_per_partition *= 2;
    rebuild(larger, wide_);
  }
  auto* const entries = reinterpret_cast<Entry*>(entries_.data());
  for (std::int64_t i = 0; i < count; ++i) {
    if (found[i] < -1) {
      const std::int64_t row = -2 - found[i];
      if (row == i) {
        found[i] = size_++;
        entries[slots_[static_cast<std::size_t>(i)]] = static_cast<Entry>(found[i]);
        take(asked[first + i]);
      } else {
        found[i] = found[row];
      }
    }
  }
}

// An entry below -1 stands for row -2 - entry of the block. `found` gets entries of either sort. False when a partition
// is full.
template <typename Entry, typename Held, typename Asked>
bool IdTable::probe_new(const Held& held, const Asked& asked, std::int64_t first, const std::vector<std::uint32_t>& rows,
                        std::int64_t* found) {
  constexpr std::size_t kAhead = 12;
  auto* const entries = reinterpret_cast<Entry*>(entries_.data());
  const std::int64_t slots = layout_.slots_per_partition;
  const auto start = [&](std::uint32_t row) {
    const std::uint64_t hash = hashes_[row];
    return layout_.partition_of(hash) * slots + layout_.start_slot_of(hash);
  };
  for (std::size_t k = 0; k < rows.size() + 3 * kAhead; ++k) {
    if (k < rows.size()) {
      prefetch_write(entries + start(rows[k]));
    }
    if (k >= kAhead && k - kAhead < rows.size()) {
      if (const Entry entry = entries[start(rows[k - kAhead])]; entry >= 0) {
        held.prefetch_place(entry);
      }
    }
    if (k >= 2 * kAhead && k - 2 * kAhead < rows.size()) {
      if (const Entry entry = entries[start(rows[k - 2 * kAhead])]; entry >= 0) {
        held.prefetch_value(entry);
      }
    }
    if (k < 3 * kAhead) {
      continue;
    }
    const std::uint32_t row = rows[k - 3 * kAhead];
    const std::uint64_t hash = hashes_[row];
    const std::int64_t base = layout_.partition_of(hash) * slots;
    const typename Held::Value id = asked[first + row];
    for (std::int64_t slot = layout_.start_slot_of(hash), probed = 1;; ++probed) {
      Entry& entry = entries[base + slot];
      if (entry == -1) {
        entry = static_cast<Entry>(-2 - static_cast<std::int64_t>(row));
        slots_[row] = base + slot;
        found[row] = entry;
        break;
      }
      if ((entry >= 0 ? held[entry] : asked[first - 2 - static_cast<std::int64_t>(entry)]) == id) {
        found[row] = entry;
        break;
      }
      if (probed == slots) {
        return false;
      }
      slot = slot + 1 == slots ? 0 : slot + 1;
    }
  }
  return true;
}

void IdTable::take(std::string_view id) {
  text_.append(id.data(), id.size());
  offsets_.append(static_cast<std::int64_t>(text_.size()));
}

void IdTable::find(const IdBatch& batch, const std::uint8_t* valid, std::int64_t* found) const {
  if (size_ == 0) {
    std::fill_n(found, batch.size, -1);
    return;
  }
  const auto search = [&](const auto& held, const auto* entries, const auto& asked) {
    const IndexView view(entries, layout_, held, size_);
    parallel_for(threads_, chunks_of(batch.size, kFindChunk), [&](std::int64_t chunk) {
      const std::int64_t first = chunk * kFindChunk;
      view.find(asked, first, std::min(kFindChunk, batch.size - first), found + first);
    });
  };
  const auto search_entries = [&](const auto& held, const auto& asked) {
    if (wide_) {
      search(held, reinterpret_cast<const std::int64_t*>(entries_.data()), asked);
    } else {
      search(held, reinterpret_cast<const std::int32_t*>(entries_.data()), asked);
    }
  };
  if (kind_ == IdKind::kInteger) {
    search_entries(ids().integers, batch.integers);
  } else {
    search_entries(ids().strings, batch.strings);
  }
  for (std::int64_t i = 0; valid != nullptr && i < batch.size; ++i) {
    found[i] = valid[i] != 0 ? found[i] : -1;
  }
}

void IdTable::settle() {
  capacity_ = size_;
  rebuild(IndexLayout::of(size_), size_ > kMostNarrowNodes);
}

}  // namespace graphbox
