// Learning: gradients of equal keys are summed and applied once.
#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "table/batch.h"
#include "table/table.h"

namespace graphbox {
namespace {

constexpr std::int64_t kUpdateDistance = 8;  // rows between asking for one's memory and updating it
constexpr std::int64_t kMostPushed = std::int64_t{1} << 30;

}  // namespace

void Table::push(const std::int64_t* keys, const float* gradients, std::int64_t count, int threads) {
  check_gradients(keys, gradients, count, threads);
  PooledArray<std::uint32_t> rows(count);
  const std::unique_lock lock(mutex_);
  locate_or_create(keys, count, rows.data(), threads);
  apply(rows.data(), gradients, count, threads);
}

void Table::push_rows(const PulledRows& pulled, const float* gradients, int threads) {
  const std::int64_t count = pulled.rows.size();
  check_gradients(pulled.keys.data(), gradients, count, threads);
  const std::unique_lock lock(mutex_);
  if (pulled.version == version_) {
    apply(pulled.rows.data(), gradients, count, threads);
    return;
  }
  PooledArray<std::uint32_t> rows(count);
  locate_or_create(pulled.keys.data(), count, rows.data(), threads);
  apply(rows.data(), gradients, count, threads);
}

// Gradients that cannot be applied are refused before anything changes.
void Table::check_gradients(const std::int64_t* keys, const float* gradients, std::int64_t count,
                            int threads) const {
  if (count > kMostPushed) {
    throw Error(ErrorKind::kUsage, "a push can have at most 2^30 keys, received " + std::to_string(count), {},
                "push smaller batches");
  }
  const std::size_t dim = config_.dim;
  parallel_for(useful_threads(threads, count), chunks_of(count), [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunkKeys;
    const std::int64_t end = std::min(begin + kChunkKeys, count);
    const auto values = static_cast<std::size_t>(end - begin) * dim;
    if (all_finite(gradients + static_cast<std::size_t>(begin) * dim, values)) {
      return;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      if (!all_finite(gradients + static_cast<std::size_t>(i) * dim, dim)) {
        throw Error(ErrorKind::kData,
                    "gradients must be finite; the one at position " + std::to_string(i) +
                        " holds NaN or infinity, and none was applied",
                    "key " + std::to_string(keys[i]), "lower the learning rate, or clip the gradients");
      }
    }
  });
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
    update_.apply(slab_.values(unique.row), slab_.state(unique.row), gradient, scale, dim);
  }
}

}  // namespace graphbox
