#include "table/optimizer.h"

#include <bit>
#include <cmath>

#include "portability/cpu.h"

namespace graphbox {

GRAPHBOX_CLONES
void update_sgd(float* __restrict values, const float* __restrict gradient, std::size_t dim, float lr) {
  for (std::size_t i = 0; i < dim; ++i) {
    values[i] -= lr * gradient[i];
  }
}

GRAPHBOX_CLONES
void update_adagrad(float* __restrict values, float* __restrict state, const float* __restrict gradient,
                    std::size_t dim, float lr, float eps) {
  for (std::size_t i = 0; i < dim; ++i) {
    state[i] += gradient[i] * gradient[i];
    values[i] -= lr * gradient[i] / (std::sqrt(state[i]) + eps);
  }
}

namespace {

// Sixteen sums side by side, added pairwise at the end: the same bits however wide the registers are.
GRAPHBOX_INLINE float sum_of_squares(const float* __restrict values, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  float lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += values[i + lane] * values[i + lane];
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    lanes[lane] += values[i] * values[i];
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return lanes[0];
}

}  // namespace

GRAPHBOX_CLONES
void update_rowwise_adagrad(float* __restrict values, float* accumulator, const float* __restrict gradient,
                            std::size_t dim, float lr, float eps) {
  *accumulator += sum_of_squares(gradient, dim) / static_cast<float>(dim);
  const float step = lr / (std::sqrt(*accumulator) + eps);
  for (std::size_t i = 0; i < dim; ++i) {
    values[i] -= step * gradient[i];
  }
}

GRAPHBOX_CLONES
void add_gradient(float* __restrict sum, const float* __restrict gradient, std::size_t dim) {
  for (std::size_t i = 0; i < dim; ++i) {
    sum[i] += gradient[i];
  }
}

GRAPHBOX_CLONES
bool all_finite(const float* values, std::size_t count) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    found |= (std::bit_cast<std::uint32_t>(values[i]) & 0x7F800000U) == 0x7F800000U ? 1U : 0U;
  }
  return found == 0;
}

GRAPHBOX_CLONES
void uniform_values(float* __restrict values, const std::uint32_t* __restrict words, std::size_t count, float scale) {
  constexpr float kStep = 0x1p-23F;  // 24 bits, as many as a float has
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::int32_t>(words[i] >> 8);
    values[i] = (static_cast<float>(bits) * kStep - 1.0F) * scale;
  }
}

}  // namespace graphbox
