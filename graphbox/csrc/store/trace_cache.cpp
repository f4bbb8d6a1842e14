#include "store/trace_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "errors/error.h"
#include "portability/cpu.h"

namespace graphbox {
namespace {

constexpr std::size_t kDistance = 16;  // rows that memory is asked for ahead

// Looks at both before memory is taken for either.
std::int64_t checked_rows(std::int64_t rows, std::int64_t slots) {
  if (slots < 0 || slots >= UINT32_MAX) {
    throw Error(ErrorKind::kUsage, "expected 0 to 2^32 - 2 slots, received " + std::to_string(slots), "slots");
  }
  if (rows < 0) {
    throw Error(ErrorKind::kUsage, "expected 0 rows or more, received " + std::to_string(rows), "num_rows");
  }
  return rows;
}

}  // namespace

TraceCache::TraceCache(std::int64_t num_rows, std::int64_t slots)
    : ranks_(checked_rows(num_rows, slots)),
      num_slots_(static_cast<std::uint32_t>(std::min(slots, num_rows))),
      row_in_(num_slots_, -1),
      pinned_by_(num_slots_, kNone),
      next_use_(num_slots_, kNone) {}

std::uint64_t TraceCache::bytes() const {
  std::uint64_t uses = 0;
  for (const Window& window : windows_) {
    uses += window.uses.capacity() * sizeof(Use);
  }
  return num_slots_ * kSlotBytes + ranks_.bytes() + (slot_of_.capacity() + upcoming_.capacity()) * sizeof(std::uint32_t) +
         uses;
}

std::vector<std::int64_t> TraceCache::begin_pass(const std::vector<std::span<const std::int64_t>>& batches) {
  if (planned_ != first_window_ + windows_.size()) {
    throw Error(ErrorKind::kUsage, "expected the next pass once all windows of this one are planned");
  }
  for (const auto& batch : batches) {
    for (const std::int64_t row : batch) {
      if (row < 0 || row >= ranks_.num_rows()) {
        throw Error(ErrorKind::kUsage, "expected rows from 0 to " + std::to_string(ranks_.num_rows() - 1) +
                                           ", received " + std::to_string(row));
      }
    }
  }
  ranks_.clear();
  for (const auto& batch : batches) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (i + kDistance < batch.size()) {
        ranks_.prefetch_row(batch[i + kDistance]);
      }
      ranks_.insert(batch[i]);
    }
  }
  ranks_.number();
  if (ranks_.count() >= UINT32_MAX) {
    throw Error(ErrorKind::kUsage, "expected fewer than 2^32 different rows in a pass");
  }
  first_window_ = planned_;
  gather_windows(batches);
  link_uses();
  find_residents();
  std::vector<std::int64_t> begins;
  for (const Window& window : windows_) {
    begins.push_back(window.first_batch);
  }
  begins.push_back(static_cast<std::int64_t>(batches.size()));
  return begins;
}

// Takes batches into a window as long as their different rows fit.
void TraceCache::gather_windows(const std::vector<std::span<const std::int64_t>>& batches) {
  const bool all_fit = num_slots_ == ranks_.num_rows();
  const std::size_t most = all_fit ? num_slots_ : num_slots_ / 2;
  windows_.clear();
  std::vector<std::uint32_t> seen_by(static_cast<std::size_t>(ranks_.count()), kNone);  // the window, from 0 on
  std::vector<std::uint32_t> fresh;
  for (std::size_t number = 0; number < batches.size(); ++number) {
    const auto collect = [&](std::uint32_t window) {
      fresh.clear();
      for (std::size_t i = 0; i < batches[number].size(); ++i) {
        if (i + kDistance < batches[number].size()) {
          ranks_.prefetch_row(batches[number][i + kDistance]);
        }
        const auto rank = static_cast<std::uint32_t>(ranks_.rank(batches[number][i]));
        if (seen_by[rank] != window) {
          seen_by[rank] = window;
          fresh.push_back(rank);
        }
      }
    };
    const bool may_join = !windows_.empty() && windows_.back().has_slots;
    if (may_join) {
      collect(static_cast<std::uint32_t>(windows_.size() - 1));
    }
    if (!may_join || windows_.back().uses.size() + fresh.size() > most) {
      windows_.push_back({static_cast<std::int64_t>(number), {}, true});
      collect(static_cast<std::uint32_t>(windows_.size() - 1));
      windows_.back().has_slots = fresh.size() <= most;
    }
    std::vector<Use>& uses = windows_.back().uses;
    if (windows_.back().has_slots) {
      for (const std::uint32_t rank : fresh) {
        uses.push_back({rank, kNone});
      }
    }
  }
  for (Window& window : windows_) {
    window.uses.shrink_to_fit();
  }
}

// From the last window to the first: which comes next for each row. Leaves the first in upcoming_.
void TraceCache::link_uses() {
  upcoming_.assign(static_cast<std::size_t>(ranks_.count()), kNone);
  for (std::size_t window = windows_.size(); window-- > 0;) {
    for (Use& use : windows_[window].uses) {
      use.next = std::exchange(upcoming_[use.rank], first_window_ + static_cast<std::uint32_t>(window));
    }
  }
}

// Finds the rows that are in slots from the pass before.
void TraceCache::find_residents() {
  slot_of_.assign(static_cast<std::size_t>(ranks_.count()), kNone);
  buckets_.assign(windows_.size(), {});
  unwanted_.clear();
  farthest_ = windows_.size();
  for (std::uint32_t slot = num_slots_; slot-- > 0;) {
    if (row_in_[slot] < 0) {
      unwanted_.push_back(slot);
      continue;
    }
    const std::int64_t rank = ranks_.rank(row_in_[slot]);
    if (rank >= 0) {
      slot_of_[static_cast<std::size_t>(rank)] = slot;
    }
    if (pinned_by_[slot] == kNone) {
      keep(slot);
    }
  }
  // Empty slots are taken first.
  std::stable_partition(unwanted_.begin(), unwanted_.end(), [&](std::uint32_t slot) { return row_in_[slot] >= 0; });
}

std::vector<std::uint32_t>& TraceCache::bucket(std::uint32_t window) {
  return window == kNone ? unwanted_ : buckets_[window - first_window_];
}

// Nothing holds the slot any more but the next use of its row.
void TraceCache::keep(std::uint32_t slot) {
  pinned_by_[slot] = kNone;
  const std::int64_t rank = rank_of(row_in_[slot]);
  next_use_[slot] = rank < 0 ? kNone : upcoming_[static_cast<std::size_t>(rank)];
  bucket(next_use_[slot]).push_back(slot);
  if (next_use_[slot] != kNone) {
    farthest_ = std::max(farthest_, static_cast<std::size_t>(next_use_[slot] - first_window_) + 1);
  }
}

// The slot whose row is wanted latest. There is one: two windows together never want more than all.
std::uint32_t TraceCache::take_slot() {
  for (;;) {
    std::vector<std::uint32_t>* const from =
        !unwanted_.empty() ? &unwanted_ : farthest_ > 0 ? &buckets_[farthest_ - 1] : nullptr;
    if (from == nullptr) {
      throw Error(ErrorKind::kFailure, "no slot is left for a row of a window");
    }
    if (from->empty()) {
      --farthest_;
      continue;
    }
    const std::uint32_t slot = from->back();
    from->pop_back();
    const std::uint32_t expected = from == &unwanted_ ? kNone : first_window_ + static_cast<std::uint32_t>(farthest_) - 1;
    if (pinned_by_[slot] != kNone || next_use_[slot] != expected) {
      continue;  // wanted again since it came here
    }
    if (row_in_[slot] >= 0) {
      const std::int64_t rank = ranks_.rank(row_in_[slot]);
      if (rank >= 0) {
        slot_of_[static_cast<std::size_t>(rank)] = kNone;
      }
    }
    return slot;
  }
}

std::int64_t TraceCache::rank_of(std::int64_t row) const {
  return row >= 0 && row < ranks_.num_rows() ? ranks_.rank(row) : -1;
}

// Nobody will read the missing rows into their slots.
void TraceCache::refuse_batches(const std::vector<std::uint32_t>& missing) {
  for (const std::uint32_t rank : missing) {
    row_in_[std::exchange(slot_of_[rank], kNone)] = -1;
  }
  throw Error(ErrorKind::kUsage, "expected the batches of the window as the pass began with them");
}

TraceCache::Plan TraceCache::plan(const std::vector<std::span<const std::int64_t>>& batches) {
  if (planned_ == first_window_ + windows_.size()) {
    throw Error(ErrorKind::kUsage, "all windows of the pass are planned");
  }
  if (planned_ - released_ > 1) {
    throw Error(ErrorKind::kUsage, "two windows are planned: release the older one first");
  }
  const std::uint32_t number = planned_++;
  Window& window = windows_[number - first_window_];
  Plan plan;
  plan.has_slots = window.has_slots;
  std::vector<std::uint32_t>& slots = slots_of_window_.emplace_back();
  if (!window.has_slots) {
    return plan;
  }
  // Resident rows are held first, so that none of them is evicted.
  std::vector<std::uint32_t> missing;
  for (const Use& use : window.uses) {
    upcoming_[use.rank] = use.next;
    const std::uint32_t slot = slot_of_[use.rank];
    if (slot == kNone) {
      missing.push_back(use.rank);
      continue;
    }
    pinned_by_[slot] = number;
    slots.push_back(slot);
  }
  hits_ += slots.size();
  misses_ += missing.size();
  for (const std::uint32_t rank : missing) {
    const std::uint32_t slot = take_slot();
    slot_of_[rank] = slot;
    row_in_[slot] = -1;
    pinned_by_[slot] = number;
    slots.push_back(slot);
  }
  std::int64_t wanted = 0;
  for (const auto& batch : batches) {
    wanted += static_cast<std::int64_t>(batch.size());
  }
  plan.wanted.resize(wanted);
  plan.rows.resize(static_cast<std::int64_t>(missing.size()));
  plan.slots.resize(plan.rows.size());
  std::int64_t next = 0;
  for (const auto& batch : batches) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (i + kDistance < batch.size()) {
        ranks_.prefetch_row(batch[i + kDistance]);
      }
      const std::int64_t rank = rank_of(batch[i]);
      const std::uint32_t slot = rank < 0 ? kNone : slot_of_[static_cast<std::size_t>(rank)];
      if (slot == kNone || pinned_by_[slot] != number) {
        refuse_batches(missing);
      }
      row_in_[slot] = batch[i];
      plan.wanted[next++] = slot;
    }
  }
  const auto is_empty = [&](std::uint32_t rank) { return row_in_[slot_of_[rank]] < 0; };
  if (std::any_of(missing.begin(), missing.end(), is_empty)) {
    refuse_batches(missing);
  }
  for (std::size_t i = 0; i < missing.size(); ++i) {
    plan.slots[static_cast<std::int64_t>(i)] = slot_of_[missing[i]];
    plan.rows[static_cast<std::int64_t>(i)] = row_in_[slot_of_[missing[i]]];
  }
  return plan;
}

void TraceCache::release() {
  if (released_ == planned_) {
    throw Error(ErrorKind::kUsage, "no window is planned");
  }
  const std::uint32_t number = released_++;
  for (const std::uint32_t slot : slots_of_window_.front()) {
    if (pinned_by_[slot] == number) {
      keep(slot);
    }
  }
  slots_of_window_.erase(slots_of_window_.begin());
}

}  // namespace graphbox
