// Cache of rows whose future uses are known: it keeps those whose next use is nearest (Belady, "A study of replacement
// algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966).
//
// The trace of a pass is the rows that each of its batches wants. Batches are gathered into windows; what a window
// misses is read at once, while the window before is still in use. So the rows of two windows at a time are held
// whatever their next use, and Belady's rule decides on the rest. No rows are in here, only the slots they are in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/buffer.h"
#include "store/row_ranks.h"

namespace graphbox {

class TraceCache {
 public:
  // For rows in [0, num_rows), in that many slots.
  TraceCache(std::int64_t num_rows, std::int64_t slots);
  TraceCache(const TraceCache&) = delete;
  TraceCache& operator=(const TraceCache&) = delete;

  // Begins a pass over batches that want these rows, each possibly repeated. What is in slots stays there. Returns
  // where the windows begin among the batches, and the end. None has more rows than half of the slots, where there are
  // not slots for all rows there are, but for a window of one batch with more of them, which gets no slots.
  std::vector<std::int64_t> begin_pass(const std::vector<std::span<const std::int64_t>>& batches);

  struct Plan {
    bool has_slots = true;                // false: too many rows, read them straight to where they are wanted
    PooledArray<std::int64_t> rows;    // to be read, in any order ...
    PooledArray<std::int64_t> slots;   // ... into these slots
    PooledArray<std::int64_t> wanted;  // the slot of each row that the batches of the window want, in their order
  };
  // Plans the next window of the pass; at most one planned before may not have been released.
  Plan plan(const std::vector<std::span<const std::int64_t>>& batches);
  // The oldest planned window is no longer in use.
  void release();

  std::uint64_t hits() const { return hits_; }      // rows of windows found in slots ...
  std::uint64_t misses() const { return misses_; }  // ... and not found
  std::uint64_t bytes() const;
  // Bytes that each slot takes in here.
  static constexpr std::uint64_t kSlotBytes = 2 * sizeof(std::uint32_t) + sizeof(std::int64_t) + sizeof(std::uint32_t);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // A distinct row of a window, by its rank among the rows of the pass.
  struct Use {
    std::uint32_t rank;
    std::uint32_t next;  // the next window that wants it, kNone: none of this pass
  };
  struct Window {
    std::int64_t first_batch;
    std::vector<Use> uses;
    bool has_slots;
  };

  void gather_windows(const std::vector<std::span<const std::int64_t>>& batches);
  void link_uses();
  void find_residents();
  void keep(std::uint32_t slot);
  std::int64_t rank_of(std::int64_t row) const;  // -1: none of the pass
  [[noreturn]] void refuse_batches(const std::vector<std::uint32_t>& missing);
  std::uint32_t take_slot();
  std::vector<std::uint32_t>& bucket(std::uint32_t window);

  RowRanks ranks_;  // of the rows of the pass
  std::uint32_t num_slots_;
  std::vector<std::int64_t> row_in_;          // of each slot, -1: none
  std::vector<std::uint32_t> pinned_by_;      // the last window planned that wants what is in the slot, kNone: free to go
  std::vector<std::uint32_t> next_use_;       // of what is in the slot
  std::vector<std::uint32_t> slot_of_;        // of each rank
  std::vector<std::uint32_t> upcoming_;       // the next window not yet planned that wants the rank
  std::vector<Window> windows_;               // of the pass
  std::uint32_t first_window_ = 0;            // number of the first: windows are numbered through all passes
  std::uint32_t planned_ = 0;                 // number of the next to be planned ...
  std::uint32_t released_ = 0;                // ... and to be released
  std::vector<std::vector<std::uint32_t>> slots_of_window_;  // planned and not released, oldest first
  std::vector<std::vector<std::uint32_t>> buckets_;  // slots by their next use in this pass
  std::vector<std::uint32_t> unwanted_;              // slots whose rows this pass does not want again
  std::size_t farthest_ = 0;                         // no bucket beyond this one has slots
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
};

}  // namespace graphbox
