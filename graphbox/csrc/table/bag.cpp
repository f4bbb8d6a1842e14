#include "table/bag.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "portability/cpu.h"
#include "table/batch.h"
#include "table/float16.h"
#include "table/location.h"
#include "table/lookup.h"
#include "table/ordered_sum.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {
namespace {

std::int64_t bag_chunks(const Bags& bags) { return std::max<std::int64_t>(1, chunks_of(bags.offsets[bags.count])); }

// The bags that begin among the keys of a chunk; the last chunk has the empty ones at the end, too.
std::int64_t first_bag(const Bags& bags, std::int64_t chunk) {
  if (chunk == bag_chunks(bags)) {
    return bags.count;
  }
  return std::lower_bound(bags.offsets, bags.offsets + bags.count, chunk * kChunkKeys) - bags.offsets;
}

GRAPHBOX_CLONES
void divide(float* values, float divisor, std::size_t dim) {
  for (std::size_t i = 0; i < dim; ++i) {
    values[i] /= divisor;
  }
}

// The sums of the bags that begin in a chunk, whose keys' rows are added in the order of ordered_sum.h.
class ChunkSums {
 public:
  ChunkSums(const Bags& bags, std::int64_t chunk, float* out, std::size_t dim)
      : bags_(bags), out_(out), dim_(dim), bag_(first_bag(bags, chunk)) {
    const std::int64_t end = first_bag(bags, chunk + 1);
    begin_key_ = bags.offsets[bag_];
    end_key_ = bags.offsets[end];
    for (std::int64_t bag = bag_; bag < end; ++bag) {
      if (bags.offsets[bag] == bags.offsets[bag + 1]) {
        std::fill_n(sum_of(bag), dim, 0.0F);
      }
    }
  }

  std::int64_t begin_key() const { return begin_key_; }
  std::int64_t end_key() const { return end_key_; }

  void add(std::int64_t key, const float* values) {
    while (key == bags_.offsets[bag_ + 1]) {
      ++bag_;
    }
    float* const sum = sum_of(bag_);
    const auto before = static_cast<std::uint64_t>(key - bags_.offsets[bag_]);
    if (begins_part(before)) {
      take_over(sum, before);
      set_scaled(sum, values, bags_.weights != nullptr ? bags_.weights[key] : 1.0F, dim_);
    } else if (bags_.weights == nullptr) {
      add_gradient(sum, values, dim_);
    } else {
      add_scaled(sum, values, bags_.weights[key], dim_);
    }
    if (before >= kSummedTogether && key + 1 == bags_.offsets[bag_ + 1]) {
      add_gradient(total_.data(), sum, dim_);
      std::copy_n(total_.data(), dim_, sum);
    }
    if (bags_.divisors != nullptr && key + 1 == bags_.offsets[bag_ + 1] && bags_.divisors[bag_] != 1.0F) {
      divide(sum, bags_.divisors[bag_], dim_);
    }
  }

 private:
  // Adds the part that has ended, of a bag that goes on, to those before it.
  void take_over(const float* part, std::uint64_t before) {
    if (before == kSummedTogether) {
      total_.assign(part, part + dim_);
    } else if (before > 0) {
      add_gradient(total_.data(), part, dim_);
    }
  }

  float* sum_of(std::int64_t bag) const { return out_ + static_cast<std::size_t>(bag) * dim_; }

  const Bags& bags_;
  float* out_;
  std::size_t dim_;
  std::int64_t bag_;
  std::int64_t begin_key_;
  std::int64_t end_key_;
  std::vector<float> total_;  // the parts of a long sum so far
};

}  // namespace

GRAPHBOX_CLONES
void set_scaled(float* __restrict out, const float* __restrict values, float scale, std::size_t dim) {
  for (std::size_t i = 0; i < dim; ++i) {
    out[i] = scale * values[i];
  }
}

GRAPHBOX_CLONES
void add_scaled(float* __restrict sum, const float* __restrict values, float scale, std::size_t dim) {
  for (std::size_t i = 0; i < dim; ++i) {
    sum[i] += scale * values[i];
  }
}

PulledRows Table::pull_bags(const std::int64_t* keys, std::int64_t count, const Bags& bags, float* out, bool create,
                            int threads) {
  PulledRows pulled;
  pulled.keys.resize(count);
  std::copy_n(keys, count, pulled.keys.data());
  pulled.rows.resize(count);
  Found found;
  {
    const std::shared_lock lock(mutex_);
    pulled.version = version_;
    found = sum_rows(pulled, bags, out, threads);
    if (create && marks_visits()) {
      mark_visited(pulled.rows.data(), 0, count);
    }
  }
  if (found == Found::kAll || (found == Found::kInMemory && !create)) {
    return pulled;
  }
  if (!create) {
    PooledArray<float> values(count * static_cast<std::int64_t>(config_.dim));
    read(keys, count, values.data(), false, threads, &pulled);
    parallel_for(useful_threads(threads, count), bag_chunks(bags), [&](std::int64_t chunk) {
      ChunkSums sums(bags, chunk, out, config_.dim);
      for (std::int64_t i = sums.begin_key(); i < sums.end_key(); ++i) {
        sums.add(i, values.data() + static_cast<std::size_t>(i) * config_.dim);
      }
    });
    return pulled;
  }
  const auto lock = lock_with_rows({keys, count, pulled.rows.data(), true}, threads);
  pulled.version = version_;
  sum_rows(pulled, bags, out, threads);
  return pulled;
}

// Looks the rows up, says where they are and writes the sums; keys without a row count as their initial values. Where
// rows are on SSD, the sums they are in are wrong.
Table::Found Table::sum_rows(PulledRows& pulled, const Bags& bags, float* out, int threads) const {
  const std::size_t dim = config_.dim;
  const std::int64_t* const keys = pulled.keys.data();
  std::uint32_t* const rows = pulled.rows.data();
  const bool is_float32 = config_.value_type == ValueType::kFloat32;
  VisitedRows* const visited = tier_ != nullptr ? &tier_->visited : nullptr;
  std::atomic<bool> has_missing{false};
  std::atomic<bool> has_cold{false};
  parallel_for(useful_threads(threads, pulled.rows.size()), bag_chunks(bags), [&](std::int64_t chunk) {
    ChunkSums sums(bags, chunk, out, dim);
    std::vector<float> unpacked(dim);
    with_constant_bytes(slab_.layout().value_bytes, [&](auto row_bytes) {
      look_up(index_, slab_, row_bytes, keys, sums.begin_key(), sums.end_key(),
              [=, this, &sums, &has_cold, &has_missing, unpacked = unpacked.data()](
                  std::int64_t i, std::uint32_t row, const std::byte* data) {
                rows[i] = row;
                const float* values = unpacked;
                if (!is_hot(row)) [[unlikely]] {
                  (is_cold(row) ? has_cold : has_missing).store(true, std::memory_order_relaxed);
                  initial_values(keys[i], unpacked);
                } else if (is_float32) {
                  values = reinterpret_cast<const float*>(data);
                } else {
                  slab_.unpack_values(data, unpacked);
                }
                if (visited != nullptr && is_hot(row)) {
                  visited->visit(row);
                }
                sums.add(i, values);
              });
    });
  });
  return has_cold ? Found::kOnDisk : has_missing ? Found::kInMemory : Found::kAll;
}

void Table::push_bags(const PulledRows& pulled, const Bags& bags, const float* gradients, int threads) {
  const std::int64_t count = pulled.rows.size();
  PooledArray<std::uint32_t> gradient_of(count);
  PooledArray<float> scale_of(bags.weights != nullptr || bags.divisors != nullptr ? count : 0);
  parallel_for(useful_threads(threads, count), bag_chunks(bags), [&](std::int64_t chunk) {
    const std::int64_t end = first_bag(bags, chunk + 1);
    for (std::int64_t bag = first_bag(bags, chunk); bag < end; ++bag) {
      const float divisor = bags.divisors != nullptr ? bags.divisors[bag] : 1.0F;
      for (std::int64_t i = bags.offsets[bag]; i < bags.offsets[bag + 1]; ++i) {
        gradient_of[i] = static_cast<std::uint32_t>(bag);
        if (scale_of.size() > 0) {
          scale_of[i] = (bags.weights != nullptr ? bags.weights[i] : 1.0F) / divisor;
        }
      }
    }
  });
  push_rows(pulled,
            {gradients, count, bags.count, gradient_of.data(), scale_of.size() > 0 ? scale_of.data() : nullptr}, threads);
}

}  // namespace graphbox
