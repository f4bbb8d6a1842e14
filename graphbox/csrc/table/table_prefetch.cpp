// The rows of the next pass come into memory while this one trains.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "table/batch.h"
#include "table/location.h"
#include "table/lookup.h"
#include "table/table.h"
#include "table/table_tier.h"
#include "table/take_in.h"

namespace graphbox {
namespace {

constexpr std::size_t kPlacedRows = 4096;       // that get rows at a time, while others wait for the table
constexpr std::uint64_t kMostEvicted = 16384;   // that leave at a time, likewise
constexpr std::uint64_t kPartBytes = std::uint64_t{24} << 20;  // that are read before others may read
constexpr int kMostRounds = 4;  // for rows that were moved while they were read

// Where a part ends that begins with this row: after so many rows, or when reading it takes about as long as reading
// kPartBytes in one go.
std::size_t end_of_part(const std::vector<WantedRow>& rows, std::size_t begin, std::size_t most_rows,
                        std::uint64_t stride) {
  std::uint64_t cost = 0;
  std::size_t end = begin;
  for (; end < rows.size() && end - begin < most_rows && cost < kPartBytes; ++end) {
    const std::uint64_t gap = end == begin ? ColdRows::kBridgedBytes
                                           : std::uint64_t{rows[end].location - rows[end - 1].location} * stride;
    cost += std::min(gap, ColdRows::kBridgedBytes) + stride;
  }
  return end;
}

}  // namespace

// Rows of a pass that were read.
struct Table::PassPart {
  ColdReading reading;                // a row's `index` says which of the records is its
  const std::byte* records;
  std::vector<std::int64_t> in_memory;  // keys whose rows others had read by then
};

Table::Prefetched Table::prefetch_rows(const std::int64_t* keys, std::int64_t count, int threads,
                                       const std::atomic<bool>& is_stopped) {
  const std::lock_guard only_one(tier_->prefetching);
  Prefetched result = {0, 0};
  std::vector<WantedRow> wanted = begin_pass(keys, count, result, is_stopped);
  for (int round = 0; round < kMostRounds && !wanted.empty() && !is_stopped; ++round) {
    wanted = bring_in(wanted, threads, result, is_stopped);
  }
  return result;
}

// Marks rows of the pass that are in memory, and returns those that are not.
std::vector<WantedRow> Table::begin_pass(const std::int64_t* keys, std::int64_t count, Prefetched& result,
                                         const std::atomic<bool>& is_stopped) {
  TableTier& tier = *tier_;
  {
    const std::unique_lock lock(mutex_);
    tier.this_pass.swap(tier.next_pass);
    std::fill(tier.next_pass.begin(), tier.next_pass.end(), 0);
  }
  std::vector<WantedRow> wanted;
  for (std::int64_t begin = 0; begin < count && !is_stopped; begin += kChunkKeys) {
    const std::shared_lock lock(mutex_);
    look_up(index_, slab_, 0, keys, begin, std::min(begin + kChunkKeys, count),
            [&](std::int64_t i, std::uint32_t location, const std::byte*) {
              if (is_cold(location)) {
                wanted.push_back({location, 0, keys[i]});
              } else if (is_hot(location) && !set_bit_beside_others(tier.next_pass, location)) {
                ++result.in_memory;
              }
            });
  }
  sort_unique(wanted);
  return wanted;
}

// Reads rows, sorted by location, part by part: while one is read, the one before gets its rows. Returns those that
// were moved meanwhile.
std::vector<WantedRow> Table::bring_in(const std::vector<WantedRow>& rows, int threads, Prefetched& result,
                                       const std::atomic<bool>& is_stopped) {
  TableTier& tier = *tier_;
  const std::size_t most_rows = tier.pass_staging[0].bytes() / slab_.layout().record_bytes();
  std::size_t next = 0;
  std::size_t parts = 0;
  const auto read_next = [&] {
    const std::size_t begin = std::exchange(next, end_of_part(rows, next, most_rows, tier.cold.stride()));
    std::byte* const records = tier.pass_staging[parts++ % tier.pass_staging.size()].data();
    return std::async(std::launch::async, [this, &rows, &is_stopped, begin, count = next - begin, records] {
      return read_part(rows.data() + begin, count, records, is_stopped);
    });
  };
  std::vector<WantedRow> moved;
  for (std::future<PassPart> reading = read_next(); reading.valid();) {
    const PassPart part = reading.get();
    std::future<PassPart> following = next < rows.size() && !is_stopped ? read_next() : std::future<PassPart>();
    if (!place_part(part, threads, moved, result, is_stopped)) {
      return {};  // there is no room for more
    }
    reading = std::move(following);
  }
  sort_unique(moved);
  return moved;
}

// Prefetching waits for threads that need rows now.
void Table::wait_for_others(const std::atomic<bool>& is_stopped) const {
  while (tier_->waiting.load() > 0 && !is_stopped) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Table::PassPart Table::read_part(const WantedRow* rows, std::size_t count, std::byte* records,
                                 const std::atomic<bool>& is_stopped) {
  wait_for_others(is_stopped);
  PassPart part;
  part.records = records;
  std::vector<WantedRow> wanted;
  wanted.reserve(count);
  {
    const std::shared_lock lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kIndexDistance < count) {
        index_.prefetch(index_.hash(rows[i + kIndexDistance].key));
      }
      const std::uint32_t location = find(rows[i].key);
      if (is_cold(location)) {
        wanted.push_back({location, static_cast<std::uint32_t>(wanted.size()), rows[i].key});
      } else {
        part.in_memory.push_back(rows[i].key);
      }
    }
    part.reading = tier_->cold.reading(std::move(wanted));
  }
  const std::size_t record_bytes = slab_.layout().record_bytes();
  tier_->cold.read(part.reading, [&](const WantedRow& row, const std::byte* record) {
    std::memcpy(records + row.index * record_bytes, record, record_bytes);
  });
  return part;
}

// Gives rows that were read room in memory, a few at a time; false where there is none any more. Adds those that others
// moved to another place on SSD to `moved`.
bool Table::place_part(const PassPart& part, int threads, std::vector<WantedRow>& moved, Prefetched& result,
                       const std::atomic<bool>& is_stopped) {
  TableTier& tier = *tier_;
  const auto note = [&](std::int64_t key, std::uint32_t location) {
    if (is_cold(location)) {
      moved.push_back({location, 0, key});
    } else if (is_hot(location) && !has_bit(tier.next_pass, location)) {
      set_bit(tier.next_pass, location);
      ++result.in_memory;
    }
  };
  const std::size_t rows = part.reading.rows.size();
  for (std::size_t begin = 0; begin < rows && !is_stopped;) {
    wait_for_others(is_stopped);
    give_way_to_compaction();
    std::unique_lock moving(tier.moving);
    std::unique_lock lock(mutex_);
    const std::size_t wanted = std::min(kPlacedRows, rows - begin);
    const std::size_t room = std::min<std::size_t>(wanted, make_space_beside_passes(wanted, moving, lock));
    const std::uint64_t cold_rows = tier.cold_rows;
    take_in(part.reading, begin, begin + room, part.records, threads,
            [&](const WantedRow& row, std::uint32_t location) { note(row.key, location); });
    result.read += static_cast<std::int64_t>(cold_rows - tier.cold_rows);
    if (room < wanted) {
      return false;
    }
    begin += room;
  }
  const std::unique_lock lock(mutex_);
  for (const std::int64_t key : part.in_memory) {
    note(key, find(key));
  }
  return true;
}

// Evicts rows of neither this pass nor the next where that is needed for so many, and returns for how many there is
// room. Waits for the disk without the locks.
std::uint64_t Table::make_space_beside_passes(std::uint64_t rows, std::unique_lock<std::mutex>& moving,
                                              std::unique_lock<std::shared_mutex>& lock) {
  TableTier& tier = *tier_;
  const std::uint64_t several = std::min<std::uint64_t>(kMostEvicted, tier.cold.segment_rows());
  while (space() < rows && !tier.cold.has_room_for(static_cast<std::uint32_t>(several))) {
    lock.unlock();
    moving.unlock();
    const bool can_write = tier.cold.wait_for_memory();
    moving.lock();
    lock.lock();
    if (!can_write) {
      break;  // rows that did not change may leave still
    }
  }
  tier.limit = hot_limit(index_.bytes());
  const std::uint64_t available = space();
  if (available >= rows) {
    return available;
  }
  RowBits kept = tier.this_pass;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    kept[i] |= tier.next_pass[i];
  }
  evict(std::max(rows - available, several), kept);
  return space();
}

}  // namespace graphbox
