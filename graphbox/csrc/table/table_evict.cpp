// Rows leave memory for SSD when others need their room, and the folder is made to hold the table as it is.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <string>

#include "errors/error.h"
#include "io/block_reader.h"
#include "table/compactor.h"
#include "table/location.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {
namespace {

constexpr std::size_t kIndexDistance = 16;                          // rows between asking for a line and writing it
constexpr std::uint64_t kLargestSegmentBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kSmallestSegmentBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kBudgetPerSegment = 48;  // parts of the budget of which a segment in memory may take one
constexpr std::uint64_t kFewestSegmentRows = 16;
constexpr std::uint64_t kFewestSegmentBytes = std::uint64_t{64} << 10;  // kept for what is known of segments
constexpr std::uint64_t kFewestHotRows = 64;
constexpr std::uint32_t kMostCompacted = 8192;   // places of a segment that are read together

std::uint32_t segment_rows_for(std::uint64_t memory_bytes, std::uint64_t record_bytes) {
  const std::uint64_t bytes =
      std::clamp(memory_bytes / kBudgetPerSegment, kSmallestSegmentBytes, kLargestSegmentBytes);
  const std::uint64_t rows = bytes / (record_bytes + sizeof(std::int64_t) + sizeof(std::uint32_t));
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rows, kFewestSegmentRows, kMostRowsOfSegment));
}

std::uint64_t physical_bytes() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void Table::attach_tier(const std::string& folder, const std::string& settings, int folder_lock) {
  const std::unique_lock lock(mutex_);
  if (tier_ != nullptr || live_rows() > 0) {
    throw Error(ErrorKind::kUsage, "only a table without rows can be given a folder for them", folder);
  }
  ColdConfig config;
  config.folder = folder;
  config.settings = settings;
  config.lock = folder_lock;
  config.record_bytes = slab_.layout().record_bytes();
  config.layout_digest = layout_digest(slab_.layout(), config_.optimizer.kind);
  config.segment_rows = segment_rows_for(config_.memory_bytes, config.record_bytes);
  // Addresses for as many rows as there could ever be: memory_bytes may be raised later.
  const std::uint64_t rows =
      std::min<std::uint64_t>(2 * physical_bytes() / slab_.bytes_per_row() + 64, kFirstColdLocation);
  const std::uint64_t record_bytes = config.record_bytes;
  const std::uint64_t staged = std::max<std::uint64_t>(config.segment_rows / 4, kFewestSegmentRows);
  const std::uint32_t compacted = std::min(config.segment_rows, kMostCompacted);
  auto tier = std::make_unique<TableTier>(std::move(config), rows);
  tier->staging = Buffer(2 * staged * record_bytes);
  for (Buffer& staging : tier->pass_staging) {
    staging = Buffer(staged * record_bytes);
  }
  tier->compaction.keys.resize(compacted);
  tier->compaction.read.reserve(compacted);
  tier->compaction.records = Buffer(compacted * record_bytes);
  tier_ = std::move(tier);
  tier_->resize(slab_.rows());
  if (hot_limit(index_.bytes()) < kFewestHotRows) {
    const std::uint64_t needed = bytes_beside_disk(index_.bytes(), kFewestHotRows, 0);
    tier_ = nullptr;
    throw Error(ErrorKind::kDoesNotFit,
                "the table may take " + std::to_string(config_.memory_bytes) + " bytes (memory_bytes); with rows on SSD " +
                    "it needs " + std::to_string(needed) + " or more",
                folder, "raise memory_bytes");
  }
  compactor_ = std::make_unique<Compactor>([this] { return compact_some(); });
}

void Table::detach_tier() {
  if (tier_ == nullptr) {
    return;  // attaching it failed
  }
  if (compactor_ != nullptr) {
    compactor_->close();
  }
  const std::lock_guard moving(tier_->moving);
  const std::unique_lock lock(mutex_);
  tier_->cold.close();
}

// --- Room ------------------------------------------------------------------------------------------------------------

std::uint64_t Table::index_rows() const { return live_rows() + tier_->cold_rows; }

// The memory of a table with rows on SSD: an index of so many bytes, so many rows in memory, buffers, and what the
// segments of so many keys come to take. Without these rows would fill the budget first, and as their bookkeeping is
// never given back, a few more segments would leave no room for any row.
std::uint64_t Table::bytes_beside_disk(std::uint64_t index_bytes, std::uint64_t rows, std::uint64_t keys) const {
  const std::uint64_t there = tier_->cold.segment_bytes();
  const std::uint64_t expected = tier_->cold.segment_bytes_for(std::max(keys, tier_->expected_keys));
  const std::uint64_t to_come = std::max({expected, kFewestSegmentBytes, there}) - there;
  return index_bytes + slab_.bytes_for(rows) + followed_bytes(rows) + tier_->bytes_for(rows) +
         admission_.most_bytes() + to_come;
}

std::uint64_t Table::least_memory_bytes(std::uint64_t keys, std::uint64_t batch_rows) const {
  const std::shared_lock lock(mutex_);
  const bool grows = !index_.has_room_for(keys);
  const std::uint64_t index_bytes = grows ? index_.bytes() + index_.bytes_for(keys) : index_.bytes();
  const std::uint64_t rows = std::max(batch_rows, kFewestHotRows);
  return bytes_beside_disk(index_bytes, (rows + 63) / 64 * 64, keys);
}

// The most rows that memory may have, beside an index of so many bytes, and the segments of so many keys.
std::uint64_t Table::hot_limit(std::uint64_t index_bytes, std::uint64_t keys) const {
  const auto fits = [&](std::uint64_t rows) { return bytes_beside_disk(index_bytes, rows, keys) <= config_.memory_bytes; };
  std::uint64_t low = 0;
  std::uint64_t high = tier_->homes.capacity();
  if (!fits(low)) {
    return 0;
  }
  while (low < high) {
    const std::uint64_t middle = (low + high + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low / 64 * 64;
}

// Rows that can be taken without evicting others.
std::uint64_t Table::space() const {
  const std::uint64_t limit = hot_limit(index_.bytes());
  return free_rows_.size() + (limit > slab_.rows() ? limit - slab_.rows() : 0);
}

// That make_index_room() and make_space() have been called.
void Table::check_hot_room(std::uint64_t new_keys) const {
  const bool has_row = !free_rows_.empty() || slab_.rows() < tier_->limit;
  if (!has_row || !index_.has_room_for(index_rows() + new_keys)) {
    throw Error(ErrorKind::kDoesNotFit, "there is no room for a row beside " + std::to_string(live_rows()) +
                                            " in memory (memory_bytes is " + std::to_string(config_.memory_bytes) + ")",
                {}, "use smaller batches, or raise memory_bytes");
  }
}

// Makes room in the index for so many more keys, and sees to it that all stays in the budget. Rows of the slab's end
// leave where that must become smaller: then the result is true.
bool Table::make_index_room(std::uint64_t more) {
  const std::uint64_t keys = index_rows() + more;
  const bool grows = !index_.has_room_for(keys);
  const std::uint64_t index_bytes = grows ? index_.bytes() + index_.bytes_for(keys) : index_.bytes();
  const std::uint64_t limit = hot_limit(index_bytes, keys);
  if (limit < kFewestHotRows) {
    throw Error(ErrorKind::kDoesNotFit,
                "the table may take " + std::to_string(config_.memory_bytes) + " bytes (memory_bytes); the index of " +
                    std::to_string(keys) + " keys needs " + std::to_string(index_bytes) +
                    " while it grows, and leaves no room for rows; " +
                    std::to_string(bytes_beside_disk(index_bytes, kFewestHotRows, keys)) + " would do for some",
                {}, "raise memory_bytes, or erase keys");
  }
  tier_->expected_keys = std::max(tier_->expected_keys, keys);
  const bool shrinks = slab_.rows() > limit;
  if (shrinks) {
    evict_from(limit);
  }
  if (grows) {
    index_.reserve(keys);
  }
  return shrinks;
}

// Makes room for so many rows, beside those that are pinned, or throws and changes nothing that can be seen.
void Table::make_space(std::uint64_t rows, std::uint64_t pinned) {
  const std::uint64_t limit = hot_limit(index_.bytes());
  tier_->limit = limit;
  if (pinned + rows > limit) {
    throw Error(ErrorKind::kDoesNotFit,
                "the batch has " + std::to_string(pinned + rows) + " different keys, and there is room in memory for " +
                    std::to_string(limit) + " rows beside the index (memory_bytes is " +
                    std::to_string(config_.memory_bytes) + ")",
                {}, "use smaller batches, or raise memory_bytes");
  }
  const std::uint64_t available = space();
  if (available >= rows) {
    return;
  }
  // More than are needed now, so that segments fill up and this is not done for every batch.
  const std::uint64_t several = std::min<std::uint64_t>(tier_->cold.segment_rows(), limit / 16);
  const std::uint64_t wanted = std::min(std::max(rows - available, several), live_rows() - pinned);
  RowBits kept = tier_->pinned;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    kept[i] |= tier_->this_pass[i] | tier_->next_pass[i];
  }
  const std::uint64_t evicted = evict(wanted, kept);
  if (available + evicted < rows) {
    evict(rows - available - evicted, tier_->pinned);
  }
}

// --- Evicting --------------------------------------------------------------------------------------------------------

// Moves up to `count` rows to SSD, none that is pinned. Where nothing can be written only rows that did not change
// leave, and if those are too few, it throws why.
std::uint64_t Table::evict(std::uint64_t count, const std::vector<std::uint64_t>& pinned) {
  std::vector<std::uint32_t> leaving;
  leaving.reserve(count);
  const auto choose = [&](std::uint64_t wanted, const RowBits& kept) {
    leaving.clear();
    tier_->visited.evict(wanted, live_, kept, [&](std::uint32_t row) {
      set_live(row, false);
      leaving.push_back(row);
    });
  };
  const std::size_t free_before = free_rows_.size();
  choose(count, pinned);
  try {
    move_out(leaving);
    tier_->is_behind = tier_->cold.is_mostly_dead();
    wake_compactor();
  } catch (const Error&) {
    const std::uint64_t evicted = free_rows_.size() - free_before;
    RowBits kept = pinned;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      kept[i] |= tier_->dirty[i];
    }
    choose(count - evicted, kept);
    move_out(leaving);
    if (free_rows_.size() - free_before < count) {
      throw;
    }
  }
  return free_rows_.size() - free_before;
}

// Moves rows, whose live bits are cleared, to SSD. Those that could not be moved are live again when this throws.
void Table::move_out(const std::vector<std::uint32_t>& rows) {
  if (rows.empty()) {
    return;
  }
  version_ = new_version();
  std::size_t moved = 0;
  try {
    for (; moved < rows.size(); ++moved) {
      if (moved + kIndexDistance < rows.size()) {
        const std::uint32_t ahead = rows[moved + kIndexDistance];
        index_.prefetch(index_.hash(slab_.key(ahead)));
        slab_.prefetch_row(ahead);
      }
      move_out_row(rows[moved]);
    }
  } catch (...) {
    for (; moved < rows.size(); ++moved) {
      set_live(rows[moved], true);
    }
    throw;
  }
}

void Table::move_out_row(std::uint32_t row) {
  TableTier& tier = *tier_;
  const std::int64_t key = slab_.key(row);
  if (has_bit(tier.dirty, row)) {
    write_home(row);
  }
  index_.replace(key, index_.hash(key), tier.homes[row]);
  tier.homes[row] = kNoRow;
  tier.visited.forget(row);
  clear_bit(tier.this_pass, row);
  clear_bit(tier.next_pass, row);
  free_rows_.push_back(row);
  ++tier.cold_rows;
  ++tier.evicted_rows;
}

// Writes a row that changed.
void Table::write_home(std::uint32_t row) {
  TableTier& tier = *tier_;
  const std::uint32_t home =
      tier.cold.append(slab_.key(row), [&](std::byte* record) { slab_.write_record(row, record); });
  if (tier.homes[row] != kNoRow) {
    tier.cold.drop(tier.homes[row]);
  }
  tier.homes[row] = home;
  clear_bit(tier.dirty, row);
  ++tier.compaction_credit;
}

// Makes the slab that small; the rows beyond leave.
void Table::evict_from(std::uint64_t limit) {
  std::vector<std::uint32_t> leaving;
  for (std::uint64_t row = limit; row < slab_.rows(); ++row) {
    if (is_live(static_cast<std::uint32_t>(row))) {
      leaving.push_back(static_cast<std::uint32_t>(row));
      set_live(static_cast<std::uint32_t>(row), false);
    }
  }
  move_out(leaving);
  std::erase_if(free_rows_, [&](std::uint32_t row) { return row >= limit; });
  slab_.release_from(limit);
  live_.resize((limit + 63) / 64);
  tier_->resize(limit);
}

// --- The folder ------------------------------------------------------------------------------------------------------

// Between the parts others go on.
void Table::write_changed_in_parts() {
  std::uint64_t words = 1;
  for (std::uint64_t word = 0; word < words;) {
    const std::lock_guard moving(tier_->moving);
    const std::unique_lock lock(mutex_);
    word = write_changed(word, tier_->cold.segment_rows());
    words = tier_->dirty.size();
  }
}

std::vector<ListedSegment> Table::flush() {
  write_changed_in_parts();
  const std::lock_guard moving(tier_->moving);
  const std::unique_lock lock(mutex_);
  write_changed(0, slab_.rows());
  write_erased_keys();
  tier_->cold.write_all();
  wake_compactor();
  return tier_->cold.list();
}

// Keys that came back have been written anew, which says all there is to say of them.
void Table::write_erased_keys() {
  std::vector<std::int64_t>& erased = tier_->erased;
  const auto is_erased = [&](std::int64_t key) { return find(key) == kNoRow; };
  std::erase_if(erased, [&](std::int64_t key) { return !is_erased(key); });
  if (!erased.empty()) {
    tier_->cold.write_erased(erased, is_erased);
    erased.clear();
  }
}

// Writes about so many rows that changed, from a word of the bits on; returns the word to go on from.
std::uint64_t Table::write_changed(std::uint64_t word, std::uint64_t most) {
  const RowBits& dirty = tier_->dirty;
  for (std::uint64_t written = 0; word < dirty.size() && written < most; ++word) {
    for (std::uint64_t bits = dirty[word]; bits != 0; bits &= bits - 1) {
      write_home(static_cast<std::uint32_t>(word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits))));
      ++written;
    }
  }
  return word;
}

void Table::flushed() {
  const std::unique_lock lock(mutex_);
  tier_->cold.listed();
}

void Table::restore_segment(std::uint64_t sequence, const std::vector<std::uint64_t>* live) {
  const std::unique_lock lock(mutex_);
  TableTier& tier = *tier_;
  bool is_checked = false;
  tier.cold.restore(sequence, live, [&](std::int64_t key, std::uint32_t location) {
    const std::uint64_t hash = index_.hash(key);
    const std::uint32_t before = index_.find(key, hash);
    if (before != kNoRow) {
      tier.cold.drop(before);
      if (location != kNoRow) {
        index_.replace(key, hash, location);
      } else {
        index_.erase(key, hash);
        --tier.cold_rows;
      }
      return;
    }
    if (location == kNoRow) {
      return;
    }
    // Only for what comes: more could find no room in a budget that has been enough.
    if (!is_checked || !index_.has_room_for(index_rows() + 1)) {
      make_index_room(1);
      is_checked = true;
    }
    index_.insert(key, hash, location);
    ++tier.cold_rows;
  });
}

std::uint64_t Table::opened() {
  const std::unique_lock lock(mutex_);
  return tier_->cold.remove_left_over();
}

Table::TierFigures Table::tier_figures() const {
  const std::shared_lock lock(mutex_);
  const TierFiles files = tier_->cold.files();
  return {live_rows(),
          hot_limit(index_.bytes()),
          tier_->cold_rows,
          tier_->hits.load(std::memory_order_relaxed),
          tier_->misses.load(std::memory_order_relaxed),
          tier_->evicted_rows,
          tier_->compacted_rows,
          tier_->cold.bytes_read(),
          tier_->cold.bytes_written(),
          files.segments,
          files.bytes,
          files.rows,
          files.live_rows};
}

}  // namespace graphbox
