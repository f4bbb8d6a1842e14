// Segments of mostly dead rows are rewritten, by a thread of their own or because rows in them must be forgotten.
#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "errors/error.h"
#include "table/compactor.h"
#include "table/location.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {
namespace {

constexpr std::size_t kMovedRows = 2048;    // at a time, while others wait for the table
constexpr std::size_t kIndexDistance = 16;  // rows between asking for a line of the index and writing it

}  // namespace

// --- In the background -----------------------------------------------------------------------------------------------

// Called after rows were moved to SSD. Rewriting goes on while the table is used: rows are read without a lock, and
// moved a few at a time. At most as many rows are written again as were written, so at most about half of the segments
// is dead.
void Table::wake_compactor() {
  const bool has_work = tier_->cold.has_dead_segments() || tier_->compaction_credit > 0;
  if (has_work && compactor_ != nullptr) {
    compactor_->wake();
  }
}

// Lets compaction catch up where rows die faster than segments are rewritten. The caller must hold no lock.
void Table::give_way_to_compaction() {
  while (tier_->is_behind.load(std::memory_order_relaxed) && compactor_->await_step()) {
  }
}

void Table::await_compaction() {
  compactor_->await_rest();
}

// Does a part of the compaction that is due. False where none is, or it cannot go on now: whoever moves rows next wakes
// it again.
bool Table::compact_some() {
  CompactedSegment& work = tier_->compaction;
  try {
    if (work.segment == nullptr && !begin_compaction()) {
      return false;
    }
    read_compacted();
    if (!move_compacted()) {
      work.segment = nullptr;  // nothing can be written now: who must write will say so
      return false;
    }
    if (work.next == work.segment->rows) {
      work.segment = nullptr;
    }
    return true;
  } catch (const Error& error) {
    // A damaged segment is left alone; whoever reads its rows is told.
    const std::unique_lock lock(mutex_);
    const auto segment = std::exchange(work.segment, nullptr);
    const bool is_damaged = segment != nullptr && error.where() == tier_->cold.path_of(segment->sequence);
    if (is_damaged) {
      segment->is_damaged = true;
    }
    return is_damaged;
  } catch (const std::exception&) {
    work.segment = nullptr;  // no memory: as if the disk were full
    return false;
  }
}

// Chooses the next segment, if one is worth it.
bool Table::begin_compaction() {
  TableTier& tier = *tier_;
  const std::unique_lock lock(mutex_);
  if (tier.cold.has_dead_segments()) {
    tier.cold.retire_dead();
  }
  tier.compaction_credit = std::min<std::uint64_t>(tier.compaction_credit, 2 * kMostRowsOfSegment);
  const auto segment = tier.cold.next_to_compact();
  const bool is_due = segment != nullptr && segment->live_rows <= tier.compaction_credit;
  tier.is_behind = is_due && tier.cold.is_mostly_dead();
  tier.compaction.segment = is_due ? segment : nullptr;
  tier.compaction.next = 0;
  return is_due;
}

// Reads live rows of the segment from where it got to, as many as there is room for.
void Table::read_compacted() {
  const ColdRows& cold = tier_->cold;
  CompactedSegment& work = tier_->compaction;
  const std::size_t record_bytes = slab_.layout().record_bytes();
  const std::uint32_t count =
      std::min(static_cast<std::uint32_t>(work.keys.size()), work.segment->rows - work.next);
  cold.file_of(*work.segment)->read_keys(work.next, count, work.keys.data());
  work.read.clear();
  ColdReading reading;
  {
    const std::shared_lock lock(mutex_);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (work.segment->is_live(work.next + i)) {
        work.read.push_back({cold_location(work.segment->slot, work.next + i), i, work.keys[i]});
      }
    }
    reading = cold.reading(std::move(work.read));
  }
  cold.read(reading, [&](const WantedRow& row, const std::byte* record) {
    std::memcpy(work.records.data() + row.index * record_bytes, record, record_bytes);
  });
  work.read = std::move(reading.rows);
  work.next += count;
}

// Gives the rows that were read new places, a few at a time. False where nothing can be written.
bool Table::move_compacted() {
  TableTier& tier = *tier_;
  const std::size_t most = std::min<std::size_t>(kMovedRows, tier.cold.segment_rows());
  for (std::size_t begin = 0; begin < tier.compaction.read.size();) {
    const std::size_t end = std::min(begin + most, tier.compaction.read.size());
    {
      const std::lock_guard moving(tier.moving);
      const std::unique_lock lock(mutex_);
      if (tier.cold.has_room_for(static_cast<std::uint32_t>(end - begin))) {
        move_compacted(begin, end);
        begin = end;
        continue;
      }
    }
    if (!tier.cold.wait_for_memory()) {
      return false;
    }
  }
  return true;
}

void Table::move_compacted(std::size_t begin, std::size_t end) {
  TableTier& tier = *tier_;
  const CompactedSegment& work = tier.compaction;
  const std::size_t record_bytes = slab_.layout().record_bytes();
  for (std::size_t i = begin; i < end; ++i) {
    if (i + kIndexDistance < end) {
      index_.prefetch(index_.hash(work.read[i + kIndexDistance].key));
    }
    const WantedRow& row = work.read[i];
    if (work.segment->is_live(place_of(row.location))) {  // or it was written anew or erased meanwhile
      move_cold_row(row.key, row.location, work.records.data() + row.index * record_bytes);
      tier.compaction_credit -= std::min<std::uint64_t>(tier.compaction_credit, 1);
    }
  }
}

void Table::move_cold_row(std::int64_t key, std::uint32_t location, const std::byte* record) {
  TableTier& tier = *tier_;
  const std::uint64_t hash = index_.hash(key);
  const std::uint32_t found = index_.find(key, hash);
  const std::uint32_t moved = tier.cold.append(
      key, [&](std::byte* target) { std::memcpy(target, record, slab_.layout().record_bytes()); });
  const std::uint64_t sequence = tier.cold.segments()[slot_of(location)]->sequence;
  for (int chain = 0; chain < kChains; ++chain) {
    const ChangeTracker& changes = trackers_[static_cast<std::size_t>(chain)];
    if (changes.is_on() && (sequence < changes.oldest_sequence() || tier.cold.is_moved(location, chain))) {
      tier.cold.note_moved(moved, chain);
    }
  }
  tier.cold.drop(location);
  if (is_hot(found)) {
    tier.homes[found] = moved;
  } else {
    index_.replace(key, hash, moved);
  }
  ++tier.compacted_rows;
}

// --- Forgetting ------------------------------------------------------------------------------------------------------

std::int64_t Table::purge() {
  const std::lock_guard moving(tier_->moving);
  const std::unique_lock lock(mutex_);
  ColdRows& cold = tier_->cold;
  write_changed(0, slab_.rows());  // so that all keys there are have copies newer than what is forgotten
  cold.write_all();
  const auto segments = cold.segments();  // new ones come
  std::int64_t rewritten = 0;
  for (const auto& segment : segments) {
    if (segment == nullptr || segment->live_rows == segment->rows) {
      continue;
    }
    bool holds_erased = false;
    cold.file_of(*segment)->scan_keys([&](std::uint64_t first, const std::int64_t* keys, std::uint64_t count) {
      for (std::uint64_t i = 0; i < count && !holds_erased; ++i) {
        holds_erased = !segment->is_live(static_cast<std::uint32_t>(first + i)) && find(keys[i]) == kNoRow;
      }
    });
    if (holds_erased) {
      cold.visit_live(*segment, [this](std::int64_t key, std::uint32_t location, const std::byte* record) {
        move_cold_row(key, location, record);
      });
      ++rewritten;
    }
  }
  cold.retire_dead();
  tier_->erased.clear();
  cold.retire_all_erased();
  return rewritten;
}

}  // namespace graphbox
