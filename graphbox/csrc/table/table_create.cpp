// New rows: which keys get one, its number, and what it holds.
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "parallel/parallel_for.h"
#include "random/philox_fill.h"
#include "table/batch.h"
#include "table/float16.h"
#include "table/location.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {
namespace {

constexpr std::size_t kInsertDistance = 16;

// Rounds values to those that a row stores as float16.
void round_through_float16(float* values, std::size_t count) {
  constexpr std::size_t kBlock = 256;
  std::array<std::uint16_t, kBlock> halves;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    to_float16(values + begin, halves.data(), length);
    from_float16(halves.data(), values + begin, length);
  }
}

}  // namespace

// Gives each missing key that is admitted a row, in their order, and writes the rows' numbers, or kNoRow; and to `out`,
// unless that is null, their values. If the table cannot grow that far, no key has got one.
void Table::create_missing(const Batch& batch, const std::vector<std::int64_t>& missing, std::uint32_t* rows,
                           int threads, float* out) {
  const bool takes_all = tier_ == nullptr && !drops_rows() && admission_.admits_all();
  if (takes_all && is_room_for(live_rows() + missing.size())) {
    const auto count = static_cast<std::int64_t>(missing.size());
    PooledArray<std::int64_t> keys(count);
    for (std::int64_t i = 0; i < count; ++i) {
      keys[i] = batch.keys[missing[static_cast<std::size_t>(i)]];
    }
    threads = useful_threads(threads, count);
    const std::uint64_t before = slab_.rows();
    make_room(live_rows() + missing.size(), threads);
    const IsNew is_new = place_together(keys.data(), count, rows, threads);
    slab_.touch(before, threads);
    events_.admitted_keys += static_cast<std::uint64_t>(std::count(is_new.begin(), is_new.end(), true));
    fill_rows(batch, missing, rows, is_new, threads, out);
  } else {
    fill_rows(batch, missing, rows, place_in_turn(batch, missing, rows), threads, out);
  }
}

// Gives each key without a row one, in their order, and writes the rows of all; that keys are written to their rows, and
// that there is room for all of them, is up to the caller. Returns which keys are new, each at its first place.
Table::IsNew Table::place_together(const std::int64_t* keys, std::int64_t count, std::uint32_t* rows, int threads) {
  RowIndex::Inserted inserted = index_.insert_missing(keys, count, threads);
  PooledArray<std::uint32_t> taken;
  try {
    taken.resize(std::count(inserted.is_new.begin(), inserted.is_new.end(), true));
    take_rows(taken.data(), static_cast<std::uint64_t>(taken.size()));
  } catch (...) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (inserted.is_new[i]) {
        index_.erase(keys[i], index_.hash(keys[i]));
      }
    }
    throw;
  }
  for (std::int64_t i = 0, next = 0; i < count; ++i) {
    if (inserted.is_new[i]) {
      *inserted.places[i] = taken[next++];
    }
  }
  parallel_for(threads, chunks_of(count), [&](std::int64_t chunk) {
    for (std::int64_t i = chunk * kChunkKeys; i < std::min((chunk + 1) * kChunkKeys, count); ++i) {
      rows[i] = *inserted.places[i];
    }
  });
  return std::move(inserted.is_new);
}

// Gives each missing key that is admitted a row, where that must be asked for each, or others must make room for it.
Table::IsNew Table::place_in_turn(const Batch& batch, const std::vector<std::int64_t>& missing, std::uint32_t* rows) {
  IsNew is_new(static_cast<std::int64_t>(missing.size()));
  std::fill_n(is_new.data(), is_new.size(), false);
  std::vector<std::uint32_t> created;
  created.reserve(missing.size());
  Pins pins;
  std::uint64_t refused = 0;
  try {
    count_pulled(batch, missing);
    for (std::size_t i = 0; i < missing.size(); ++i) {
      if (i + kInsertDistance < missing.size()) {
        index_.prefetch(index_.hash(batch.keys[missing[i + kInsertDistance]]));
      }
      const std::int64_t key = batch.keys[missing[i]];
      rows[i] = find(key);
      if (rows[i] == kNoRow && !batch.admits_all && !admission_.admits(key, pass_)) {
        ++refused;
      } else if (rows[i] == kNoRow) {
        if (drops_rows()) {
          drop_for(batch, missing, created, pins);
        }
        rows[i] = take_row();
        slab_.key(rows[i]) = key;
        index_.insert(key, index_.hash(key), rows[i]);
        created.push_back(rows[i]);
        is_new[static_cast<std::int64_t>(i)] = true;
      }
    }
  } catch (...) {
    admission_.take_back();
    std::for_each(created.rbegin(), created.rend(), [&](std::uint32_t row) { give_back(row); });
    throw;
  }
  for (const std::uint32_t row : created) {
    admission_.forget(slab_.key(row));
  }
  admission_.keep();
  events_.admitted_keys += created.size();
  events_.refused_pulls += batch.is_pull ? refused : 0;
  if (tier_ != nullptr) {
    note_created(created);
  }
  return is_new;
}

// Writes keys, values and state of new rows, and the values of all of these rows to `out`.
void Table::fill_rows(const Batch& batch, const std::vector<std::int64_t>& missing, const std::uint32_t* rows,
                      const IsNew& is_new, int threads, float* out) {
  const std::int64_t count = is_new.size();
  const auto for_keys = [&](bool are_new, const auto& visit) {
    parallel_for(useful_threads(threads, count), chunks_of(count), [&](std::int64_t chunk) {
      for (std::int64_t i = chunk * kChunkKeys; i < std::min((chunk + 1) * kChunkKeys, count); ++i) {
        if (is_new[i] == are_new) {
          const std::int64_t position = missing[static_cast<std::size_t>(i)];
          visit(batch.keys[position], rows[i],
                out != nullptr ? out + static_cast<std::size_t>(position) * config_.dim : nullptr);
        }
      }
    });
  };
  for_keys(true, [&](std::int64_t key, std::uint32_t row, float* target) {
    slab_.key(row) = key;
    initialize_values(key, row);
    initialize_state(row);
    if (target != nullptr) {
      slab_.copy_values(row, target);
    }
  });
  if (out == nullptr || std::count(is_new.begin(), is_new.end(), true) == count) {
    return;
  }
  for_keys(false, [&](std::int64_t key, std::uint32_t row, float* target) {
    if (row != kNoRow) {
      slab_.copy_values(row, target);
    } else {
      initial_values(key, target);
    }
  });
}

// A row without a key: one that was erased, or a new one. 0 new keys: for one that is in the index, with a row on SSD.
std::uint32_t Table::take_row(std::uint64_t new_keys) {
  if (tier_ != nullptr) {
    check_hot_room(new_keys);
  } else {
    make_room(live_rows() + new_keys);
  }
  std::uint32_t row = kNoRow;
  take_rows(&row, 1);
  return row;
}

// So many of them; there must be room.
void Table::take_rows(std::uint32_t* rows, std::uint64_t count) {
  const std::uint64_t used = std::min<std::uint64_t>(count, free_rows_.size());
  const std::uint64_t first = slab_.rows();
  const std::uint64_t all = first + count - used;
  if (all > first) {
    live_.resize((all + 63) / 64);
    slab_.resize(all);
    if (tier_ != nullptr) {
      tier_->resize(all);
    }
  }
  for (ChangeTracker& changes : trackers_) {
    changes.grow(all);
  }
  if (marks_visits()) {
    visited_.resize(all);
  }
  std::copy_n(free_rows_.rbegin(), used, rows);
  free_rows_.resize(free_rows_.size() - used);
  std::iota(rows + used, rows + count, static_cast<std::uint32_t>(first));
  for (std::uint64_t i = 0; i < count; ++i) {
    set_live(rows[i], true);
    for (ChangeTracker& changes : trackers_) {
      changes.mark_created(rows[i]);
    }
    if (marks_visits()) {
      visited_.forget(rows[i]);
    }
  }
}

// Computes the initial values of a new key's row.
void Table::initial_values(std::int64_t key, float* values) const {
  constexpr std::uint32_t kGroups = 4;  // at a time
  std::array<std::uint32_t, kPhiloxGroupWords * kGroups> words;
  for (std::size_t begin = 0; begin < config_.dim; begin += words.size()) {
    const std::size_t count = std::min(config_.dim - begin, words.size());
    philox_fill(init_key_, 0, static_cast<std::uint64_t>(key), static_cast<std::uint32_t>(begin / kPhiloxGroupWords),
                static_cast<std::uint32_t>((count + kPhiloxGroupWords - 1) / kPhiloxGroupWords), words.data());
    uniform_values(values + begin, words.data(), count, config_.init_scale);
  }
  if (config_.value_type == ValueType::kFloat16) {
    round_through_float16(values, config_.dim);
  }
}

void Table::initialize_values(std::int64_t key, std::uint32_t row) {
  if (config_.value_type == ValueType::kFloat32) {
    initial_values(key, slab_.float32_values(row));
    return;
  }
  std::vector<float> values(config_.dim);
  initial_values(key, values.data());
  slab_.set_values(row, values.data());
}

// All that a new row has besides its values.
void Table::initialize_state(std::uint32_t row) {
  update_.initialize(slab_.state(row), config_.dim);
  if (slab_.layout().has_counters) {
    slab_.counters(row) = {0, 0, pass_, time()};
  }
}

}  // namespace graphbox
