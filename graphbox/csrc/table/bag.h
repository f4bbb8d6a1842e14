// Sums of rows over bags of keys, and what a gradient of the sums is to the rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graphbox {

// Result i is the sum of the rows of keys offsets[i] ... offsets[i + 1] - 1, each times its weight, divided by the
// divisor of the bag.
struct Bags {
  const std::int64_t* offsets;  // count + 1, from 0 to the number of keys
  std::int64_t count;
  const float* weights = nullptr;   // of keys; null: 1
  const float* divisors = nullptr;  // of bags; null: 1
};

// out = scale * values
void set_scaled(float* out, const float* values, float scale, std::size_t dim);

// sum += scale * values
void add_scaled(float* sum, const float* values, float scale, std::size_t dim);

}  // namespace graphbox
