#include "table/rows_in_place.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>

#include "errors/error.h"
#include "table/table.h"

namespace graphbox {
namespace {

// Copies numbers that other threads may write, each of them whole.
void read_shared(const float* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = std::atomic_ref<float>(const_cast<float&>(from[i])).load(std::memory_order_relaxed);
  }
}

void write_shared(const float* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::atomic_ref<float>(to[i]).store(from[i], std::memory_order_relaxed);
  }
}

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorKind::kUsage, std::string("rows are trained in place only where they are float32 and follow no policy; the table ") + what,
              {}, "make a table without it, or train in batches that are pulled and pushed: graphbox.models.SkipGram");
}

}  // namespace

bool RowsInPlace::needs_keys(const Table& table) { return table.tier_ != nullptr; }

std::uint64_t RowsInPlace::room(const Table& table) {
  const std::shared_lock lock(table.mutex_);
  return table.hot_limit(table.index_.bytes());
}

RowsInPlace::RowsInPlace(Table& table, std::int64_t num_keys, std::span<const std::int64_t> keys,
                         NumberedRows& numbered, int threads)
    : table_(table), slab_(table.slab_), numbered_(numbered), dim_(table.config_.dim) {
  if (table.config_.value_type != ValueType::kFloat32) {
    refuse("keeps float16");
  }
  if (table.config_.policies.needs_counters() || table.drops_rows() || !table.admission_.admits_all()) {
    refuse("has policies");
  }
  if (table.config_.optimizer.mean_gradient) {
    refuse("averages gradients");
  }
  if (table.tier_ != nullptr) {
    PooledArray<std::uint32_t> rows(std::ssize(keys));
    numbered.rows.resize(num_keys);
    lock_ = table.lock_with_rows({keys.data(), std::ssize(keys), rows.data(), false}, threads);
    table.note_changed(rows.data(), rows.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      numbered.rows[keys[i]] = rows[static_cast<std::int64_t>(i)];
    }
    ++table.updates_;
    return;
  }
  lock_ = std::unique_lock(table.mutex_);
  if (numbered.version != table.version_ || numbered.rows.size() != num_keys) {
    PooledArray<std::int64_t> all(num_keys);
    std::iota(all.data(), all.data() + num_keys, std::int64_t{0});
    numbered.rows.resize(num_keys);
    table.locate_or_create({all.data(), num_keys, numbered.rows.data(), false}, threads);
    numbered.version = table.version_;
  }
  ++table.updates_;
}

void RowsInPlace::read(std::int64_t key, float* values, bool is_shared) const {
  const float* const row = slab_.float32_values(numbered_.rows[key]);
  if (is_shared) {
    read_shared(row, values, dim_);
  } else {
    std::memcpy(values, row, dim_ * sizeof(float));
  }
}

RowUpdate RowsInPlace::update(float lr) const {
  RowUpdate update = table_.update_;
  update.set_lr(lr);
  return update;
}

void RowsInPlace::apply(const RowUpdate& update, std::span<const std::int64_t> keys, const float* gradients,
                        std::size_t stride, bool is_shared) const {
  std::array<RowGradient, kUpdatedRows> rows;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint32_t row = numbered_.rows[keys[i]];
    for (ChangeTracker& changes : table_.trackers_) {
      changes.mark(row);
    }
    if (is_shared) {
      apply_shared(update, row, gradients + i * stride);
    } else {
      rows[i] = {slab_.float32_values(row), slab_.state(row), gradients + i * stride, 1.0F};
    }
  }
  if (!is_shared) {
    update.apply({rows.data(), keys.size()}, dim_);
  }
}

// Updates a copy of the row.
void RowsInPlace::apply_shared(const RowUpdate& update, std::uint32_t row, const float* gradient) const {
  const std::size_t numbers = (slab_.layout().value_bytes + slab_.layout().state_bytes) / sizeof(float);
  thread_local std::vector<float> copy;
  copy.resize(numbers);
  float* const values = slab_.float32_values(row);
  read_shared(values, copy.data(), numbers);
  const RowState shared = slab_.state(row);
  float accumulator = 0;
  std::uint32_t steps = 0;
  if (shared.accumulator != nullptr) {
    read_shared(shared.accumulator, &accumulator, 1);
  }
  if (shared.steps != nullptr) {
    steps = std::atomic_ref<std::uint32_t>(*shared.steps).load(std::memory_order_relaxed);
  }
  const RowState state = {shared.accumulator != nullptr ? &accumulator : nullptr,
                          shared.steps != nullptr ? &steps : nullptr, copy.data() + dim_};
  RowGradient own = {copy.data(), state, gradient, 1.0F};
  update.apply({&own, 1}, dim_);
  write_shared(copy.data(), values, numbers);
  if (shared.accumulator != nullptr) {
    write_shared(&accumulator, shared.accumulator, 1);
  }
  if (shared.steps != nullptr) {
    std::atomic_ref<std::uint32_t>(*shared.steps).store(steps, std::memory_order_relaxed);
  }
}

}  // namespace graphbox
