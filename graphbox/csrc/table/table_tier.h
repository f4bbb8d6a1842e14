// State of a table with rows on SSD besides its rows in memory.
//
// Each row in memory remembers its home, the place of its newest written copy, and whether it changed since. A clean
// row leaves memory by going home: only the index changes. Others are written anew.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/buffer.h"
#include "memory/growing_array.h"
#include "table/cold_rows.h"
#include "table/visited.h"

namespace graphbox {

// A bit for each row in memory.
using RowBits = std::vector<std::uint64_t>;

inline bool has_bit(const RowBits& bits, std::uint32_t row) { return (bits[row / 64] >> (row % 64) & 1) != 0; }
inline void set_bit(RowBits& bits, std::uint32_t row) { bits[row / 64] |= std::uint64_t{1} << (row % 64); }
// The same where others may set bits of the same row or its neighbours meanwhile; returns whether it was set before.
inline bool set_bit_beside_others(RowBits& bits, std::uint32_t row) {
  const std::uint64_t bit = std::uint64_t{1} << (row % 64);
  return (std::atomic_ref(bits[row / 64]).fetch_or(bit, std::memory_order_relaxed) & bit) != 0;
}
inline void clear_bit(RowBits& bits, std::uint32_t row) { bits[row / 64] &= ~(std::uint64_t{1} << (row % 64)); }

// Progress of the compacting thread in the segment that it rewrites.
struct CompactedSegment {
  std::size_t bytes() const { return keys.size() * (sizeof(std::int64_t) + sizeof(WantedRow)) + records.bytes(); }

  std::shared_ptr<ColdSegment> segment;
  std::uint32_t next = 0;          // place that it got to
  std::vector<std::int64_t> keys;  // of the places that are read together
  std::vector<WantedRow> read;     // those of them that are live
  Buffer records;
};

struct TableTier {
  TableTier(ColdConfig config, std::uint64_t rows_possible) : cold(std::move(config)), homes(rows_possible) {}

  // Bytes for each row in memory besides the slab's: its home, its number among those that are free, and its bits.
  static constexpr std::uint64_t kBytesPerRow = 2 * sizeof(std::uint32_t) + 1;

  void resize(std::uint64_t rows) {
    most_rows = rows > most_rows ? rows : most_rows;
    for (std::size_t row = homes.size(); row < most_rows; ++row) {
      homes.append(kNoRow);
    }
    visited.resize(rows);
    for (RowBits* const bits : {&dirty, &pinned, &this_pass, &next_pass}) {
      bits->resize((rows + 63) / 64);
    }
  }
  std::uint64_t bytes_for(std::uint64_t rows) const {
    return cold.bytes() + staging.bytes() + 2 * pass_staging[0].bytes() + compaction.bytes() + erased.capacity() * sizeof(std::int64_t) + (rows > most_rows ? rows : most_rows) * kBytesPerRow;
  }

  ColdRows cold;
  std::uint64_t limit = 0;            // of rows in memory, as far as room was made
  std::uint64_t most_rows = 0;        // that were in memory at once
  std::uint64_t expected_keys = 0;    // for which room was made in the index
  GrowingArray<std::uint32_t> homes;  // by row; kNoRow where nothing was written
  VisitedRows visited;                // pulled or pushed since the hand passed
  RowBits dirty;                      // differs from what is at its home
  RowBits pinned;                     // must not leave now
  RowBits this_pass;                  // of the pass that trains, and of the one being prefetched
  RowBits next_pass;
  std::uint64_t cold_rows = 0;           // keys whose rows are not in memory
  std::vector<std::int64_t> erased;      // with copies in segments, since erased keys were written last
  std::uint64_t compaction_credit = 0;   // rows that compaction may still write
  CompactedSegment compaction;           // of the compacting thread alone
  std::atomic<bool> is_behind{false};    // compaction: rows die faster than they are rewritten
  Buffer staging;                        // records that were read, before they get rows
  std::array<Buffer, 2> pass_staging;    // the same of a pass: one is read while the other one's get rows

  // Held by whoever moves rows between memory and SSD, or makes new ones; taken before the table's lock. So rows stay
  // where they are while one waits for the disk without that lock, except that others may erase them.
  std::mutex moving;
  std::mutex prefetching;  // taken before that
  std::atomic<int> waiting{0};  // for `moving`, to do anything but prefetch

  std::atomic<std::uint64_t> hits{0};    // keys that were looked up and found in memory,
  std::atomic<std::uint64_t> misses{0};  // and on SSD
  std::uint64_t evicted_rows = 0;
  std::uint64_t compacted_rows = 0;
};

// A turn to move rows. Whoever prefetches waits for those that have work for the rows.
class MovingTurn {
 public:
  explicit MovingTurn(TableTier& tier) : tier_(tier) {
    tier_.waiting.fetch_add(1);
    tier_.moving.lock();
    tier_.waiting.fetch_sub(1);
  }
  MovingTurn(const MovingTurn&) = delete;
  MovingTurn& operator=(const MovingTurn&) = delete;
  ~MovingTurn() { tier_.moving.unlock(); }

 private:
  TableTier& tier_;
};

}  // namespace graphbox
