// Room for new rows where memory is used up and there is no tier below: others are dropped, and start anew if their
// keys come back.
#include <algorithm>
#include <array>
#include <bit>

#include "errors/error.h"
#include "table/counters.h"
#include "table/table.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kShareDropped = 16;  // of the rows, at once: to find the lowest scores, all are read
constexpr int kBinShift = 16;                // scores are told apart by the upper half of their bits, to 0.8 %
constexpr std::size_t kBins = std::size_t{1} << 15;

// Numbers that are not negative compare as their bits do. What is no number counts as 0: shows and clicks that grew
// beyond all numbers leave nothing.
std::size_t bin_of(float score) { return std::bit_cast<std::uint32_t>(score > 0 ? score : 0.0F) >> kBinShift; }

}  // namespace

void Table::mark_visited(const std::uint32_t* rows, std::int64_t begin, std::int64_t end) const {
  for (std::int64_t i = begin; i < end; ++i) {
    if (rows[i] != kNoRow) {
      visited_.visit(rows[i]);
    }
  }
}

bool Table::is_room_for(std::uint64_t rows) const {
  return bytes_with(rows) <= config_.memory_bytes && rows <= std::uint64_t{1} << 31;
}

// The most rows that there can be at once.
std::uint64_t Table::most_rows() const {
  std::uint64_t fits = live_rows();
  for (std::uint64_t step = std::uint64_t{1} << 30; step > 0; step /= 2) {
    fits += is_room_for(fits + step) ? step : 0;
  }
  return fits;
}

// Drops rows if there is no room for one more: none of the batch, nor of those created for it.
void Table::drop_for(const Batch& batch, const std::vector<std::int64_t>& missing,
                     const std::vector<std::uint32_t>& created, Pins& pins) {
  if (is_room_for(live_rows() + 1)) {
    return;
  }
  if (pins.words.empty()) {
    pin_batch(batch, missing, pins);
  }
  for (; pins.created < created.size(); ++pins.created) {
    const std::uint32_t row = created[pins.created];
    pins.words[row / 64] |= std::uint64_t{1} << (row % 64);
  }
  const bool by_clock = config_.policies.eviction == Eviction::kClock;
  const std::uint64_t dropped = by_clock ? drop_by_clock(1, pins) : drop_by_score(live_rows() / kShareDropped + 1, pins);
  events_.evicted_rows += dropped;
  if (dropped > 0) {
    version_ = new_version();
    ++updates_;
  }
}

// Refuses a batch that needs more rows at once than there can be, before any is dropped for it.
void Table::pin_batch(const Batch& batch, const std::vector<std::int64_t>& missing, Pins& pins) const {
  pins.words.resize(live_.size());
  for (std::int64_t i = 0; i < batch.count; ++i) {
    if (batch.rows[i] != kNoRow) {
      pins.words[batch.rows[i] / 64] |= std::uint64_t{1} << (batch.rows[i] % 64);
    }
  }
  const std::uint64_t most = most_rows();
  if (static_cast<std::uint64_t>(batch.count) <= most) {
    return;
  }
  std::vector<std::int64_t> keys;
  for (const std::int64_t position : missing) {
    if (admission_.admits(batch.keys[position], pass_)) {
      keys.push_back(batch.keys[position]);
    }
  }
  std::sort(keys.begin(), keys.end());
  std::uint64_t needed = static_cast<std::uint64_t>(std::unique(keys.begin(), keys.end()) - keys.begin());
  for (const std::uint64_t word : pins.words) {
    needed += static_cast<std::uint64_t>(std::popcount(word));
  }
  if (needed > most) {
    throw Error(ErrorKind::kDoesNotFit,
                "the table has room for " + std::to_string(most) + " rows in " + std::to_string(config_.memory_bytes) +
                    " bytes (memory_bytes); the batch needs " + std::to_string(needed) + " at once",
                {}, "raise memory_bytes, or use smaller batches");
  }
}

std::uint64_t Table::drop_by_clock(std::uint64_t count, const Pins& pins) {
  return visited_.evict(count, live_, pins.words, [&](std::uint32_t row) { give_back(row); });
}

// Of equal scores, the rows of lower numbers go first.
std::uint64_t Table::drop_by_score(std::uint64_t count, const Pins& pins) {
  const auto for_each_loose = [&](auto visit) {
    for (std::size_t place = 0; place < live_.size(); ++place) {
      for (std::uint64_t loose = live_[place] & ~pins.words[place]; loose != 0; loose &= loose - 1) {
        visit(static_cast<std::uint32_t>(place * 64 + static_cast<std::size_t>(std::countr_zero(loose))));
      }
    }
  };
  std::vector<std::uint32_t> rows_in_bin(kBins);
  for_each_loose([&](std::uint32_t row) { ++rows_in_bin[bin_of(score(row))]; });
  std::uint64_t below = 0;  // the rows in bins before `last`, all of which go
  std::size_t last = 0;
  while (last + 1 < kBins && below + rows_in_bin[last] < count) {
    below += rows_in_bin[last++];
  }
  std::uint64_t left_in_last = std::min<std::uint64_t>(count - below, rows_in_bin[last]);
  std::uint64_t dropped = 0;
  for_each_loose([&](std::uint32_t row) {
    const std::size_t bin = bin_of(score(row));
    if (bin < last || (bin == last && left_in_last > 0)) {
      left_in_last -= bin == last ? 1 : 0;
      give_back(row);
      ++dropped;
    }
  });
  return dropped;
}

}  // namespace graphbox
