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
  throw Error(ErrorKind::kUsage, std::string("rows are trained in place only where all are in memory as float32; the table ") + what,
              {}, "make a table without it, or train in batches that are pulled and pushed: graphbox.models.SkipGram");
}

}  // namespace

RowsInPlace::RowsInPlace(Table& table, std::int64_t num_keys, NumberedRows& numbered, int threads)
    : lock_(table.mutex_), table_(table), slab_(table.slab_), numbered_(numbered), dim_(table.config_.dim) {
  if (table.tier_ != nullptr) {
    refuse("has rows on SSD");
  }
  if (table.config_.value_type != ValueType::kFloat32) {
    refuse("keeps float16");
  }
  if (table.config_.policies.needs_counters() || table.drops_rows() || !table.admission_.admits_all()) {
    refuse("has policies");
  }
  if (table.config_.optimizer.mean_gradient) {
    refuse("averages gradients");
  }
  if (numbered.version != table.version_ || numbered.rows.size() != num_keys) {
    PooledArray<std::int64_t> keys(num_keys);
    std::iota(keys.data(), keys.data() + num_keys, std::int64_t{0});
    numbered.rows.resize(num_keys);
    table.locate_or_create({keys.data(), num_keys, numbered.rows.data(), false}, threads);
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
