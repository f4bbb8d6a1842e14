// Dropping what is not worth its memory: rows that were not seen for long, and rows of low score.
#include <mutex>

#include "parallel/parallel_for.h"
#include "table/batch.h"
#include "table/counters.h"
#include "table/table.h"

namespace graphbox {

ShrinkCounts Table::shrink(int threads) {
  const std::unique_lock lock(mutex_);
  const PolicyConfig& policies = config_.policies;
  ShrinkCounts total;
  total.examined = live_rows();
  total.bytes_per_row = slab_.bytes_per_row();
  if (!slab_.layout().has_counters) {
    return total;
  }
  const auto rows = static_cast<std::int64_t>(slab_.rows());
  const std::uint32_t now = time();
  std::vector<ShrinkCounts> counts(static_cast<std::size_t>(chunks_of(rows)));
  std::vector<std::vector<std::int64_t>> dropped_by_chunk(counts.size());
  parallel_for(useful_threads(threads, rows), chunks_of(rows), [&](std::int64_t chunk) {
    ShrinkCounts& count = counts[static_cast<std::size_t>(chunk)];
    for (std::int64_t i = chunk * kChunkKeys; i < std::min((chunk + 1) * kChunkKeys, rows); ++i) {
      const auto row = static_cast<std::uint32_t>(i);
      if (!is_live(row)) {
        continue;
      }
      const RowCounters& counters = slab_.counters(row);
      if (policies.expiry_passes != kNeverExpires && elapsed(counters.last_seen_pass, pass_) > policies.expiry_passes) {
        ++count.unseen_passes;
      } else if (policies.expiry_seconds != kNeverExpires &&
                 elapsed(counters.last_seen_second, now) > policies.expiry_seconds) {
        ++count.unseen_seconds;
      } else if (policies.has_score && score(row) < policies.drop_below) {
        ++count.low_score;
      } else {
        continue;
      }
      dropped_by_chunk[static_cast<std::size_t>(chunk)].push_back(i);
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
  if (!dropped.empty()) {
    version_ = new_version();
    ++updates_;
    events_.dropped_rows += dropped.size();
  }
  return total;
}

}  // namespace graphbox
