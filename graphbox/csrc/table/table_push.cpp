// Learning: gradients of equal keys are summed and applied once.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "random/philox_fill.h"
#include "table/batch.h"
#include "table/float16.h"
#include "table/ordered_sum.h"
#include "table/row_groups.h"
#include "table/table.h"

namespace graphbox {
namespace {

constexpr std::int64_t kKeysAhead = 16;
constexpr std::int64_t kMostPushed = std::int64_t{1} << 30;

}  // namespace

// Buffers of a thread that updates rows.
struct Table::Workspace {
  explicit Workspace(const TableConfig& config)
      : values(config.value_type == ValueType::kFloat32 ? 0 : config.dim * kUpdatedRows),
        words(config.value_type == ValueType::kFloat32 ? 0 : groups_of(config.dim) * kPhiloxGroupWords) {}

  // Of Philox words: one word rounds two values.
  static std::uint32_t groups_of(std::uint64_t dim) {
    return static_cast<std::uint32_t>((dim + 2 * kPhiloxGroupWords - 1) / (2 * kPhiloxGroupWords));
  }

  std::vector<float> values;
  std::vector<std::uint32_t> words;
};

// Applies the gradients of a group's keys, from front to back: a row is updated where the last of its keys stands, with
// the sum that the others left. Rows are updated in blocks; meanwhile the memory of the next block is on its way.
class Table::GroupUpdate {
 public:
  GroupUpdate(Table& table, const Push& push, const RowGroups::Keys& group)
      : table_(table),
        push_(push),
        group_(group),
        dim_(table.config_.dim),
        has_counters_(table.slab_.layout().has_counters),
        needs_shows_(has_counters_ || table.config_.optimizer.mean_gradient),
        sums_(group.sums * static_cast<std::int64_t>(dim_)),
        shows_(needs_shows_ ? group.sums : 0),
        clicks_(needs_shows_ ? group.sums : 0),
        before_(group.sums),
        workspace_(table.config_) {
    for (Block& block : blocks_) {
      block.scaled.resize(push.scale_of != nullptr ? kUpdatedRows * dim_ : 0);
    }
  }

  void run() {
    fill(blocks_[0]);
    update(blocks_[1], blocks_[0]);  // no row yet
    for (std::size_t turn = 0; blocks_[turn].count > 0; turn = 1 - turn) {
      fill(blocks_[1 - turn]);
      update(blocks_[turn], blocks_[1 - turn]);
    }
  }

 private:
  struct Block {
    std::array<RowGradient, kUpdatedRows> rows;
    std::array<std::int64_t, kUpdatedRows> keys;
    std::size_t count = 0;
    std::vector<float> scaled;  // gradients of rows with one key
  };

  // The parts of a long sum so far.
  struct Total {
    std::vector<float> gradient;
    float shows = 0;
    float clicks = 0;
  };

  // Goes on until there are rows for a block.
  void fill(Block& block) {
    block.count = 0;
    for (; block.count < kUpdatedRows && next_ < group_.count; ++next_) {
      const GroupedKey& key = group_.keys[next_];
      ask_for(group_.keys[std::min(next_ + kKeysAhead, group_.count - 1)]);
      const std::uint32_t before = keys_before(key);
      const bool begins = begins_part(before);
      if (begins && before > 0) {
        take_over(key.sum);
      }
      const float* gradient = gradient_of(key, begins, block);
      auto [shows, clicks] = needs_shows_ ? shows_and_clicks(key, begins) : std::pair(1.0F, 0.0F);
      if (!key.is_last) {
        continue;
      }
      if (before >= kSummedTogether) {
        const Total& total = take_over(key.sum);
        gradient = total.gradient.data();
        shows = needs_shows_ ? total.shows : shows;
        clicks = total.clicks;
      }
      // Where nothing was shown nothing is learned.
      const float scale = !table_.config_.optimizer.mean_gradient ? 1.0F : shows > 0 ? 1 / shows : 0.0F;
      block.rows[block.count] = {table_.slab_.float32_values(key.row), table_.slab_.state(key.row), gradient, scale};
      block.keys[block.count++] = next_;
      if (has_counters_) {
        table_.count_push(key.row, shows, clicks);
      }
      for (ChangeTracker& changes : table_.trackers_) {
        changes.mark(key.row);
      }
    }
  }

  // Prefetches the inputs of fill() for a later key. The update prefetches gradients that are no part of a sum.
  GRAPHBOX_INLINE void ask_for(const GroupedKey& key) const {
    if (key.sum != GroupedKey::kNoSum || push_.scale_of != nullptr) {
      prefetch_bytes(reinterpret_cast<const std::byte*>(push_.gradient(key.position, dim_)), dim_ * sizeof(float));
    }
    if (has_counters_) {
      prefetch_write(&table_.slab_.counters(key.row));
    }
  }

  // Number of keys of the key's row that come before it.
  GRAPHBOX_INLINE std::uint32_t keys_before(const GroupedKey& key) {
    if (key.sum == GroupedKey::kNoSum) {
      return 0;
    }
    std::uint32_t& before = before_[key.sum];
    return before = key.is_first ? 0 : before + 1;
  }

  // Adds the part that has ended to those before it.
  const Total& take_over(std::uint32_t sum) {
    const float* const part = sums_.data() + static_cast<std::size_t>(sum) * dim_;
    const auto [place, is_first] = totals_.try_emplace(sum);
    Total& total = place->second;
    if (is_first) {
      total.gradient.assign(part, part + dim_);
    } else {
      add_gradient(total.gradient.data(), part, dim_);
    }
    if (needs_shows_) {
      total.shows = is_first ? shows_[sum] : total.shows + shows_[sum];
      total.clicks = is_first ? clicks_[sum] : total.clicks + clicks_[sum];
    }
    return total;
  }

  // The sum of the gradients of the part that the key is in so far.
  GRAPHBOX_INLINE const float* gradient_of(const GroupedKey& key, bool begins, Block& block) {
    const float* const gradient = push_.gradient(key.position, dim_);
    const bool is_alone = key.sum == GroupedKey::kNoSum;
    if (is_alone && push_.scale_of == nullptr) {
      return gradient;
    }
    float* const sum = is_alone ? block.scaled.data() + block.count * dim_
                                : sums_.data() + static_cast<std::size_t>(key.sum) * dim_;
    if (push_.scale_of == nullptr) {
      begins ? static_cast<void>(std::memcpy(sum, gradient, dim_ * sizeof(float))) : add_gradient(sum, gradient, dim_);
    } else {
      (begins ? set_scaled : add_scaled)(sum, gradient, push_.scale(key.position), dim_);
    }
    return sum;
  }

  // Shows and clicks of the keys of that part so far.
  std::pair<float, float> shows_and_clicks(const GroupedKey& key, bool begins) {
    const std::pair own(push_.shows_at(key.position), push_.clicks_at(key.position));
    if (key.sum == GroupedKey::kNoSum) {
      return own;
    }
    float& shows = shows_[key.sum];
    float& clicks = clicks_[key.sum];
    shows = begins ? own.first : shows + own.first;
    clicks = begins ? own.second : clicks + own.second;
    return {shows, clicks};
  }

  void update(Block& block, const Block& next) {
    const RowsAhead ahead = {std::span(next.rows.data(), next.count), table_.slab_.view().row_bytes};
    const std::span rows(block.rows.data(), block.count);
    if (table_.config_.value_type == ValueType::kFloat32) {
      table_.update_.apply(rows, dim_, ahead);
    } else {
      update_float16(rows, block, ahead);
    }
  }

  // The same for rows of float16: computed in float32, then rounded.
  void update_float16(std::span<RowGradient> rows, const Block& block, const RowsAhead& ahead) {
    std::array<std::uint16_t*, kUpdatedRows> halves;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      halves[i] = reinterpret_cast<std::uint16_t*>(rows[i].values);
      rows[i].values = workspace_.values.data() + i * dim_;
      from_float16(halves[i], rows[i].values, dim_);
    }
    table_.update_.apply(rows, dim_, ahead);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t key = table_.slab_.key(group_.keys[block.keys[i]].row);
      philox_fill(table_.rounding_key_, *rows[i].state.steps, static_cast<std::uint64_t>(key), 0,
                  Workspace::groups_of(dim_), workspace_.words.data());
      to_float16_stochastic(rows[i].values, workspace_.words.data(), halves[i], dim_);
    }
  }

  Table& table_;
  const Push& push_;
  const RowGroups::Keys group_;
  std::size_t dim_;
  bool has_counters_;
  bool needs_shows_;
  PooledArray<float> sums_;  // of rows with several keys, as the next three
  PooledArray<float> shows_;
  PooledArray<float> clicks_;
  PooledArray<std::uint32_t> before_;  // keys before the last one so far
  std::unordered_map<std::uint32_t, Total> totals_;  // of those with more keys than are summed together
  Workspace workspace_;
  std::array<Block, 2> blocks_;
  std::int64_t next_ = 0;  // of the group's keys
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

void Table::push_rows(const PulledRows& pulled, const Push& push, int threads) {
  const std::vector<std::int64_t> left_out = nonfinite_positions(pulled.keys.data(), push, threads);
  check_shows(pulled.keys.data(), push);
  const std::uint32_t* const end = pulled.rows.data() + push.count;
  // A key that had no row may have been admitted since.
  const bool has_all = admission_.admits_all() || std::find(pulled.rows.data(), end, kNoRow) == end;
  std::unique_lock lock(mutex_);
  const bool is_current = has_all && pulled.version == version_;
  if (is_current && left_out.empty()) {
    count_dropped(pulled.rows.data(), push.count);
    apply(pulled.rows.data(), push, threads);
    return;
  }
  PooledArray<std::uint32_t> rows(push.count);
  if (is_current) {
    std::copy_n(pulled.rows.data(), push.count, rows.data());
  } else {
    lock.unlock();
    lock = lock_with_rows({pulled.keys.data(), push.count, rows.data(), false}, threads);
  }
  count_dropped(rows.data(), push.count);
  leave_out(left_out, rows.data());
  apply(rows.data(), push, threads);
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

// Positions of keys whose gradients hold NaN or infinity. If those are to be refused, the first one is, before anything
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

// Gradients that hold NaN or infinity.
std::vector<std::int64_t> Table::nonfinite_gradients(const Push& push, int threads) const {
  const std::size_t dim = config_.dim;
  const std::int64_t count = push.gradient_count;
  std::vector<std::vector<std::int64_t>> found_by_chunk(static_cast<std::size_t>(chunks_of(count)));
  // From back to front: what is read last is still in a cache when the gradients are applied from front to back.
  const std::int64_t chunks = chunks_of(count);
  parallel_for(useful_threads(threads, count), chunks, [&](std::int64_t from_back) {
    const std::int64_t chunk = chunks - 1 - from_back;
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

// Each row belongs to one thread, and gets the sum of its gradients in the order of ordered_sum.h.
void Table::apply(const std::uint32_t* rows, const Push& push, int threads) {
  if (config_.value_type == ValueType::kInt8) {
    throw Error(ErrorKind::kUsage, "rows of int8 are for lookups alone", "dtype", "train rows of float32 or float16");
  }
  ++updates_;
  if (tier_ != nullptr) {
    note_changed(rows, push.count);
  }
  threads = useful_threads(threads, push.count);
  RowGroups groups(rows, push.count, threads);
  parallel_for(threads, groups.groups(),
               [&](std::int64_t group) { GroupUpdate(*this, push, groups.keys_of(group)).run(); });
}

}  // namespace graphbox
