// Learning: gradients of equal keys are summed and applied once.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "random/philox_fill.h"
#include "table/batch.h"
#include "table/float16.h"
#include "table/table.h"

namespace graphbox {
namespace {

constexpr auto kBlockRows = static_cast<std::int64_t>(kUpdatedRows);
constexpr std::int64_t kPartitionKeys = std::int64_t{1} << 16;  // that one thread groups at a time
constexpr std::int64_t kMostPushed = std::int64_t{1} << 30;
constexpr std::uint32_t kWordsPerGroup = 32;  // that philox_fill makes

// Another learning rate for one push.
class LearningRate {
 public:
  LearningRate(RowUpdate& update, std::optional<float> lr) : update_(update), own_(update.config().lr) {
    update_.set_lr(lr.value_or(own_));
  }
  ~LearningRate() { update_.set_lr(own_); }
  LearningRate(const LearningRate&) = delete;
  LearningRate& operator=(const LearningRate&) = delete;

 private:
  RowUpdate& update_;
  float own_;
};

}  // namespace

// What a thread needs to update rows, besides the table.
struct Table::Workspace {
  explicit Workspace(const TableConfig& config)
      : sums(config.dim * kUpdatedRows),
        values(config.value_type == ValueType::kFloat32 ? 0 : config.dim * kUpdatedRows),
        words(config.value_type == ValueType::kFloat32 ? 0 : groups_of(config.dim) * kWordsPerGroup) {}

  // Of Philox words: one word rounds two values.
  static std::uint32_t groups_of(std::uint64_t dim) {
    return static_cast<std::uint32_t>((dim + 2 * kWordsPerGroup - 1) / (2 * kWordsPerGroup));
  }

  std::vector<float> sums;
  std::vector<float> values;
  std::vector<std::uint32_t> words;
};

void Table::push(const std::int64_t* keys, const Push& push, int threads) {
  const std::vector<std::int64_t> left_out = nonfinite_positions(keys, push, threads);
  check_shows(keys, push);
  PooledArray<std::uint32_t> rows(push.count);
  const auto lock = lock_with_rows({keys, push.count, rows.data(), false}, threads);
  count_dropped(rows.data(), push.count);
  leave_out(left_out, rows.data());
  apply(rows.data(), push, threads);
}

std::uint64_t Table::push_rows(const PulledRows& pulled, const Push& push, std::optional<float> lr, int threads) {
  const std::vector<std::int64_t> left_out = nonfinite_positions(pulled.keys.data(), push, threads);
  check_shows(pulled.keys.data(), push);
  const std::uint32_t* const end = pulled.rows.data() + push.count;
  // A key that had no row may have been admitted since.
  const bool has_all = admission_.admits_all() || std::find(pulled.rows.data(), end, kNoRow) == end;
  std::unique_lock lock(mutex_);
  const bool is_current = has_all && pulled.version == version_;
  if (is_current && left_out.empty()) {
    const LearningRate learning_rate(update_, lr);
    count_dropped(pulled.rows.data(), push.count);
    apply(pulled.rows.data(), push, threads);
    return changes_now();
  }
  PooledArray<std::uint32_t> rows(push.count);
  if (is_current) {
    std::copy_n(pulled.rows.data(), push.count, rows.data());
  } else {
    lock.unlock();
    lock = lock_with_rows({pulled.keys.data(), push.count, rows.data(), false}, threads);
  }
  const LearningRate learning_rate(update_, lr);
  count_dropped(rows.data(), push.count);
  leave_out(left_out, rows.data());
  apply(rows.data(), push, threads);
  return changes_now();
}

// The lock under which all keys that are admitted have rows in memory, whose numbers are written.
std::unique_lock<std::shared_mutex> Table::lock_with_rows(const Batch& batch, int threads) {
  if (tier_ != nullptr) {
    return lock_with_hot_rows(batch, threads);
  }
  std::unique_lock lock(mutex_);
  locate_or_create(batch, threads);
  return lock;
}

// Which keys have gradients that hold NaN or infinity. If those are to be refused, the first one is, before anything
// changes.
std::vector<std::int64_t> Table::nonfinite_positions(const std::int64_t* keys, const Push& push, int threads) const {
  if (push.count > kMostPushed) {
    throw Error(ErrorKind::kUsage, "a push can have at most 2^30 keys, received " + std::to_string(push.count), {},
                "push smaller batches");
  }
  std::vector<std::int64_t> gradients = nonfinite_gradients(push, threads);
  const bool is_scaled = push.scale_of != nullptr && !all_finite(push.scale_of, static_cast<std::size_t>(push.count));
  if (gradients.empty() && !is_scaled) {
    return gradients;
  }
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < push.count; ++i) {
    const std::int64_t gradient = push.gradient_of != nullptr ? push.gradient_of[i] : i;
    if (std::binary_search(gradients.begin(), gradients.end(), gradient) || !std::isfinite(push.scale(i))) {
      if (!config_.skip_nonfinite) {
        throw Error(ErrorKind::kData,
                    "gradients must be finite; the one at position " + std::to_string(gradient) +
                        " holds NaN or infinity, and none was applied",
                    "key " + std::to_string(keys[i]),
                    "lower the learning rate, or make the table with nonfinite=\"skip\"");
      }
      positions.push_back(i);
    }
  }
  return positions;
}

// Which gradients hold NaN or infinity.
std::vector<std::int64_t> Table::nonfinite_gradients(const Push& push, int threads) const {
  const std::size_t dim = config_.dim;
  const std::int64_t count = push.gradient_count;
  std::vector<std::vector<std::int64_t>> found_by_chunk(static_cast<std::size_t>(chunks_of(count)));
  parallel_for(useful_threads(threads, count), chunks_of(count), [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunkKeys;
    const std::int64_t end = std::min(begin + kChunkKeys, count);
    const auto values = static_cast<std::size_t>(end - begin) * dim;
    if (all_finite(push.gradients + static_cast<std::size_t>(begin) * dim, values)) {
      return;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      if (!all_finite(push.gradients + static_cast<std::size_t>(i) * dim, dim)) {
        found_by_chunk[static_cast<std::size_t>(chunk)].push_back(i);
      }
    }
  });
  return joined(found_by_chunk);
}

// apply() passes over positions without a row.
void Table::leave_out(const std::vector<std::int64_t>& positions, std::uint32_t* rows) {
  for (const std::int64_t position : positions) {
    rows[position] = kNoRow;
  }
  skipped_gradients_.fetch_add(positions.size(), std::memory_order_relaxed);
}

// Groups the batch by row, so that each row belongs to one thread and keeps its order.
void Table::apply(const std::uint32_t* rows, const Push& push, int threads) {
  if (config_.value_type == ValueType::kInt8) {
    throw Error(ErrorKind::kUsage, "rows of int8 are for lookups alone", "dtype", "train rows of float32 or float16");
  }
  ++updates_;
  if (tier_ != nullptr) {
    note_changed(rows, push.count);
  }
  const std::int64_t count = push.count;
  threads = useful_threads(threads, count);
  if (threads <= 1) {
    apply_group(rows, push, nullptr, count);
    return;
  }
  const auto groups = std::bit_ceil(static_cast<std::uint32_t>(std::min(threads, 64)) * 8);
  const int shift = 32 - std::countr_zero(groups);
  // Another factor than in apply_group, whose slots would be crowded if a group shared their hash's upper bits.
  const auto group_of = [=](std::int64_t i) { return rows[i] * 0x85EBCA6BU >> shift; };
  // Counts the keys of each group in each chunk, then knows where each chunk puts its keys of each group.
  const std::int64_t chunks = (count + kPartitionKeys - 1) / kPartitionKeys;
  std::vector<std::int64_t> places(static_cast<std::size_t>(chunks) * groups, 0);
  const auto for_keys = [&](const auto& visit) {
    parallel_for(threads, chunks, [&](std::int64_t chunk) {
      std::int64_t* const of_chunk = places.data() + static_cast<std::size_t>(chunk) * groups;
      const std::int64_t end = std::min((chunk + 1) * kPartitionKeys, count);
      for (std::int64_t i = chunk * kPartitionKeys; i < end; ++i) {
        visit(of_chunk[group_of(i)], i);
      }
    });
  };
  for_keys([](std::int64_t& keys, std::int64_t) { ++keys; });
  std::vector<std::int64_t> begins(groups + 1, count);
  std::int64_t before = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    begins[group] = before;
    for (std::size_t place = group; place < places.size(); place += groups) {
      before += std::exchange(places[place], before);
    }
  }
  PooledArray<std::uint32_t> positions(count);
  std::uint32_t* const targets = positions.data();
  for_keys([=](std::int64_t& place, std::int64_t i) { targets[place++] = static_cast<std::uint32_t>(i); });
  parallel_for(threads, groups, [&](std::int64_t group) {
    const std::int64_t begin = begins[static_cast<std::size_t>(group)];
    apply_group(rows, push, positions.data() + begin, begins[static_cast<std::size_t>(group) + 1] - begin);
  });
}

// Applies the gradients at `positions` (null: at 0 ... count - 1), each row once, with the sum of its gradients.
void Table::apply_group(const std::uint32_t* rows, const Push& push, const std::uint32_t* positions,
                        std::int64_t count) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  struct Slot {
    std::uint32_t row;
    std::uint32_t unique;
  };
  struct Unique {
    std::uint32_t row;
    std::uint32_t first;  // position of its gradients: first, ... next of each ..., last
    std::uint32_t last;
  };
  if (count == 0) {
    return;
  }
  const std::size_t dim = config_.dim;
  const auto position_of = [&](std::int64_t i) {
    return positions != nullptr ? positions[i] : static_cast<std::uint32_t>(i);
  };
  const auto capacity = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count) * 2));
  const int shift = 32 - std::countr_zero(static_cast<std::uint64_t>(capacity));
  PooledArray<Slot> slots(capacity);
  std::fill_n(slots.data(), capacity, Slot{kNoRow, 0});
  PooledArray<Unique> uniques(count);
  PooledArray<std::uint32_t> next(count);  // by order in the group
  std::int64_t unique_count = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t row = rows[position_of(i)];
    next[i] = kNone;
    if (row == kNoRow) {
      continue;
    }
    std::uint64_t slot = row * 0x9E3779B1U >> shift;
    while (slots[static_cast<std::int64_t>(slot)].row != kNoRow && slots[static_cast<std::int64_t>(slot)].row != row) {
      slot = (slot + 1) & static_cast<std::uint64_t>(capacity - 1);
    }
    Slot& found = slots[static_cast<std::int64_t>(slot)];
    if (found.row == kNoRow) {
      found = {row, static_cast<std::uint32_t>(unique_count)};
      uniques[unique_count++] = {row, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i)};
    } else {
      Unique& unique = uniques[found.unique];
      next[unique.last] = static_cast<std::uint32_t>(i);
      unique.last = static_cast<std::uint32_t>(i);
    }
  }
  const auto gradient_at = [&](std::uint32_t i) { return push.gradient(position_of(i), dim); };
  const auto scale_at = [&](std::uint32_t i) { return push.scale(position_of(i)); };
  Workspace workspace(config_);
  // Blocks of rows: while one is updated, the memory of the next one is on its way. Where a row is, is computed when it
  // is asked for and not again: see RowIndex::View.
  std::array<std::array<RowGradient, kUpdatedRows>, 2> blocks;
  const auto ask_for = [&](std::int64_t begin) {
    const std::int64_t end = std::min(begin + kBlockRows, unique_count);
    auto& block = blocks[static_cast<std::size_t>(begin / kBlockRows % 2)];
    for (std::int64_t i = begin; i < end; ++i) {
      const Unique& unique = uniques[i];
      RowGradient& row = block[static_cast<std::size_t>(i - begin)];
      row = {slab_.float32_values(unique.row), slab_.state(unique.row), gradient_at(unique.first), 1.0F};
      slab_.prefetch_row(unique.row);
      prefetch_bytes(reinterpret_cast<const std::byte*>(row.gradient), dim * sizeof(float));
    }
  };
  ask_for(0);
  for (std::int64_t begin = 0; begin < unique_count; begin += kBlockRows) {
    ask_for(begin + kBlockRows);
    const std::int64_t end = std::min(begin + kBlockRows, unique_count);
    auto& block = blocks[static_cast<std::size_t>(begin / kBlockRows % 2)];
    for (std::int64_t i = begin; i < end; ++i) {
      const Unique& unique = uniques[i];
      RowGradient& row = block[static_cast<std::size_t>(i - begin)];
      float* const sum = workspace.sums.data() + static_cast<std::size_t>(i - begin) * dim;
      const std::uint32_t first = position_of(static_cast<std::int64_t>(unique.first));
      float shows = push.shows_at(first);
      float clicks = push.clicks_at(first);
      if (push.scale_of != nullptr) {
        set_scaled(sum, row.gradient, scale_at(unique.first), dim);
        row.gradient = sum;
      } else if (unique.first != unique.last) {
        std::memcpy(sum, row.gradient, dim * sizeof(float));
        row.gradient = sum;
      }
      for (std::uint32_t other = next[unique.first]; other != kNone; other = next[other]) {
        if (push.scale_of != nullptr) {
          add_scaled(sum, gradient_at(other), scale_at(other), dim);
        } else {
          add_gradient(sum, gradient_at(other), dim);
        }
        shows += push.shows_at(position_of(other));
        clicks += push.clicks_at(position_of(other));
      }
      // Where nothing was shown nothing is learned.
      row.scale = !config_.optimizer.mean_gradient ? 1.0F : shows > 0 ? 1 / shows : 0.0F;
      if (slab_.layout().has_counters) {
        count_push(unique.row, shows, clicks);
      }
      for (ChangeTracker& changes : trackers_) {
        changes.mark(unique.row);
      }
    }
    const std::span rows_of_block(block.data(), static_cast<std::size_t>(end - begin));
    if (config_.value_type == ValueType::kFloat32) {
      update_.apply(rows_of_block, dim);
    } else {
      const auto key_of = [&](std::size_t i) { return slab_.key(uniques[begin + static_cast<std::int64_t>(i)].row); };
      update_float16(rows_of_block, key_of, workspace);
    }
  }
}

// The same as update_.apply() for rows of float16: computed in float32, then rounded.
template <typename KeyOf>
void Table::update_float16(std::span<RowGradient> rows, const KeyOf& key_of, Workspace& workspace) const {
  const std::size_t dim = config_.dim;
  std::array<std::uint16_t*, kUpdatedRows> halves;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    halves[i] = reinterpret_cast<std::uint16_t*>(rows[i].values);
    rows[i].values = workspace.values.data() + i * dim;
    from_float16(halves[i], rows[i].values, dim);
  }
  update_.apply(rows, dim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    philox_fill(rounding_key_, *rows[i].state.steps, static_cast<std::uint64_t>(key_of(i)), Workspace::groups_of(dim),
                workspace.words.data());
    to_float16_stochastic(rows[i].values, workspace.words.data(), halves[i], dim);
  }
}

}  // namespace graphbox
