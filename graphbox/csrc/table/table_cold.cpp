// Rows on SSD come back to memory when they are looked up.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "table/batch.h"
#include "table/location.h"
#include "table/table.h"
#include "table/table_tier.h"
#include "table/take_in.h"

namespace graphbox {
namespace {

constexpr std::int64_t kIndexDistance = 32;  // keys between asking for a line of the index and reading it

std::uint64_t distinct_keys(const std::int64_t* keys, const std::vector<std::int64_t>& positions) {
  std::vector<std::int64_t> sorted(positions.size());
  std::transform(positions.begin(), positions.end(), sorted.begin(), [&](std::int64_t i) { return keys[i]; });
  std::sort(sorted.begin(), sorted.end());
  return static_cast<std::uint64_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
}

}  // namespace

// --- Reading without promoting ---------------------------------------------------------------------------------------

// Copies values of rows on SSD, at the positions `missing`, as they are while `lock` is held; then reads without it. A
// push to these rows looks all up again.
void Table::copy_cold(const std::int64_t* keys, const std::vector<std::int64_t>& missing, float* out,
                      PulledRows* pulled, std::shared_lock<std::shared_mutex> lock) const {
  if (pulled != nullptr) {
    pulled->version = PulledRows::kOutdated;
    for (const std::int64_t i : missing) {
      pulled->rows[i] = kNoRow;
    }
  }
  std::vector<WantedRow> rows;
  rows.reserve(missing.size());
  for (const std::int64_t i : missing) {
    rows.push_back({find(keys[i]), static_cast<std::uint32_t>(i), keys[i]});
  }
  tier_->misses.fetch_add(missing.size(), std::memory_order_relaxed);
  ColdReading reading = tier_->cold.reading(std::move(rows));
  lock.unlock();
  tier_->cold.read(reading, [&](const WantedRow& row, const std::byte* record) {
    slab_.copy_record_values(record, out + std::size_t{row.index} * config_.dim);
  });
}

// Writes the keys of rows on SSD, in the order they were written.
void Table::copy_cold_keys(std::int64_t* keys) const {
  const auto& segments = tier_->cold.segments();
  std::vector<std::uint32_t> order(segments.size());
  std::vector<std::uint32_t> slots;
  for (std::uint32_t slot = 0; slot < segments.size(); ++slot) {
    if (segments[slot] != nullptr) {
      slots.push_back(slot);
    }
  }
  std::sort(slots.begin(), slots.end(),
            [&](std::uint32_t a, std::uint32_t b) { return segments[a]->sequence < segments[b]->sequence; });
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    order[slots[i]] = i;
  }
  std::vector<std::pair<std::uint32_t, std::int64_t>> placed;
  placed.reserve(tier_->cold_rows);
  index_.for_each([&](std::int64_t key, std::uint32_t location) {
    if (is_cold(location)) {
      placed.emplace_back(order[slot_of(location)] << 16 | place_of(location), key);
    }
  });
  std::sort(placed.begin(), placed.end());
  std::transform(placed.begin(), placed.end(), keys, [](const auto& each) { return each.second; });
}

// --- Promoting -------------------------------------------------------------------------------------------------------

// The rest of read(), for keys that were not in memory: all of the batch if the rows' numbers are wanted.
void Table::read_through(const std::int64_t* keys, std::int64_t count, const std::vector<std::int64_t>& missing,
                         float* out, int threads, PulledRows* pulled) {
  PooledArray<std::int64_t> wanted(static_cast<std::int64_t>(missing.size()));
  PooledArray<std::uint32_t> found(wanted.size());
  for (std::int64_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = keys[missing[static_cast<std::size_t>(i)]];
  }
  give_way_to_compaction();
  const MovingTurn turn(*tier_);
  std::unique_lock lock(mutex_);
  if (pulled == nullptr) {
    make_hot({wanted.data(), wanted.size(), found.data(), true}, threads, lock);
  } else {
    make_hot({keys, count, pulled->rows.data(), true}, threads, lock);
    pulled->version = version_;
    for (std::int64_t i = 0; i < wanted.size(); ++i) {
      found[i] = pulled->rows[missing[static_cast<std::size_t>(i)]];
    }
  }
  parallel_for(useful_threads(threads, wanted.size()), chunks_of(wanted.size()), [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkKeys, wanted.size());
    for (std::int64_t i = chunk * kChunkKeys; i < end; ++i) {
      float* const target = out + static_cast<std::size_t>(missing[static_cast<std::size_t>(i)]) * config_.dim;
      if (is_hot(found[i])) {
        slab_.copy_values(found[i], target);
      } else {
        initial_values(wanted[i], target);
      }
    }
  });
}

std::unique_lock<std::shared_mutex> Table::lock_with_hot_rows(const Batch& batch, int threads) {
  {
    std::unique_lock lock(mutex_);
    if (missing_keys(batch.keys, batch.count, batch.rows, false, threads).empty()) {
      tier_->hits.fetch_add(static_cast<std::uint64_t>(batch.count), std::memory_order_relaxed);
      return lock;
    }
  }
  give_way_to_compaction();
  const MovingTurn turn(*tier_);
  std::unique_lock lock(mutex_);
  make_hot(batch, threads, lock);
  return lock;
}

void Table::promote_rows(const std::int64_t* keys, std::int64_t count, int threads) {
  if (tier_ == nullptr) {
    return;
  }
  PooledArray<std::uint32_t> rows(count);
  {
    const std::shared_lock lock(mutex_);
    const std::vector<std::int64_t> missing = missing_keys(keys, count, rows.data(), false, threads);
    if (std::none_of(missing.begin(), missing.end(), [&](std::int64_t i) { return is_cold(rows[i]); })) {
      return;
    }
  }
  give_way_to_compaction();
  const MovingTurn turn(*tier_);
  std::unique_lock lock(mutex_);
  make_hot({keys, count, rows.data(), false, false}, threads, lock);
}

// Brings the rows of all keys into memory, new ones of those that are admitted too, and writes their numbers; or throws, and no key is new. It is
// the caller's turn to move rows. `lock` is given up while the disk is waited for.
void Table::make_hot(const Batch& batch, int threads, std::unique_lock<std::shared_mutex>& lock) {
  TableTier& tier = *tier_;
  const std::int64_t* const keys = batch.keys;
  const std::int64_t count = batch.count;
  std::uint32_t* const rows = batch.rows;
  for (;;) {
    const std::vector<std::int64_t> missing = missing_keys(keys, count, rows, false, threads);
    std::vector<std::int64_t> absent;
    std::vector<WantedRow> cold;
    for (const std::int64_t i : missing) {
      if (is_cold(rows[i])) {
        cold.push_back({rows[i], 0, keys[i]});
      } else {
        absent.push_back(i);
      }
    }
    sort_unique(cold);
    std::uint64_t created = batch.creates ? absent.size() : 0;  // at most; how many exactly is told by sorting, where that matters
    if (created > 0 && (space() < created + cold.size() || !index_.has_room_for(index_rows() + created))) {
      created = distinct_keys(keys, absent);
    }
    if (make_index_room(created)) {
      continue;  // rows have moved
    }
    const std::uint64_t pinned = pin(rows, count);
    make_space(cold.size() + created, pinned);
    locate_again(cold);
    const std::uint64_t version = version_;
    promote(cold, threads, lock);
    if (version_ != version) {
      continue;  // keys were erased while the disk was waited for
    }
    if (batch.creates) {  // else whoever looks the keys up will count those in memory
      tier.hits.fetch_add(static_cast<std::uint64_t>(count) - missing.size(), std::memory_order_relaxed);
    }
    tier.misses.fetch_add(missing.size() - absent.size(), std::memory_order_relaxed);
    if (batch.creates) {
      std::vector<std::uint32_t> new_rows(absent.size());
      create_missing(batch, absent, new_rows.data(), threads);
      for (std::size_t i = 0; i < absent.size(); ++i) {
        rows[absent[i]] = new_rows[i];
      }
    }
    for (const std::int64_t i : missing) {
      rows[i] = is_cold(rows[i]) ? find(keys[i]) : rows[i];
    }
    return;
  }
}

// Compaction may have moved rows on SSD.
void Table::locate_again(std::vector<WantedRow>& cold) const {
  for (WantedRow& row : cold) {
    row.location = find(row.key);
  }
  sort_unique(cold);
}

// Marks rows that must not leave memory; returns how many they are.
std::uint64_t Table::pin(const std::uint32_t* rows, std::int64_t count) {
  RowBits& pinned = tier_->pinned;
  std::fill(pinned.begin(), pinned.end(), 0);
  std::uint64_t different = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (is_hot(rows[i]) && !has_bit(pinned, rows[i])) {
      set_bit(pinned, rows[i]);
      ++different;
    }
  }
  return different;
}

// Reads rows, sorted by location, into memory; there must be room.
void Table::promote(const std::vector<WantedRow>& rows, int threads, std::unique_lock<std::shared_mutex>& lock) {
  TableTier& tier = *tier_;
  const std::size_t record_bytes = slab_.layout().record_bytes();
  const std::size_t most = tier.staging.bytes() / record_bytes;
  for (std::size_t begin = 0; begin < rows.size(); begin += most) {
    const std::size_t size = std::min(most, rows.size() - begin);
    std::vector<WantedRow> part(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                                rows.begin() + static_cast<std::ptrdiff_t>(begin + size));
    for (std::size_t i = 0; i < size; ++i) {
      part[i].index = static_cast<std::uint32_t>(i);
    }
    ColdReading reading = tier.cold.reading(std::move(part));
    lock.unlock();
    tier.cold.read(reading, [&](const WantedRow& row, const std::byte* record) {
      std::memcpy(tier.staging.data() + row.index * record_bytes, record, record_bytes);
    });
    lock.lock();
    take_in(reading, 0, size, tier.staging.data(), threads, [](const WantedRow&, std::uint32_t) {});
  }
}

// Gives a row that was read, whose record is to be copied, a place in memory, unless it was changed, moved or erased
// since. Writes where the row is.
bool Table::take_row_in(const WantedRow& wanted, std::uint64_t sequence, std::uint32_t& location) {
  TableTier& tier = *tier_;
  const std::uint64_t hash = index_.hash(wanted.key);
  location = index_.find(wanted.key, hash);
  // The place of a segment that is gone may be another one's by now.
  if (location != wanted.location || tier.cold.segments()[slot_of(location)]->sequence != sequence) {
    return false;
  }
  location = take_row(0);
  index_.replace(wanted.key, hash, location);
  tier.homes[location] = wanted.location;
  tier.visited.visit(location);
  --tier.cold_rows;
  return true;
}

// --- Notes -----------------------------------------------------------------------------------------------------------

void Table::note_created(const std::vector<std::uint32_t>& rows) {
  for (const std::uint32_t row : rows) {
    set_bit(tier_->dirty, row);
    tier_->visited.visit(row);
  }
}

void Table::note_changed(const std::uint32_t* rows, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (rows[i] != kNoRow) {
      set_bit(tier_->dirty, rows[i]);
      tier_->visited.visit(rows[i]);
    }
  }
}

// A row in memory loses its key: what was written of it is of no use any more.
void Table::forget_home(std::uint32_t row) {
  TableTier& tier = *tier_;
  if (tier.homes[row] != kNoRow) {
    tier.cold.drop(tier.homes[row]);
    tier.erased.push_back(slab_.key(row));
    tier.homes[row] = kNoRow;
  }
  for (RowBits* const bits : {&tier.dirty, &tier.this_pass, &tier.next_pass}) {
    clear_bit(*bits, row);
  }
}

void Table::forget_cold(std::int64_t key, std::uint32_t location) {
  index_.erase(key, index_.hash(key));
  note_erased(key);
  tier_->cold.drop(location);
  tier_->erased.push_back(key);
  --tier_->cold_rows;
}

}  // namespace graphbox
