#include "table/table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "random/philox_fill.h"

namespace graphbox {
namespace {

// Keys between a step of the lookup and the step before it: the memory line of the index, then those of the row, are
// asked for that long before they are needed.
constexpr std::int64_t kIndexDistance = 32;
constexpr std::int64_t kRowDistance = 16;
constexpr std::int64_t kUpdateDistance = 8;

constexpr std::int64_t kChunkKeys = 4096;     // keys that one thread takes at a time
constexpr std::int64_t kParallelKeys = 8192;  // smaller batches are not worth waking a thread
constexpr std::uint64_t kMostRows = std::uint64_t{1} << 31;
constexpr std::int64_t kMostPushed = std::int64_t{1} << 30;
constexpr std::uint64_t kMostValues = 65536;  // of a row

std::int64_t chunks_of(std::int64_t count) { return (count + kChunkKeys - 1) / kChunkKeys; }

int useful_threads(int threads, std::int64_t count) { return count >= kParallelKeys ? threads : 1; }

std::size_t row_bytes(const TableConfig& config) {
  const std::size_t values = static_cast<std::size_t>(config.dim) * (1 + state_per_value(config.optimizer.kind));
  return (sizeof(RowHeader) + values * sizeof(float) + 15) / 16 * 16;
}

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
  return config;
}

}  // namespace

Table::Table(const TableConfig& config)
    : config_(checked(config)),
      init_key_(derive_key(Stream::kRowInitialization, config.seed, 0, 0)),
      update_(config.optimizer),
      slab_(row_bytes(config)) {
  check_budget(index_.bytes(), 0);
}

// --- Looking up ------------------------------------------------------------------------------------------------------

// Calls visit(i, row or kNoRow) for keys begin ... end - 1 in order.
template <bool kWholeRow, typename Visit>
void Table::locate(const std::int64_t* keys, std::int64_t begin, std::int64_t end, Visit visit) const {
  constexpr std::int64_t kRing = 64;
  static_assert(kIndexDistance < kRing);
  std::array<std::uint32_t, kRing> fingerprints;
  std::array<std::uint32_t, kRing> candidates;
  for (std::int64_t i = begin; i < end + kIndexDistance; ++i) {
    if (i < end) {
      const std::uint32_t fingerprint = index_.fingerprint(keys[i]);
      fingerprints[static_cast<std::size_t>(i % kRing)] = fingerprint;
      index_.prefetch(fingerprint);
    }
    const std::int64_t second = i - (kIndexDistance - kRowDistance);
    if (second >= begin && second < end) {
      const auto slot = static_cast<std::size_t>(second % kRing);
      const std::uint32_t row = index_.candidate(fingerprints[slot]);
      candidates[slot] = row;
      if (row != kNoRow) {
        if constexpr (kWholeRow) {
          slab_.prefetch_row(row);
        } else {
          prefetch(slab_.row(row));
        }
      }
    }
    const std::int64_t last = i - kIndexDistance;
    if (last >= begin) {
      const auto slot = static_cast<std::size_t>(last % kRing);
      std::uint32_t row = candidates[slot];
      if (row != kNoRow && slab_.header(row).key != keys[last]) [[unlikely]] {
        row = find(keys[last], fingerprints[slot]);
      }
      visit(last, row);
    }
  }
}

std::uint32_t Table::find(std::int64_t key, std::uint32_t fingerprint) const {
  return index_.find(fingerprint, [&](std::uint32_t row) { return slab_.header(row).key == key; });
}

std::uint32_t Table::find(std::int64_t key) const { return find(key, index_.fingerprint(key)); }

void Table::pull(const std::int64_t* keys, std::int64_t count, float* out, bool create, int threads) {
  const std::size_t dim = config_.dim;
  const std::int64_t chunks = chunks_of(count);
  threads = useful_threads(threads, count);
  std::vector<std::vector<std::int64_t>> missing_by_chunk(static_cast<std::size_t>(chunks));
  {
    const std::shared_lock lock(mutex_);
    parallel_for(threads, chunks, [&](std::int64_t chunk) {
      auto& missing = missing_by_chunk[static_cast<std::size_t>(chunk)];
      locate<true>(keys, chunk * kChunkKeys, std::min((chunk + 1) * kChunkKeys, count),
                   [&](std::int64_t i, std::uint32_t row) {
                     float* const target = out + static_cast<std::size_t>(i) * dim;
                     if (row != kNoRow) {
                       std::memcpy(target, slab_.values(row), dim * sizeof(float));
                     } else if (create) {
                       missing.push_back(i);
                     } else {
                       initialize_values(keys[i], target);
                     }
                   });
    });
  }
  std::vector<std::int64_t> missing;
  for (const auto& part : missing_by_chunk) {
    missing.insert(missing.end(), part.begin(), part.end());
  }
  if (missing.empty()) {
    return;
  }
  std::vector<std::uint32_t> rows(missing.size());
  const std::unique_lock lock(mutex_);
  insert_missing(keys, missing, rows.data(), threads);
  parallel_for(threads, chunks_of(static_cast<std::int64_t>(missing.size())), [&](std::int64_t chunk) {
    const auto begin = static_cast<std::size_t>(chunk * kChunkKeys);
    const std::size_t end = std::min(begin + static_cast<std::size_t>(kChunkKeys), missing.size());
    for (std::size_t i = begin; i < end; ++i) {
      std::memcpy(out + static_cast<std::size_t>(missing[i]) * dim, slab_.values(rows[i]), dim * sizeof(float));
    }
  });
}

void Table::contains(const std::int64_t* keys, std::int64_t count, bool* out, int threads) const {
  const std::shared_lock lock(mutex_);
  parallel_for(useful_threads(threads, count), chunks_of(count), [&](std::int64_t chunk) {
    locate<false>(keys, chunk * kChunkKeys, std::min((chunk + 1) * kChunkKeys, count),
                  [&](std::int64_t i, std::uint32_t row) { out[i] = row != kNoRow; });
  });
}

PooledArray<std::int64_t> Table::keys() const {
  const std::shared_lock lock(mutex_);
  PooledArray<std::int64_t> keys(static_cast<std::int64_t>(slab_.rows()));
  for (std::uint64_t row = 0; row < slab_.rows(); ++row) {
    keys[static_cast<std::int64_t>(row)] = slab_.header(static_cast<std::uint32_t>(row)).key;
  }
  return keys;
}

// --- Growing and shrinking -------------------------------------------------------------------------------------------

void Table::check_budget(std::uint64_t bytes, std::uint64_t rows) const {
  if (bytes > config_.memory_bytes) {
    throw Error(ErrorKind::kDoesNotFit,
                "the table may take " + std::to_string(config_.memory_bytes) + " bytes (memory_bytes); " +
                    std::to_string(rows) + " rows of " + std::to_string(slab_.row_bytes()) + " bytes need " +
                    std::to_string(bytes),
                {}, "raise memory_bytes, lower dim, or erase keys");
  }
  if (rows > kMostRows) {
    throw Error(ErrorKind::kDoesNotFit, "a table can hold at most 2^31 rows", {}, "use several tables");
  }
}

// Makes room for `rows` rows, or throws and changes nothing.
void Table::make_room(std::uint64_t rows) {
  const std::uint64_t slab_bytes = std::max(slab_.bytes(), slab_.bytes_for(rows));
  if (index_.has_room_for(rows)) {
    check_budget(index_.bytes() + slab_bytes, rows);
  } else {
    check_budget(index_.bytes() + index_.bytes_for(rows) + slab_bytes, rows);
    index_.reserve(rows);
  }
  slab_.resize(std::max(rows, slab_.rows()));
}

// Gives each missing key a row, in their order, and writes the rows' numbers. If the table cannot grow that far, it
// is left as it was.
void Table::insert_missing(const std::int64_t* keys, const std::vector<std::int64_t>& missing, std::uint32_t* rows,
                           int threads) {
  const std::uint64_t before = slab_.rows();
  try {
    for (std::size_t i = 0; i < missing.size(); ++i) {
      if (i + kRowDistance < missing.size()) {
        index_.prefetch(index_.fingerprint(keys[missing[i + kRowDistance]]));
      }
      const std::int64_t key = keys[missing[i]];
      const std::uint32_t fingerprint = index_.fingerprint(key);
      rows[i] = find(key, fingerprint);
      if (rows[i] == kNoRow) {
        rows[i] = static_cast<std::uint32_t>(slab_.rows());
        make_room(slab_.rows() + 1);
        slab_.header(rows[i]).key = key;
        index_.insert(fingerprint, rows[i]);
      }
    }
  } catch (...) {
    remove_rows_from(before);
    throw;
  }
  initialize_rows(before, slab_.rows(), threads);
}

void Table::remove_rows_from(std::uint64_t first) {
  std::uint64_t filed = slab_.rows();
  while (filed > first) {
    --filed;
    const auto row = static_cast<std::uint32_t>(filed);
    index_.erase(index_.fingerprint(slab_.header(row).key), row);
  }
  slab_.resize(first);
}

void Table::initialize_values(std::int64_t key, float* values) const {
  constexpr std::uint32_t kWordsPerGroup = 32;
  constexpr std::uint32_t kGroups = 4;
  std::array<std::uint32_t, kWordsPerGroup * kGroups> words;
  const DrawSequence draws(init_key_, 0, 0, static_cast<std::uint64_t>(key));
  const std::uint64_t dim = config_.dim;
  if (dim <= words.size()) {
    philox_fill(init_key_, 0, static_cast<std::uint64_t>(key),
                static_cast<std::uint32_t>((dim + kWordsPerGroup - 1) / kWordsPerGroup), words.data());
    uniform_values(values, words.data(), dim, config_.init_scale);
    return;
  }
  for (std::uint64_t begin = 0; begin < dim; begin += 4) {
    const PhiloxBlock block = draws.block(static_cast<std::uint32_t>(begin / 4));
    uniform_values(values + begin, block.data(), std::min<std::uint64_t>(4, dim - begin), config_.init_scale);
  }
}

// Fills values and state of new rows, whose headers hold their keys.
void Table::initialize_rows(std::uint64_t begin, std::uint64_t end, int threads) {
  const auto count = static_cast<std::int64_t>(end - begin);
  parallel_for(useful_threads(threads, count), chunks_of(count), [&](std::int64_t chunk) {
    const std::uint64_t last = std::min(begin + static_cast<std::uint64_t>((chunk + 1) * kChunkKeys), end);
    for (std::uint64_t row = begin + static_cast<std::uint64_t>(chunk * kChunkKeys); row < last; ++row) {
      const auto number = static_cast<std::uint32_t>(row);
      float* const values = slab_.values(number);
      initialize_values(slab_.header(number).key, values);
      update_.initialize(state(number), config_.dim);
      const std::size_t used = config_.dim * (1 + state_per_value(config_.optimizer.kind));
      const std::size_t floats = (slab_.row_bytes() - sizeof(RowHeader)) / sizeof(float);
      std::fill(values + used, values + floats, 0.0F);  // padding, which files contain
    }
  });
}

std::int64_t Table::erase(const std::int64_t* keys, std::int64_t count) {
  const std::unique_lock lock(mutex_);
  std::int64_t erased = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t row = find(keys[i]);
    if (row == kNoRow) {
      continue;
    }
    index_.erase(index_.fingerprint(keys[i]), row);
    const auto last = static_cast<std::uint32_t>(slab_.rows() - 1);
    if (row != last) {
      index_.move(index_.fingerprint(slab_.header(last).key), last, row);
      std::memcpy(slab_.row(row), slab_.row(last), slab_.row_bytes());
    }
    slab_.resize(last);
    ++erased;
  }
  return erased;
}

// --- Learning --------------------------------------------------------------------------------------------------------

void Table::push(const std::int64_t* keys, const float* gradients, std::int64_t count, int threads) {
  if (count > kMostPushed) {
    throw Error(ErrorKind::kUsage, "a push can have at most 2^30 keys, received " + std::to_string(count), {},
                "push smaller batches");
  }
  const std::size_t dim = config_.dim;
  const std::int64_t chunks = chunks_of(count);
  threads = useful_threads(threads, count);
  PooledArray<std::uint32_t> rows(count);
  std::vector<std::vector<std::int64_t>> missing_by_chunk(static_cast<std::size_t>(chunks));
  const std::unique_lock lock(mutex_);
  parallel_for(threads, chunks, [&](std::int64_t chunk) {
    auto& missing = missing_by_chunk[static_cast<std::size_t>(chunk)];
    const std::int64_t begin = chunk * kChunkKeys;
    const std::int64_t end = std::min(begin + kChunkKeys, count);
    locate<false>(keys, begin, end, [&](std::int64_t i, std::uint32_t row) {
      rows[i] = row;
      if (row == kNoRow) {
        missing.push_back(i);
      }
    });
    for (std::int64_t i = begin; i < end; ++i) {
      if (!all_finite(gradients + static_cast<std::size_t>(i) * dim, dim)) {
        throw Error(ErrorKind::kData,
                    "gradients must be finite; the one at position " + std::to_string(i) +
                        " holds NaN or infinity, and none was applied",
                    "key " + std::to_string(keys[i]), "lower the learning rate, or clip the gradients");
      }
    }
  });
  std::vector<std::int64_t> missing;
  for (const auto& part : missing_by_chunk) {
    missing.insert(missing.end(), part.begin(), part.end());
  }
  if (!missing.empty()) {
    std::vector<std::uint32_t> new_rows(missing.size());
    insert_missing(keys, missing, new_rows.data(), threads);
    for (std::size_t i = 0; i < missing.size(); ++i) {
      rows[missing[i]] = new_rows[i];
    }
  }
  apply(rows.data(), gradients, count, threads);
}

// Groups the batch by row, so that each row belongs to one thread and keeps its order.
void Table::apply(const std::uint32_t* rows, const float* gradients, std::int64_t count, int threads) {
  if (threads <= 1) {
    apply_group(rows, gradients, nullptr, count);
    return;
  }
  const auto groups = std::bit_ceil(static_cast<std::uint32_t>(std::min(threads, 64)) * 8);
  const int shift = 32 - std::countr_zero(groups);
  // Another factor than in apply_group, whose slots would be crowded if a group shared their hash's upper bits.
  const auto group_of = [&](std::int64_t i) { return rows[i] * 0x85EBCA6BU >> shift; };
  std::vector<std::int64_t> ends(groups + 1, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    ++ends[group_of(i) + 1];
  }
  for (std::size_t group = 1; group < ends.size(); ++group) {
    ends[group] += ends[group - 1];
  }
  PooledArray<std::uint32_t> positions(count);
  std::vector<std::int64_t> next(ends.begin(), ends.end() - 1);
  for (std::int64_t i = 0; i < count; ++i) {
    positions[next[group_of(i)]++] = static_cast<std::uint32_t>(i);
  }
  parallel_for(threads, groups, [&](std::int64_t group) {
    const std::int64_t begin = ends[static_cast<std::size_t>(group)];
    apply_group(rows, gradients, positions.data() + begin, ends[static_cast<std::size_t>(group) + 1] - begin);
  });
}

// Applies the gradients at `positions` (null: at 0 ... count - 1), each row once, with the sum of its gradients.
void Table::apply_group(const std::uint32_t* rows, const float* gradients, const std::uint32_t* positions,
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
  const auto gradient_at = [&](std::uint32_t i) {
    return gradients + static_cast<std::size_t>(position_of(static_cast<std::int64_t>(i))) * dim;
  };
  std::vector<float> sum(dim);
  for (std::int64_t i = 0; i < unique_count; ++i) {
    if (i + kUpdateDistance < unique_count) {
      const Unique& ahead = uniques[i + kUpdateDistance];
      slab_.prefetch_row(ahead.row);
      const auto* const gradient = reinterpret_cast<const std::byte*>(gradient_at(ahead.first));
      for (std::size_t line = 0; line < dim * sizeof(float); line += kCacheLineBytes) {
        prefetch(gradient + line);
      }
    }
    const Unique& unique = uniques[i];
    const float* gradient = gradient_at(unique.first);
    float count_of_key = 1;
    if (unique.first != unique.last) {
      std::memcpy(sum.data(), gradient, dim * sizeof(float));
      for (std::uint32_t other = next[unique.first]; other != kNone; other = next[other]) {
        add_gradient(sum.data(), gradient_at(other), dim);
        ++count_of_key;
      }
      gradient = sum.data();
    }
    const float scale = config_.optimizer.mean_gradient ? 1 / count_of_key : 1.0F;
    update_.apply(slab_.values(unique.row), state(unique.row), gradient, scale, dim);
  }
}

RowState Table::state(std::uint32_t row) const {
  RowHeader& header = slab_.header(row);
  return {&header.accumulator, &header.steps, slab_.values(row) + config_.dim};
}

// --- What it is ------------------------------------------------------------------------------------------------------

std::uint64_t Table::rows() const {
  const std::shared_lock lock(mutex_);
  return slab_.rows();
}

std::uint64_t Table::bytes() const {
  const std::shared_lock lock(mutex_);
  return index_.bytes() + slab_.bytes();
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

}  // namespace graphbox
