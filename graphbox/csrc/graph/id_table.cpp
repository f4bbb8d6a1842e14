#include "graph/id_table.h"

#include <algorithm>
#include <bit>
#include <string>
#include <type_traits>

#include "errors/error.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kBlockRows = std::int64_t{1} << 16;
constexpr std::int64_t kChunkRows = std::int64_t{1} << 13;
constexpr std::int64_t kFewestIds = std::int64_t{1} << 12;

// The smallest power of two, or three quarters of one, that is at least `ids`.
std::int64_t regular_capacity(std::int64_t ids) {
  const auto power = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(ids, kFewestIds))));
  return power / 4 * 3 >= std::max(ids, kFewestIds) ? power / 4 * 3 : power;
}

// Whether two ids are the same when their hashes are: of integers the hash is a permutation.
template <typename Held>
inline constexpr bool kHashIsId = std::is_same_v<Held, IntegerIds>;

}  // namespace

IdTable::IdTable(IdKind kind, std::size_t memory_bytes, int threads)
    : kind_(kind), memory_bytes_(memory_bytes), threads_(bounded_threads(threads)), buckets_(memory_bytes) {
  if (kind == IdKind::kInteger) {
    integers_ = GrowingArray<std::int64_t>(memory_bytes / 8 + 1);
  } else {
    offsets_ = GrowingArray<std::int64_t>(memory_bytes / 8 + 2);
    text_ = GrowingArray<char>(memory_bytes + 1);
    offsets_.append(0);
  }
  new_rows_.resize(static_cast<std::size_t>(kBlockRows / kChunkRows));
}

std::size_t IdTable::bytes_with(std::int64_t capacity, std::int64_t ids, std::size_t text_bytes) {
  return kWorkingBytes + IdBuckets::bytes_of(capacity) + static_cast<std::size_t>(ids + 1) * 8 + text_bytes;
}

// Capacity of the buckets: a power of two, or three quarters of one, or, where that does not fit, as many ids as do. It
// follows from the ids that are held and the memory, not from the batches they came in, so that it is known beforehand
// whether they fit. 0 when `wanted` ids do not.
std::int64_t IdTable::capacity_for(std::int64_t wanted, std::size_t text_bytes) const {
  const auto fits = [&](std::int64_t capacity) {
    // Ids that follow are taken to be as long as those before them.
    const double text = static_cast<double>(text_bytes) * static_cast<double>(capacity) /
                        static_cast<double>(std::max<std::int64_t>(wanted, 1));
    return capacity <= IdBuckets::kMostNumbers &&
           bytes_with(capacity, capacity, static_cast<std::size_t>(text)) <= memory_bytes_;
  };
  const std::int64_t next = regular_capacity(wanted);
  if (fits(next)) {
    return next;
  }
  if (!fits(wanted)) {
    return 0;
  }
  std::int64_t most = wanted;
  for (std::int64_t beyond = next; beyond - most > 1;) {
    const std::int64_t middle = most + (beyond - most) / 2;
    (fits(middle) ? most : beyond) = middle;
  }
  return most;
}

bool IdTable::reserve(std::int64_t count, std::size_t text_bytes) {
  const std::int64_t wanted = size_ + count;
  const std::size_t text = text_.size() + text_bytes;
  if (wanted > capacity_ || bytes_with(capacity_, wanted, text) > memory_bytes_) {
    const std::int64_t capacity = capacity_for(wanted, text);
    // Once a table is as large as fits, it grows only for ids whose length has changed much.
    const bool was_most = capacity_ != regular_capacity(capacity_);
    if (capacity == 0 || (was_most && capacity < size_ + size_ / 16)) {
      return false;
    }
  }
  reserved_ = wanted;
  return true;
}

// Buckets come with the ids that need them: a table that is no larger than it must be stays in the cache.
void IdTable::grow() {
  capacity_ = capacity_for(size_ + 1, text_.size());
  capacity_ = capacity_ > size_ ? capacity_ : reserved_;
  buckets_.grow(capacity_);
}

IdBatch IdTable::ids() const {
  IdBatch batch;
  batch.kind = kind_;
  batch.size = size_;
  batch.integers = {integers_.data()};
  batch.strings = {offsets_.data(), text_.data(), static_cast<std::int64_t>(text_.size())};
  return batch;
}

void IdTable::insert(const IdBatch& batch, const std::uint8_t* valid, std::int64_t* found) {
  const auto is_valid = [valid](std::int64_t row) { return valid == nullptr || valid[row] != 0; };
  with_ids(batch, [&](const auto& asked) { insert_rows(asked, batch.size, is_valid, found); });
}

void IdTable::insert_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid,
                           std::int64_t* found) {
  const auto is_valid = [valid](std::int64_t end) { return valid == nullptr || valid[end >> 1] != 0; };
  if (kind_ == IdKind::kInteger) {
    insert_rows(PairedIds<IntegerIds>{sources.integers, targets.integers}, 2 * sources.size, is_valid, found);
  } else {
    insert_rows(PairedIds<StringIds>{sources.strings, targets.strings}, 2 * sources.size, is_valid, found);
  }
}

template <typename Asked, typename Valid>
void IdTable::insert_rows(const Asked& asked, std::int64_t count, const Valid& valid, std::int64_t* found) {
  if (capacity_ == 0) {
    grow();
  }
  for (std::int64_t first = 0; first < count; first += kBlockRows) {
    const std::int64_t size = std::min(kBlockRows, count - first);
    if constexpr (std::is_same_v<typename Asked::Value, std::int64_t>) {
      insert_block(ids().integers, asked, first, size, valid, found);
    } else {
      insert_block(ids().strings, asked, first, size, valid, found);
    }
  }
}

// All threads look the rows up, then one numbers those that were not there in their order.
template <typename Held, typename Asked, typename Valid>
void IdTable::insert_block(const Held& held, const Asked& asked, std::int64_t first, std::int64_t count,
                           const Valid& valid, std::int64_t* found) {
  const std::int64_t chunks = (count + kChunkRows - 1) / kChunkRows;
  parallel_for(threads_, chunks, [&](std::int64_t chunk) {
    std::vector<NewRow>& new_rows = new_rows_[static_cast<std::size_t>(chunk)];
    new_rows.clear();
    const std::int64_t start = first + chunk * kChunkRows;
    search(held, asked, start, std::min(first + count, start + kChunkRows), found,
           [&](std::int64_t row, std::uint64_t hash) {
             if (valid(row)) {
               new_rows.push_back({hash, row});
             }
           });
    for (std::int64_t row = start; row < std::min(first + count, start + kChunkRows); ++row) {
      found[row] = valid(row) ? found[row] : -1;
    }
  });
  constexpr std::size_t kAhead = 8;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::vector<NewRow>& new_rows = new_rows_[static_cast<std::size_t>(chunk)];
    for (std::size_t i = 0; i < new_rows.size(); ++i) {
      if (i + kAhead < new_rows.size()) {
        buckets_.prefetch_for(new_rows[i + kAhead].hash);
      }
      if (size_ == capacity_) {
        grow();
      }
      const NewRow& next = new_rows[i];
      const typename Held::Value id = asked[next.row];
      found[next.row] = buckets_.find_or_insert(
          next.hash, size_, [&](std::int64_t number) { return kHashIsId<Held> || is_same(held[number], id); });
      if (found[next.row] == size_) {
        take(id);
        ++size_;
      }
    }
  }
}

void IdTable::take(std::string_view id) {
  text_.append(id.data(), id.size());
  offsets_.append(static_cast<std::int64_t>(text_.size()));
}

// Writes the number of each row to `found`, and calls `missing(row, hash)` for those that have none. Memory is asked for
// ahead: the bucket, and of strings then the place of the text, and the text.
template <typename Held, typename Asked, typename Missing>
void IdTable::search(const Held& held, const Asked& asked, std::int64_t first, std::int64_t end, std::int64_t* found,
                     const Missing& missing) const {
  constexpr std::int64_t kAhead = 16;  // of each step before the next
  constexpr std::int64_t kSteps = kHashIsId<Held> ? 1 : 3;
  constexpr std::int64_t kRing = 64;
  std::uint64_t hashes[kRing];
  const auto any = [](std::int64_t) { return true; };
  for (std::int64_t step = first; step < end + kSteps * kAhead; ++step) {
    if (step < end) {
      hashes[step % kRing] = asked.hash(step);
      buckets_.prefetch_for(hashes[step % kRing]);
    }
    if constexpr (!kHashIsId<Held>) {
      if (const std::int64_t row = step - kAhead; row >= first && row < end) {
        found[row] = buckets_.find(hashes[row % kRing], any);
        if (found[row] >= 0) {
          held.prefetch_place(found[row]);
        }
      }
      if (const std::int64_t row = step - 2 * kAhead; row >= first && row < end && found[row] >= 0) {
        held.prefetch_value(found[row]);
      }
    }
    const std::int64_t row = step - kSteps * kAhead;
    if (row < first) {
      continue;
    }
    const std::uint64_t hash = hashes[row % kRing];
    if constexpr (kHashIsId<Held>) {
      found[row] = buckets_.find(hash, any);
    } else if (found[row] >= 0 && !is_same(held[found[row]], asked[row])) {  // two ids with one hash
      found[row] = buckets_.find(hash, [&](std::int64_t number) { return is_same(held[number], asked[row]); });
    }
    if (found[row] < 0) {
      missing(row, hash);
    }
  }
}

void IdTable::find(const IdBatch& batch, const std::uint8_t* valid, std::int64_t* found) const {
  if (size_ == 0) {
    std::fill_n(found, batch.size, -1);
    return;
  }
  if (capacity_ == 0) {
    throw Error(ErrorKind::kUsage, "expected ids to be looked up before they are written, received some after");
  }
  parallel_for(threads_, (batch.size + kChunkRows - 1) / kChunkRows, [&](std::int64_t chunk) {
    const std::int64_t start = chunk * kChunkRows;
    const std::int64_t end = std::min(batch.size, start + kChunkRows);
    const auto ignore = [](std::int64_t, std::uint64_t) {};
    if (kind_ == IdKind::kInteger) {
      search(ids().integers, batch.integers, start, end, found, ignore);
    } else {
      search(ids().strings, batch.strings, start, end, found, ignore);
    }
    for (std::int64_t row = start; valid != nullptr && row < end; ++row) {
      found[row] = valid[row] != 0 ? found[row] : -1;
    }
  });
}

IdIndex IdTable::into_index() {
  buckets_ = IdBuckets();
  capacity_ = 0;
  const auto may_hold = [&](std::size_t bytes) {
    const std::size_t needed = bytes_with(0, size_, text_.size()) + bytes;
    if (needed > memory_bytes_ + kWorkingBytes) {
      throw Error(ErrorKind::kDoesNotFit,
                  "expected ids and their index within " + std::to_string(memory_bytes_) + " bytes, but so many of " +
                      "these ids have hash values in common that " + std::to_string(needed) + " bytes are needed",
                  {}, "give more memory");
    }
  };
  IdIndex index;
  HashedBlock block(threads_);
  with_ids(ids(), [&](const auto& held) {
    index.build(held, size_, nullptr, IndexLayout::of(size_), size_ > kMostNarrowNodes, threads_, block, may_hold);
  });
  return index;
}

}  // namespace graphbox
