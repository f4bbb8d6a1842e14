// Whole rows, values and state, out of the table and back: for a tier above it, which trains them meanwhile.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "parallel/parallel_for.h"
#include "table/batch.h"
#include "table/float16.h"
#include "table/location.h"
#include "table/lookup.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {
namespace {

constexpr std::size_t kPlacedRows = 64;  // at a time, which there is room for in any memory beside rows on SSD

}  // namespace

void Table::admit(const std::int64_t* keys, std::int64_t count, bool is_pull, int threads) {
  PooledArray<std::uint32_t> rows(count);
  const auto lock = lock_with_rows({keys, count, rows.data(), is_pull}, threads);
  if (!is_pull) {
    count_dropped(rows.data(), count);
  }
}

// Rows on SSD are read where they are, and stay there.
void Table::read_records(const std::int64_t* keys, std::int64_t count, std::byte* records, bool* has_row,
                         int threads) const {
  const std::size_t record_bytes = slab_.layout().record_bytes();
  const std::int64_t chunks = chunks_of(count);
  std::vector<std::vector<std::int64_t>> cold_by_chunk(static_cast<std::size_t>(chunks));
  std::shared_lock lock(mutex_);
  VisitedRows* const visited = tier_ != nullptr ? &tier_->visited : nullptr;
  parallel_for(useful_threads(threads, count), chunks, [&](std::int64_t chunk) {
    auto& cold = cold_by_chunk[static_cast<std::size_t>(chunk)];
    look_up(index_, slab_, slab_.view().row_bytes, keys, chunk * kChunkKeys, std::min((chunk + 1) * kChunkKeys, count),
            [&](std::int64_t i, std::uint32_t row, const std::byte*) {
              std::byte* const record = records + static_cast<std::size_t>(i) * record_bytes;
              has_row[i] = row != kNoRow;
              if (is_hot(row)) {
                slab_.write_record(row, record);
                if (visited != nullptr) {
                  visited->visit(row);
                }
              } else if (is_cold(row)) {
                cold.push_back(i);
              } else {
                initial_record(keys[i], record);
              }
            });
  });
  std::vector<WantedRow> cold;
  for (const std::int64_t i : joined(cold_by_chunk)) {
    cold.push_back({find(keys[i]), static_cast<std::uint32_t>(i), keys[i]});
  }
  if (cold.empty()) {
    return;
  }
  tier_->misses.fetch_add(cold.size(), std::memory_order_relaxed);
  ColdReading reading = tier_->cold.reading(std::move(cold));
  lock.unlock();
  tier_->cold.read(reading, [&](const WantedRow& row, const std::byte* record) {
    std::memcpy(records + std::size_t{row.index} * record_bytes, record, record_bytes);
  });
}

// Builds the record of a new key's row.
void Table::initial_record(std::int64_t key, std::byte* record) const {
  const RowLayout& layout = slab_.layout();
  std::vector<float> numbers(config_.dim * (1 + state_per_value(config_.optimizer.kind)));
  float* const values = numbers.data();
  float* const per_value = values + config_.dim;
  initial_values(key, values);
  float accumulator = 0;
  std::uint32_t steps = 0;
  update_.initialize({layout.has_accumulator ? &accumulator : nullptr, layout.has_steps ? &steps : nullptr, per_value},
                     config_.dim);
  const RowCounters counters = {0, 0, pass_, time()};
  if (config_.value_type == ValueType::kFloat16) {
    to_float16(values, reinterpret_cast<std::uint16_t*>(record), config_.dim);
  } else {
    std::memcpy(record, values, layout.value_bytes);
  }
  record += layout.value_bytes;
  const auto write = [&record](bool is_there, const void* part, std::size_t bytes) {
    if (is_there) {
      std::memcpy(record, part, bytes);
      record += bytes;
    }
  };
  write(layout.state_bytes > 0, per_value, layout.state_bytes);
  write(layout.has_accumulator, &accumulator, sizeof accumulator);
  write(layout.has_steps, &steps, sizeof steps);
  write(layout.has_counters, &counters, sizeof counters);
}

// Rows on SSD get a place in memory without being read: nothing of them is kept.
std::int64_t Table::write_records(const std::int64_t* keys, std::int64_t count, const std::byte* records, int threads) {
  const std::size_t record_bytes = slab_.layout().record_bytes();
  std::vector<std::vector<std::int64_t>> cold_by_chunk(static_cast<std::size_t>(chunks_of(count)));
  std::atomic<std::int64_t> written{0};
  std::optional<MovingTurn> turn;
  if (tier_ != nullptr) {
    give_way_to_compaction();
    turn.emplace(*tier_);
  }
  const std::unique_lock lock(mutex_);
  PooledArray<std::uint32_t> rows(tier_ != nullptr ? count : 0);
  parallel_for(useful_threads(threads, count), chunks_of(count), [&](std::int64_t chunk) {
    auto& cold = cold_by_chunk[static_cast<std::size_t>(chunk)];
    std::int64_t of_chunk = 0;
    look_up(index_, slab_, slab_.view().row_bytes, keys, chunk * kChunkKeys, std::min((chunk + 1) * kChunkKeys, count),
            [&](std::int64_t i, std::uint32_t row, const std::byte*) {
              if (rows.size() > 0) {
                rows[i] = is_hot(row) ? row : kNoRow;
              }
              if (is_hot(row)) {
                slab_.read_record(row, records + static_cast<std::size_t>(i) * record_bytes);
                for (ChangeTracker& changes : trackers_) {
                  changes.mark(row);
                }
                ++of_chunk;
              } else if (is_cold(row)) {
                cold.push_back(i);
              }
            });
    written += of_chunk;
  });
  ++updates_;
  note_changed(rows.data(), rows.size());
  const std::vector<std::int64_t> cold = joined(cold_by_chunk);
  if (!cold.empty()) {
    std::fill(tier_->pinned.begin(), tier_->pinned.end(), 0);
  }
  for (std::size_t i = 0; i < cold.size(); ++i) {
    if (i % kPlacedRows == 0) {
      make_space(std::min(cold.size() - i, kPlacedRows), 0);
    }
    put_record(keys[cold[i]], records + static_cast<std::size_t>(cold[i]) * record_bytes);
  }
  return written + static_cast<std::int64_t>(cold.size());
}

}  // namespace graphbox
