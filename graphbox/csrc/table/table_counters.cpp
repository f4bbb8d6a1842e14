// Policy counters: of rows their shows, clicks and last pass and time; and those of keys without a row.
#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "table/batch.h"
#include "table/cold_rows.h"
#include "table/counters.h"
#include "table/location.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {

void Table::end_pass() {
  const std::unique_lock lock(mutex_);
  pass_ += pass_ < kNeverExpires - 1 ? 1 : 0;
}

std::uint32_t Table::pass() const {
  const std::shared_lock lock(mutex_);
  return pass_;
}

PolicyEvents Table::policy_events() const {
  const std::shared_lock lock(mutex_);
  return events_;
}

void Table::check_shows(const std::int64_t* keys, const Push& push) const {
  for (std::int64_t i = 0; i < push.count; ++i) {
    const float shows = push.shows_at(i);
    const float clicks = push.clicks_at(i);
    if (!(shows >= 0 && clicks >= 0 && clicks <= shows && shows <= std::numeric_limits<float>::max())) {
      throw Error(ErrorKind::kData,
                  "expected finite shows, 0 or more, and clicks from 0 to those; at position " + std::to_string(i) +
                      " there are " + std::to_string(shows) + " shows and " + std::to_string(clicks) +
                      " clicks, and nothing was applied",
                  "key " + std::to_string(keys[i]));
    }
    if (push.shows == nullptr && push.clicks == nullptr) {
      return;
    }
  }
}

// Of gradients whose keys were not admitted.
void Table::count_dropped(const std::uint32_t* rows, std::int64_t count) {
  if (!admission_.admits_all()) {
    events_.dropped_gradients += static_cast<std::uint64_t>(std::count(rows, rows + count, kNoRow));
  }
}

void Table::count_push(std::uint32_t row, float shows, float clicks) const {
  RowCounters& counters = slab_.counters(row);
  counters = decayed(counters, pass_, config_.policies.decay);
  counters.shows += shows;
  counters.clicks += clicks;
  counters.last_seen_pass = pass_;
  counters.last_seen_second = time();
}

float Table::score(std::uint32_t row) const {
  return score_of(decayed(slab_.counters(row), pass_, config_.policies.decay), config_.policies);
}

void Table::counters(const std::int64_t* keys, std::int64_t count, const KeyCounters& out, int threads) const {
  std::shared_lock lock(mutex_);
  if (!slab_.layout().has_counters) {
    throw Error(ErrorKind::kUsage, "rows of this table have no counters", {},
                "make the table with score, expiry or eviction=\"score\"");
  }
  const std::uint32_t pass = pass_;
  const auto tell = [&](std::int64_t i, bool has_row, const RowCounters& known) {
    const RowCounters now = decayed(known, pass, config_.policies.decay);
    out.has_row[i] = has_row;
    out.shows[i] = now.shows;
    out.clicks[i] = now.clicks;
    out.scores[i] = score_of(now, config_.policies);
    out.unseen_passes[i] = elapsed(now.last_seen_pass, pass);
    out.last_seen_second[i] = now.last_seen_second;
  };
  std::vector<std::vector<std::int64_t>> cold_by_chunk(static_cast<std::size_t>(chunks_of(count)));
  parallel_for(useful_threads(threads, count), chunks_of(count), [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkKeys, count);
    for (std::int64_t i = chunk * kChunkKeys; i < end; ++i) {
      const std::uint32_t row = find(keys[i]);
      if (is_cold(row)) {
        cold_by_chunk[static_cast<std::size_t>(chunk)].push_back(i);
      } else {
        tell(i, is_hot(row), is_hot(row) ? slab_.counters(row) : RowCounters{0, 0, pass, 0});
      }
    }
  });
  std::vector<WantedRow> cold;
  for (const std::int64_t i : joined(cold_by_chunk)) {
    cold.push_back({find(keys[i]), static_cast<std::uint32_t>(i), keys[i]});
  }
  if (cold.empty()) {
    return;
  }
  ColdReading reading = tier_->cold.reading(std::move(cold));
  lock.unlock();
  const std::size_t counters_offset = slab_.layout().record_bytes() - sizeof(RowCounters);
  tier_->cold.read(reading, [&](const WantedRow& row, const std::byte* record) {
    RowCounters known;
    std::memcpy(&known, record + counters_offset, sizeof known);
    tell(row.index, true, known);
  });
}

// Counts the missing keys that have no row indeed. Which fit is known before.
void Table::count_pulled(const Batch& batch, const std::vector<std::int64_t>& missing) {
  if (!batch.is_pull || admission_.admits_all()) {
    return;
  }
  std::vector<std::int64_t> without_row;
  without_row.reserve(missing.size());
  for (const std::int64_t position : missing) {
    if (find(batch.keys[position]) == kNoRow) {
      without_row.push_back(position);
    }
  }
  // With rows on SSD counts are of fixed size, and rows make room for each other.
  const std::uint64_t bytes = tier_ == nullptr ? bytes_with(live_rows(), without_row.size()) : 0;
  if (bytes > config_.memory_bytes) {
    throw Error(ErrorKind::kDoesNotFit,
                "the table may take " + std::to_string(config_.memory_bytes) +
                    " bytes (memory_bytes); with the counts of keys that have no row it would take " +
                    std::to_string(bytes),
                {}, "raise memory_bytes, or let admission count in a sketch (sketch_bytes) or forget (halve_after)");
  }
  admission_.count(batch.keys, without_row);
}

namespace {

// The number of the pass, then what admission counted.
std::vector<std::byte> with_pass(std::uint32_t pass, const std::vector<std::byte>& counted) {
  std::vector<std::byte> state(sizeof pass + counted.size());
  std::memcpy(state.data(), &pass, sizeof pass);
  std::copy(counted.begin(), counted.end(), state.begin() + sizeof pass);
  return state;
}

}  // namespace

// For a checkpoint, at its moment. Only whoever saves changes what is followed, one at a time.
std::vector<std::byte> Table::take_policy_state(const CheckpointRequest& request) {
  if (request.chain != kTrainingChain) {
    return with_pass(pass_, admission_.state());
  }
  std::vector<std::byte> state =
      with_pass(pass_, request.is_delta ? admission_.changes(KeyAdmission::kChain) : admission_.state());
  admission_.begin_next(KeyAdmission::kChain);
  return state;
}

std::optional<std::vector<std::byte>> Table::take_state(bool is_whole) {
  const std::unique_lock lock(mutex_);
  if (!is_whole && pass_ == confirmed_pass_ && !admission_.has_changed(KeyAdmission::kFolder)) {
    return std::nullopt;
  }
  std::vector<std::byte> state =
      with_pass(pass_, is_whole ? admission_.state() : admission_.changes(KeyAdmission::kFolder));
  admission_.begin_next(KeyAdmission::kFolder);
  taken_pass_ = pass_;
  return state;
}

void Table::confirm_state() {
  const std::unique_lock lock(mutex_);
  admission_.confirm(KeyAdmission::kFolder);
  confirmed_pass_ = taken_pass_;
}

void Table::restore_state() {
  const std::unique_lock lock(mutex_);
  admission_.restore(KeyAdmission::kFolder);
}

void Table::add_policy_state(const std::byte* state, std::size_t bytes, const Shard& shard) {
  const std::unique_lock lock(mutex_);
  std::uint32_t pass = 0;
  if (bytes < sizeof pass) {
    throw Error(ErrorKind::kFormat, "the state of the table's policies is cut off: " + std::to_string(bytes) + " bytes");
  }
  std::memcpy(&pass, state, sizeof pass);
  admission_.add_state(state + sizeof pass, bytes - sizeof pass, [&](std::int64_t key) {
    return shard.count == 1 || shard_of(key, shard.count) == shard.number;
  });
  pass_ = std::max(pass_, pass);
  if (tier_ == nullptr) {
    check_budget(bytes_with(live_rows()), live_rows());
  }
}

}  // namespace graphbox
