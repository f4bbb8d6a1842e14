#include "table/table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "random/philox_fill.h"
#include "store/gather.h"
#include "table/batch.h"
#include "table/compactor.h"
#include "table/float16.h"
#include "table/location.h"
#include "table/lookup.h"
#include "table/table_tier.h"

namespace graphbox {
namespace {

constexpr std::size_t kRowBytesAhead = 8192;  // fewer keys where rows are long

constexpr std::uint64_t kMostRows = std::uint64_t{1} << 31;
constexpr std::uint64_t kMostValues = 65536;  // of a row

void check_number(const char* name, float value, float least, float below) {
  if (!std::isfinite(value) || value < least || value >= below) {
    const bool is_bounded = std::isfinite(below);
    throw Error(ErrorKind::kUsage,
                std::string(name) + " must be a finite number, " + std::to_string(least) +
                    (is_bounded ? " or more and below " + std::to_string(below) : " or more") + ", received " +
                    std::to_string(value),
                name);
  }
}

void check_optimizer(const OptimizerConfig& config) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  check_number("lr", config.lr, 0, kInfinity);
  check_number("eps", config.eps, 0, kInfinity);
  check_number("initial_accumulator", config.initial_accumulator, 0, kInfinity);
  check_number("betas", config.beta1, 0, 1);
  check_number("betas", config.beta2, 0, 1);
  check_number("beta", config.beta, 0, kInfinity);
  check_number("l1", config.l1, 0, kInfinity);
  check_number("l2", config.l2, 0, kInfinity);
  check_number("weight_decay", config.weight_decay, 0, kInfinity);
  for (const auto& [name, most] : {std::pair{"clip_norm", config.clip_norm}, std::pair{"clip_value", config.clip_value}}) {
    if (!(most > 0)) {
      throw Error(ErrorKind::kUsage, std::string(name) + " must be above 0, received " + std::to_string(most), name);
    }
  }
  if (!(config.lowest < config.highest)) {
    throw Error(ErrorKind::kUsage,
                "bounds must be a number and a larger one, received " + std::to_string(config.lowest) + " and " +
                    std::to_string(config.highest),
                "bounds");
  }
  if (config.kind == Optimizer::kFtrl && config.lr == 0) {
    throw Error(ErrorKind::kUsage, "ftrl divides by lr, which must be above 0, received 0", "lr");
  }
  if (config.kind == Optimizer::kFtrl && config.decoupled_weight_decay) {
    throw Error(ErrorKind::kUsage, "ftrl has no decoupled weight decay", "decoupled_weight_decay", "use l2");
  }
}

const TableConfig& checked(const TableConfig& config) {
  if (config.dim < 1 || config.dim > kMostValues) {
    throw Error(ErrorKind::kUsage, "dim must be 1 to 65,536, received " + std::to_string(config.dim), "dim");
  }
  check_number("init_scale", config.init_scale, 0, std::numeric_limits<float>::infinity());
  check_optimizer(config.optimizer);
  check_policies(config.policies);
  return config;
}

}  // namespace

Table::Table(const TableConfig& config)
    : config_(checked(config)),
      init_key_(derive_key(Stream::kRowInitialization, config.seed, 0, 0)),
      rounding_key_(derive_key(Stream::kRowRounding, config.seed, 0, 0)),
      update_(config.optimizer),
      slab_(RowLayout(config.dim, config.value_type, config.optimizer.kind, config.policies.needs_counters())),
      admission_(config.policies, config.seed) {
  check_budget(bytes_with(0), 0);
}

Table::~Table() = default;

// --- Looking up ------------------------------------------------------------------------------------------------------

void Table::pull(const std::int64_t* keys, std::int64_t count, float* out, bool create, int threads) {
  read(keys, count, out, create, threads, nullptr);
}

PulledRows Table::pull_rows(const std::int64_t* keys, std::int64_t count, float* out, bool create, int threads) {
  PulledRows pulled;
  pulled.keys.resize(count);
  std::copy_n(keys, count, pulled.keys.data());
  pulled.rows.resize(count);
  read(pulled.keys.data(), count, out, create, threads, &pulled);
  return pulled;
}

// No two tables of the process share one, so rows that were pulled from another table are not mistaken for ours.
std::uint64_t Table::new_version() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::uint64_t Table::changes() const {
  const std::shared_lock lock(mutex_);
  return changes_now();
}

// Whether a result leaves the caches before it is used, so that it is better written past them.
bool Table::is_worth_streaming(const float* out, std::int64_t count) const {
  const std::size_t bytes = slab_.layout().value_bytes;
  return config_.value_type == ValueType::kFloat32 && static_cast<std::size_t>(count) * bytes >= kStreamedBytes &&
         (reinterpret_cast<std::uintptr_t>(out) | bytes) % 16 == 0;
}

// Implements pull(); writes the rows' places to `pulled`, too, unless that is null. If rows lose their keys meanwhile,
// a push looks them up again.
void Table::read(const std::int64_t* keys, std::int64_t count, float* out, bool create, int threads,
                 PulledRows* pulled) {
  const std::size_t dim = config_.dim;
  const std::int64_t chunks = chunks_of(count);
  const std::size_t bytes = slab_.layout().value_bytes;
  const bool is_float32 = config_.value_type == ValueType::kFloat32;
  const bool is_streamed = is_worth_streaming(out, count);
  threads = useful_threads(threads, count);
  std::vector<std::vector<std::int64_t>> missing_by_chunk(static_cast<std::size_t>(chunks));
  PooledArray<std::uint32_t> found(pulled == nullptr && create && drops_rows() ? count : 0);
  std::uint32_t* const rows = pulled != nullptr ? pulled->rows.data() : found.size() > 0 ? found.data() : nullptr;
  std::shared_lock reading(mutex_);
  if (pulled != nullptr) {
    pulled->version = version_;
  }
  VisitedRows* const visited = tier_ != nullptr ? &tier_->visited : create && marks_visits() ? &visited_ : nullptr;
  parallel_for(threads, chunks, [&](std::int64_t chunk) {
    auto& missing = missing_by_chunk[static_cast<std::size_t>(chunk)];
    with_constant_bytes(bytes, [&](auto row_bytes) {
      look_up(index_, slab_, row_bytes, keys, chunk * kChunkKeys, std::min((chunk + 1) * kChunkKeys, count),
              [=, this, &missing](std::int64_t i, std::uint32_t row, const std::byte* data) {
                float* const target = out + static_cast<std::size_t>(i) * dim;
                if (rows != nullptr) {
                  rows[i] = row;
                }
                if (visited != nullptr && is_hot(row)) {
                  visited->visit(row);
                }
                if (!is_hot(row)) [[unlikely]] {
                  if (create || is_cold(row)) {
                    missing.push_back(i);
                  } else {
                    initial_values(keys[i], target);
                  }
                } else if (is_streamed) {
                  stream_bytes(data, target, row_bytes);
                } else if (is_float32) {
                  std::memcpy(target, data, row_bytes);
                } else {
                  slab_.unpack_values(data, target);
                }
              });
    });
    finish_copies(is_streamed);
  });
  const std::vector<std::int64_t> missing = joined(missing_by_chunk);
  if (tier_ != nullptr) {
    tier_->hits.fetch_add(static_cast<std::uint64_t>(count) - missing.size(), std::memory_order_relaxed);
  }
  if (missing.empty()) {
    return;
  }
  if (!create) {
    copy_cold(keys, missing, out, pulled, std::move(reading));
    return;
  }
  reading.unlock();
  if (tier_ != nullptr) {
    read_through(keys, count, missing, out, threads, pulled);
    return;
  }
  std::vector<std::uint32_t> created(missing.size());
  const std::unique_lock lock(mutex_);
  const bool is_unchanged = pulled != nullptr && pulled->version == version_;
  create_missing({keys, count, rows, true}, missing, created.data(), threads, out);
  if (is_unchanged) {  // rows that were dropped are none of these
    pulled->version = version_;
  }
  for (std::size_t i = 0; rows != nullptr && i < missing.size(); ++i) {
    rows[missing[i]] = created[i];
  }
}

void Table::contains(const std::int64_t* keys, std::int64_t count, bool* out, int threads) const {
  const std::shared_lock lock(mutex_);
  parallel_for(useful_threads(threads, count), chunks_of(count), [&](std::int64_t chunk) {
    look_up(index_, slab_, 0, keys, chunk * kChunkKeys, std::min((chunk + 1) * kChunkKeys, count),
            [=](std::int64_t i, std::uint32_t row, const std::byte*) { out[i] = row != kNoRow; });
  });
}

PooledArray<std::int64_t> Table::keys() const {
  const std::shared_lock lock(mutex_);
  const std::uint64_t cold = tier_ != nullptr ? tier_->cold_rows : 0;
  PooledArray<std::int64_t> keys(static_cast<std::int64_t>(live_rows() + cold));
  std::int64_t count = 0;
  for (std::uint32_t row = 0; row < slab_.rows(); ++row) {
    if (is_live(row)) {
      keys[count++] = slab_.key(row);
    }
  }
  if (tier_ != nullptr) {
    copy_cold_keys(keys.data() + count);
  }
  return keys;
}

Table::Scanned Table::scan(std::uint64_t begin, std::int64_t count, std::int64_t* keys, float* values) const {
  const std::shared_lock lock(mutex_);
  Scanned scanned = {0, begin};
  for (; scanned.count < count && scanned.next < slab_.rows(); ++scanned.next) {
    const auto row = static_cast<std::uint32_t>(scanned.next);
    if (is_live(row)) {
      keys[scanned.count] = slab_.key(row);
      slab_.copy_values(row, values + static_cast<std::size_t>(scanned.count) * config_.dim);
      ++scanned.count;
    }
  }
  return scanned;
}

// --- Growing and shrinking -------------------------------------------------------------------------------------------

void Table::check_budget(std::uint64_t bytes, std::uint64_t rows) const {
  if (bytes > config_.memory_bytes) {
    throw Error(ErrorKind::kDoesNotFit,
                "the table may take " + std::to_string(config_.memory_bytes) + " bytes (memory_bytes); " +
                    std::to_string(rows) + " rows of " + std::to_string(slab_.bytes_per_row()) + " bytes need " +
                    std::to_string(bytes),
                {}, "raise memory_bytes, lower dim, or erase keys");
  }
  if (rows > kMostRows) {
    throw Error(ErrorKind::kDoesNotFit, "a table can hold at most 2^31 rows", {}, "use several tables");
  }
}

std::uint64_t Table::bytes_now() const {
  if (tier_ == nullptr) {
    return bytes_with(live_rows());
  }
  return index_.bytes() + slab_.bytes() + followed_bytes(slab_.rows()) + tier_->bytes_for(slab_.rows()) +
         admission_.bytes();
}

// Peak bytes of a table without rows on SSD while it grows to `rows` rows, and while so many more keys without a row
// are counted.
std::uint64_t Table::bytes_with(std::uint64_t rows, std::uint64_t counted_keys) const {
  std::uint64_t bytes = index_.bytes() + std::max(slab_.bytes(), slab_.bytes_for(rows));
  bytes += index_.has_room_for(rows) ? 0 : index_.bytes_for(rows);
  bytes += admission_.bytes_for(counted_keys) + followed_bytes(std::max(slab_.rows(), rows));
  if (drops_rows()) {
    const std::uint64_t followed = followed_bytes(std::max(slab_.rows(), rows));
    bytes += most_followed_bytes() > followed ? most_followed_bytes() - followed : 0;
    bytes += std::max(slab_.rows(), rows) / 4;  // marks and pins
  }
  return bytes;
}

// Makes room for `rows` rows in all of a table without rows on SSD, or throws and changes nothing.
void Table::make_room(std::uint64_t rows, int threads) {
  check_budget(bytes_with(rows), rows);
  index_.reserve(rows, threads);
}

void Table::set_live(std::uint32_t row, bool is_live) {
  const std::uint64_t bit = std::uint64_t{1} << (row % 64);
  live_[row / 64] = is_live ? live_[row / 64] | bit : live_[row / 64] & ~bit;
}

void Table::give_back(std::uint32_t row) {
  if (tier_ != nullptr) {
    forget_home(row);
  }
  index_.erase(slab_.key(row), index_.hash(slab_.key(row)));
  note_erased(slab_.key(row), row);
  free_rows_.push_back(row);
  set_live(row, false);
}

// Writes the row of each key; keys without one get it, or kNoRow where they are not admitted.
void Table::locate_or_create(const Batch& batch, int threads) {
  const std::vector<std::int64_t> missing =
      missing_keys(batch.keys, batch.count, batch.rows, marks_visits(), threads);
  if (missing.empty()) {
    return;
  }
  std::vector<std::uint32_t> created(missing.size());
  create_missing(batch, missing, created.data(), threads);
  for (std::size_t i = 0; i < missing.size(); ++i) {
    batch.rows[missing[i]] = created[i];
  }
}

// Writes the row of each key, or where it is on SSD, or kNoRow, and returns which are not in memory.
std::vector<std::int64_t> Table::missing_keys(const std::int64_t* keys, std::int64_t count, std::uint32_t* rows,
                                              bool marks, int threads) const {
  const std::int64_t chunks = chunks_of(count);
  std::vector<std::vector<std::int64_t>> missing_by_chunk(static_cast<std::size_t>(chunks));
  parallel_for(useful_threads(threads, count), chunks, [&](std::int64_t chunk) {
    auto& missing = missing_by_chunk[static_cast<std::size_t>(chunk)];
    look_up(index_, slab_, 0, keys, chunk * kChunkKeys, std::min((chunk + 1) * kChunkKeys, count),
            [=, &missing](std::int64_t i, std::uint32_t row, const std::byte*) {
              rows[i] = row;
              if (!is_hot(row)) {
                missing.push_back(i);
              }
            });
    if (marks) {
      mark_visited(rows, chunk * kChunkKeys, std::min((chunk + 1) * kChunkKeys, count));
    }
  });
  return joined(missing_by_chunk);
}

std::int64_t Table::erase(const std::int64_t* keys, std::int64_t count) {
  const std::unique_lock lock(mutex_);
  std::int64_t erased = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t row = find(keys[i]);
    admission_.forget(keys[i]);
    if (is_hot(row)) {
      give_back(row);
    } else if (is_cold(row)) {
      forget_cold(keys[i], row);
    }
    erased += row != kNoRow ? 1 : 0;
  }
  if (erased > 0) {
    version_ = new_version();
    ++updates_;
  }
  return erased;
}

// --- What it is ------------------------------------------------------------------------------------------------------

std::uint64_t Table::rows() const {
  const std::shared_lock lock(mutex_);
  return live_rows() + (tier_ != nullptr ? tier_->cold_rows : 0);
}

std::uint64_t Table::bytes() const {
  const std::shared_lock lock(mutex_);
  const std::lock_guard following(following_);
  return bytes_now();
}

TableConfig Table::config() const {
  const std::shared_lock lock(mutex_);
  return config_;
}

void Table::set_lr(float lr) {
  TableConfig changed = config();
  changed.optimizer.lr = lr;
  checked(changed);
  const std::unique_lock lock(mutex_);
  config_.optimizer.lr = lr;  // all else in config_ never changes, and is read without the lock
  update_.set_lr(lr);
}

void Table::set_memory_bytes(std::uint64_t memory_bytes) {
  std::unique_lock<std::mutex> moving;
  if (tier_ != nullptr) {
    moving = std::unique_lock(tier_->moving);
  }
  const std::unique_lock lock(mutex_);
  const std::uint64_t before = std::exchange(config_.memory_bytes, memory_bytes);
  try {
    if (tier_ != nullptr) {
      make_index_room(0);  // rows leave memory where it must become less
    } else {
      check_budget(bytes_now(), live_rows());
    }
  } catch (...) {
    config_.memory_bytes = before;
    throw;
  }
}

}  // namespace graphbox
