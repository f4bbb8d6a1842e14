#include "table/bag.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "portability/cpu.h"
#include "table/batch.h"
#include "table/location.h"
#include "table/table.h"

namespace graphbox {
namespace {

constexpr std::int64_t kRowDistance = 16;  // keys between asking for a row's values and adding them

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
  {
    const std::shared_lock lock(mutex_);
    pulled.version = version_;
    pulled.changes = changes_now();
    const std::vector<std::int64_t> missing = missing_keys(keys, count, pulled.rows.data(), threads);
    const bool has_all = std::none_of(missing.begin(), missing.end(), [&](std::int64_t i) { return is_cold(pulled.rows[i]); });
    if (missing.empty() || (!create && has_all)) {
      sum_bags(pulled, bags, nullptr, out, threads);
      return pulled;
    }
  }
  if (!create) {  // some are on SSD
    PooledArray<float> values(count * static_cast<std::int64_t>(config_.dim));
    read(keys, count, values.data(), false, threads, &pulled);
    sum_bags(pulled, bags, values.data(), out, threads);
    return pulled;
  }
  const auto lock = lock_with_rows(keys, count, pulled.rows.data(), threads);
  pulled.version = version_;
  pulled.changes = changes_now();
  sum_bags(pulled, bags, nullptr, out, threads);
  return pulled;
}

// Writes the sums, of `values` if they were read already; keys without a row count as their initial values.
void Table::sum_bags(const PulledRows& pulled, const Bags& bags, const float* values, float* out, int threads) const {
  const std::size_t dim = config_.dim;
  const std::int64_t count = pulled.rows.size();
  const bool is_direct = config_.value_type == ValueType::kFloat32;
  parallel_for(useful_threads(threads, count), bag_chunks(bags), [&](std::int64_t chunk) {
    std::vector<float> unpacked(dim);
    const auto values_of = [&](std::int64_t i) -> const float* {
      if (values != nullptr) {
        return values + static_cast<std::size_t>(i) * dim;
      }
      const std::uint32_t row = pulled.rows[i];
      if (row == kNoRow) {
        initial_values(pulled.keys[i], unpacked.data());
        return unpacked.data();
      }
      if (is_direct) {
        return slab_.float32_values(row);
      }
      slab_.copy_values(row, unpacked.data());
      return unpacked.data();
    };
    const std::int64_t end = first_bag(bags, chunk + 1);
    for (std::int64_t bag = first_bag(bags, chunk); bag < end; ++bag) {
      float* const sum = out + static_cast<std::size_t>(bag) * dim;
      const std::int64_t begin_key = bags.offsets[bag];
      const std::int64_t end_key = bags.offsets[bag + 1];
      if (begin_key == end_key) {
        std::fill_n(sum, dim, 0.0F);
      }
      for (std::int64_t i = begin_key; i < end_key; ++i) {
        const std::int64_t ahead = i + kRowDistance;
        if (ahead < count && pulled.rows[ahead] != kNoRow && values == nullptr) {
          slab_.prefetch_values(pulled.rows[ahead]);
        }
        const float* const row_values = values_of(i);
        const float weight = bags.weights != nullptr ? bags.weights[i] : 1.0F;
        if (i == begin_key) {
          set_scaled(sum, row_values, weight, dim);
        } else if (bags.weights == nullptr) {
          add_gradient(sum, row_values, dim);
        } else {
          add_scaled(sum, row_values, weight, dim);
        }
      }
      if (bags.divisors != nullptr && bags.divisors[bag] != 1.0F) {
        divide(sum, bags.divisors[bag], dim);
      }
    }
  });
}

std::uint64_t Table::push_bags(const PulledRows& pulled, const Bags& bags, const float* gradients,
                               std::optional<float> lr, int threads) {
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
  return push_rows(pulled,
                   {gradients, count, bags.count, gradient_of.data(), scale_of.size() > 0 ? scale_of.data() : nullptr},
                   lr, threads);
}

}  // namespace graphbox
