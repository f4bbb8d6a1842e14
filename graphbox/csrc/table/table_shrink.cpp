// Dropping what is not worth its memory: rows that were not seen for long, and rows of low score.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "parallel/parallel_for.h"
#include "table/batch.h"
#include "table/cold_rows.h"
#include "table/counters.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {

// The count of the reason for which a row leaves, or null for one that stays.
std::uint64_t* Table::reason_to_drop(const RowCounters& counters, std::uint32_t now, ShrinkCounts& counts) const {
  const PolicyConfig& policies = config_.policies;
  if (policies.expiry_passes != kNeverExpires && elapsed(counters.last_seen_pass, pass_) > policies.expiry_passes) {
    return &counts.unseen_passes;
  }
  if (policies.expiry_seconds != kNeverExpires && elapsed(counters.last_seen_second, now) > policies.expiry_seconds) {
    return &counts.unseen_seconds;
  }
  if (policies.has_score && score_of(decayed(counters, pass_, policies.decay), policies) < policies.drop_below) {
    return &counts.low_score;
  }
  return nullptr;
}

ShrinkCounts Table::shrink(int threads) {
  std::unique_lock<std::mutex> moving;
  if (tier_ != nullptr) {
    moving = std::unique_lock(tier_->moving);
  }
  const std::unique_lock lock(mutex_);
  ShrinkCounts total;
  total.examined = live_rows() + (tier_ != nullptr ? tier_->cold_rows : 0);
  if (!slab_.layout().has_counters) {
    return total;
  }
  const std::uint32_t now = time();
  std::uint64_t dropped = shrink_hot(now, total, threads);
  total.freed_bytes = dropped * slab_.bytes_per_row();
  if (tier_ != nullptr) {
    dropped += shrink_cold(now, total);
  }
  if (dropped > 0) {
    version_ = new_version();
    ++updates_;
    events_.dropped_rows += dropped;
  }
  return total;
}

std::uint64_t Table::shrink_hot(std::uint32_t now, ShrinkCounts& total, int threads) {
  const auto rows = static_cast<std::int64_t>(slab_.rows());
  std::vector<ShrinkCounts> counts(static_cast<std::size_t>(chunks_of(rows)));
  std::vector<std::vector<std::int64_t>> dropped_by_chunk(counts.size());
  parallel_for(useful_threads(threads, rows), chunks_of(rows), [&](std::int64_t chunk) {
    ShrinkCounts& count = counts[static_cast<std::size_t>(chunk)];
    for (std::int64_t i = chunk * kChunkKeys; i < std::min((chunk + 1) * kChunkKeys, rows); ++i) {
      const auto row = static_cast<std::uint32_t>(i);
      std::uint64_t* const reason = is_live(row) ? reason_to_drop(slab_.counters(row), now, count) : nullptr;
      if (reason != nullptr) {
        ++*reason;
        dropped_by_chunk[static_cast<std::size_t>(chunk)].push_back(i);
      }
    }
  });
  for (const ShrinkCounts& count : counts) {
    total.unseen_passes += count.unseen_passes;
    total.unseen_seconds += count.unseen_seconds;
    total.low_score += count.low_score;
  }
  const std::vector<std::int64_t> dropped = joined(dropped_by_chunk);
  for (const std::int64_t row : dropped) {
    give_back(static_cast<std::uint32_t>(row));
  }
  return dropped.size();
}

// Reads all segments from front to back: their records hold the counters.
std::uint64_t Table::shrink_cold(std::uint32_t now, ShrinkCounts& total) {
  ColdRows& cold = tier_->cold;
  cold.write_all();
  const std::size_t counters_offset = slab_.layout().record_bytes() - sizeof(RowCounters);
  std::uint64_t dropped = 0;
  const auto segments = cold.segments();
  for (const auto& segment : segments) {
    if (segment == nullptr || segment->live_rows == 0) {
      continue;
    }
    std::vector<std::pair<std::int64_t, std::uint32_t>> leaving;
    cold.visit_live(*segment, [&](std::int64_t key, std::uint32_t location, const std::byte* record) {
      if (find(key) != location) {
        return;  // the copy of a row that is in memory
      }
      RowCounters counters;
      std::memcpy(&counters, record + counters_offset, sizeof counters);
      std::uint64_t* const reason = reason_to_drop(counters, now, total);
      if (reason != nullptr) {
        ++*reason;
        leaving.emplace_back(key, location);
      }
    });
    for (const auto& [key, location] : leaving) {
      forget_cold(key, location);
    }
    dropped += leaving.size();
  }
  return dropped;
}

}  // namespace graphbox
