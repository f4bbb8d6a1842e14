#include "graph/id_table.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "errors/error.h"
#include "parallel/parallel_for.h"

namespace graphbox {

IdTable::IdTable(IdKind kind, std::size_t memory_bytes, int threads)
    : kind_(kind), memory_bytes_(memory_bytes), threads_(std::max(threads, 1)), block_(threads_) {
  if (kind == IdKind::kInteger) {
    integers_ = GrowingArray<std::int64_t>(memory_bytes / 8 + 1);
  } else {
    offsets_ = GrowingArray<std::int64_t>(memory_bytes / 8 + 2);
    text_ = GrowingArray<char>(memory_bytes + 1);
    offsets_.append(0);
  }
  slots_.resize(HashedBlock::kRows);
}

std::size_t IdTable::held_bytes() const {
  return kWorkingBytes + IdIndex::bytes_of(index_.layout(), index_.is_wide()) +
         static_cast<std::size_t>(size_ + 1) * 8 + text_.size();
}

std::size_t IdTable::bytes_with(std::int64_t capacity, std::int64_t ids, std::size_t text_bytes) const {
  return kWorkingBytes + IdIndex::bytes_of(IndexLayout::of(capacity), capacity > kMostNarrowNodes) +
         static_cast<std::size_t>(ids + 1) * 8 + text_bytes;
}

// What an index is made for is a power of two, or, where that does not fit, as many ids as do: it follows from the ids
// that are held and the memory, not from the batches they came in, so that it can be told beforehand whether they fit.
std::int64_t IdTable::capacity_for(std::int64_t wanted, std::size_t text_bytes) const {
  const auto fits = [&](std::int64_t capacity) {
    // Ids that follow are taken to be as long as those before them.
    const double text = static_cast<double>(text_bytes) * static_cast<double>(capacity) /
                        static_cast<double>(std::max<std::int64_t>(wanted, 1));
    return bytes_with(capacity, capacity, static_cast<std::size_t>(text)) <= memory_bytes_;
  };
  auto beyond = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(wanted)));
  if (fits(beyond)) {
    return beyond;
  }
  if (!fits(wanted)) {
    return 0;
  }
  std::int64_t most = wanted;
  while (beyond - most > 1) {
    const std::int64_t middle = most + (beyond - most) / 2;
    (fits(middle) ? most : beyond) = middle;
  }
  return most;
}

bool IdTable::reserve(std::int64_t count, std::size_t text_bytes) {
  const std::int64_t wanted = size_ + count;
  const std::size_t text = text_.size() + text_bytes;
  if (wanted <= capacity_ && bytes_with(capacity_, wanted, text) <= memory_bytes_) {
    return true;
  }
  const std::int64_t capacity = capacity_for(wanted, text);
  // Once an index is as large as fits, it is rebuilt only for ids whose length has changed much.
  const bool was_most = capacity_ > 0 && !std::has_single_bit(static_cast<std::uint64_t>(capacity_));
  if (capacity < wanted || (was_most && capacity < size_ + size_ / 16)) {
    return false;
  }
  capacity_ = capacity;
  rebuild(IndexLayout::of(capacity), capacity > kMostNarrowNodes);
  return true;
}

IdBatch IdTable::ids() const {
  IdBatch batch;
  batch.kind = kind_;
  batch.size = size_;
  batch.integers = {integers_.data()};
  batch.strings = {offsets_.data(), text_.data(), static_cast<std::int64_t>(text_.size())};
  return batch;
}

void IdTable::rebuild(const IndexLayout& layout, bool wide) {
  const auto may_hold = [&](std::size_t bytes) {
    const std::size_t needed = bytes_with(0, size_, text_.size()) + bytes;
    if (needed > memory_bytes_ + kWorkingBytes) {
      throw Error(ErrorKind::kDoesNotFit,
                  "expected ids and their index within " + std::to_string(memory_bytes_) + " bytes, but so many of " +
                      "these ids have hash values in common that " + std::to_string(needed) + " bytes are needed",
                  {}, "give more memory");
    }
  };
  const auto build = [&](const auto& held) {
    index_.build(held, size_, nullptr, layout, wide, threads_, block_, may_hold);
  };
  with_ids(ids(), build);
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
  for (std::int64_t first = 0; first < count; first += HashedBlock::kRows) {
    const std::int64_t size = std::min(HashedBlock::kRows, count - first);
    const auto block_valid = [&](std::int64_t row) { return valid(first + row); };
    if (index_.is_wide()) {
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
    block_.take(asked, first, count, index_.layout(), valid);
    std::fill_n(found, count, -1);
    std::atomic<bool> full = false;
    parallel_for(threads_, block_.owners(index_.layout()), [&](std::int64_t owner) {
      if (!probe_new<Entry>(held, asked, first, block_.rows_of(owner), found)) {
        full = true;
      }
    });
    if (!full) {
      break;
    }
    // More ids share a partition than it has slots: all are made larger, and the block is begun again.
    IndexLayout larger = index_.layout();
    larger.slots_per_partition *= 2;
    rebuild(larger, index_.is_wide());
  }
  Entry* const entries = index_.entries<Entry>();
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
  Entry* const entries = index_.entries<Entry>();
  const IndexLayout& layout = index_.layout();
  const std::int64_t slots = layout.slots_per_partition;
  const auto start = [&](std::uint32_t row) { return layout.first_slot_of(block_.hash(row)); };
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
    const std::uint64_t hash = block_.hash(row);
    const std::int64_t base = layout.partition_of(hash) * slots;
    const typename Held::Value id = asked[first + row];
    for (std::int64_t slot = layout.start_slot_of(hash), probed = 1;; ++probed) {
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
  const auto search = [&](const auto& held, const auto& asked) {
    find_in_index(index_.data(), index_.is_wide(), index_.layout(), held, size_, asked, batch.size, found, threads_, {});
  };
  if (kind_ == IdKind::kInteger) {
    search(ids().integers, batch.integers);
  } else {
    search(ids().strings, batch.strings);
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
