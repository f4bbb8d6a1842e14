#include "table/optimizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "portability/cpu.h"

namespace graphbox {
namespace {

// What every update has in common. A setting that is not used has the value that changes no bit.
struct Common {
  float scale;   // of the gradient
  float clip;    // its largest magnitude after that
  float decay;   // times the value: added to the gradient
  float keep;    // of the value, before the step
  float lowest;  // of the result
  float highest;
};

GRAPHBOX_INLINE float gradient_of(const Common& common, float value, float gradient) {
  const float scaled = common.scale * gradient;
  const float raised = scaled < -common.clip ? -common.clip : scaled;
  return (raised > common.clip ? common.clip : raised) + common.decay * value;
}

GRAPHBOX_INLINE float stepped(const Common& common, float value, float step) {
  const float result = value * common.keep - step;
  const float raised = result < common.lowest ? common.lowest : result;
  return raised > common.highest ? common.highest : raised;
}

// The mean of the squares. Sixteen sums side by side, added pairwise at the end: the same bits however wide the
// registers are.
GRAPHBOX_INLINE float mean_square(const Common& common, const float* __restrict values,
                                  const float* __restrict gradient, std::size_t dim) {
  constexpr std::size_t kLanes = 16;
  float lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float g = gradient_of(common, values[i + lane], gradient[i + lane]);
      lanes[lane] += g * g;
    }
  }
  for (std::size_t lane = 0; i < dim; ++i, ++lane) {
    const float g = gradient_of(common, values[i], gradient[i]);
    lanes[lane] += g * g;
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return lanes[0] / static_cast<float>(dim);
}

// In double precision: squares of floats neither overflow nor vanish there.
GRAPHBOX_CLONES
double square_sum(const float* gradient, std::size_t dim) {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto g = static_cast<double>(gradient[i + lane]);
      lanes[lane] += g * g;
    }
  }
  for (std::size_t lane = 0; i < dim; ++i, ++lane) {
    const auto g = static_cast<double>(gradient[i]);
    lanes[lane] += g * g;
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return lanes[0];
}

// values -= lr * g
GRAPHBOX_INLINE void update_sgd(const Common common, float* __restrict values, const float* __restrict gradient, std::size_t dim,
                float lr) {
  for (std::size_t i = 0; i < dim; ++i) {
    values[i] = stepped(common, values[i], lr * gradient_of(common, values[i], gradient[i]));
  }
}

// state += g^2; values -= lr * g / (sqrt(state) + eps)
GRAPHBOX_INLINE void update_adagrad(const Common common, float* __restrict values, float* __restrict state,
                    const float* __restrict gradient, std::size_t dim, float lr, float eps) {
  for (std::size_t i = 0; i < dim; ++i) {
    const float g = gradient_of(common, values[i], gradient[i]);
    state[i] += g * g;
    values[i] = stepped(common, values[i], lr * g / (std::sqrt(state[i]) + eps));
  }
}

struct Moments {
  float beta1;
  float beta2;
  float step;   // lr / (1 - beta1^steps)
  float scale;  // of the root of the second moment: 1 / sqrt(1 - beta2^steps)
  float eps;
};

// first += (1 - beta1) (g - first); second += (1 - beta2) (g^2 - second);
// values -= step * first / (scale * sqrt(second) + eps)
GRAPHBOX_INLINE void update_adam(const Common common, float* __restrict values, float* __restrict first, float* __restrict second,
                 const float* __restrict gradient, std::size_t dim, const Moments moments) {
  for (std::size_t i = 0; i < dim; ++i) {
    const float g = gradient_of(common, values[i], gradient[i]);
    first[i] += (1 - moments.beta1) * (g - first[i]);
    second[i] = moments.beta2 * second[i] + (1 - moments.beta2) * g * g;
    const float root = moments.scale * std::sqrt(second[i]) + moments.eps;
    values[i] = stepped(common, values[i], moments.step * first[i] / root);
  }
}

GRAPHBOX_INLINE void update_rowwise_adam(const Common common, float* __restrict values, float* __restrict first,
                         float* __restrict second, const float* __restrict gradient, std::size_t dim,
                         const Moments moments) {
  const float square = mean_square(common, values, gradient, dim);
  *second = moments.beta2 * *second + (1 - moments.beta2) * square;
  const float step = moments.step / (moments.scale * std::sqrt(*second) + moments.eps);
  for (std::size_t i = 0; i < dim; ++i) {
    const float g = gradient_of(common, values[i], gradient[i]);
    first[i] += (1 - moments.beta1) * (g - first[i]);
    values[i] = stepped(common, values[i], step * first[i]);
  }
}

struct Proximal {
  float lr;
  float beta;
  float l1;
  float l2;
  bool is_first;  // update of the row
};

// The value that a row of FTRL has is a function of z and n: 0 where |z| <= l1, otherwise
// -(z - sign(z) l1) / ((beta + sqrt(n)) / lr + l2). A new row starts with the z of its initial values.
GRAPHBOX_INLINE void update_ftrl(const Common common, float* __restrict values, float* __restrict z, float* __restrict n,
                 const float* __restrict gradient, std::size_t dim, const Proximal settings) {
  for (std::size_t i = 0; i < dim; ++i) {
    const float value = values[i];
    const float g = gradient_of(common, value, gradient[i]);
    const float root = std::sqrt(n[i]);
    const float strength = (settings.beta + root) / settings.lr + settings.l2;
    const float initial = -value * strength - (value == 0 ? 0.0F : std::copysign(settings.l1, value));
    n[i] += g * g;
    const float next_root = std::sqrt(n[i]);
    const float before = settings.is_first ? initial : z[i];
    z[i] = before + g - (next_root - root) / settings.lr * value;
    const float excess = std::abs(z[i]) - settings.l1;
    const float next_strength = (settings.beta + next_root) / settings.lr + settings.l2;
    const float next = excess > 0 ? -std::copysign(excess, z[i]) / next_strength : 0.0F;
    const float raised = next < common.lowest ? common.lowest : next;
    values[i] = raised > common.highest ? common.highest : raised;
  }
}

// --- Several rows, so that the long operations of one overlap those of the others ------------------------------------

using Rows = std::span<const RowGradient>;

GRAPHBOX_INLINE Common of_row(Common common, const RowGradient& row) {
  common.scale = row.scale;
  return common;
}

GRAPHBOX_CLONES
void update_rows_sgd(const Common common, Rows rows, std::size_t dim, float lr) {
  for (const RowGradient& row : rows) {
    update_sgd(of_row(common, row), row.values, row.gradient, dim, lr);
  }
}

GRAPHBOX_CLONES
void update_rows_adagrad(const Common common, Rows rows, std::size_t dim, float lr, float eps) {
  for (const RowGradient& row : rows) {
    update_adagrad(of_row(common, row), row.values, row.state.per_value, row.gradient, dim, lr, eps);
  }
}

// accumulator += mean of g^2; values -= lr * g / (sqrt(accumulator) + eps)
GRAPHBOX_CLONES
void update_rows_rowwise_adagrad(const Common common, Rows rows, std::size_t dim, float lr, float eps) {
  float steps[kUpdatedRows];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RowGradient& row = rows[i];
    *row.state.accumulator += mean_square(of_row(common, row), row.values, row.gradient, dim);
    steps[i] = *row.state.accumulator;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    steps[i] = lr / (std::sqrt(steps[i]) + eps);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    update_sgd(of_row(common, rows[i]), rows[i].values, rows[i].gradient, dim, steps[i]);
  }
}

GRAPHBOX_CLONES
void update_rows_adam(const Common common, Rows rows, std::size_t dim, const Moments* moments) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RowGradient& row = rows[i];
    update_adam(of_row(common, row), row.values, row.state.per_value, row.state.per_value + dim, row.gradient, dim,
                moments[i]);
  }
}

GRAPHBOX_CLONES
void update_rows_rowwise_adam(const Common common, Rows rows, std::size_t dim, const Moments* moments) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RowGradient& row = rows[i];
    update_rowwise_adam(of_row(common, row), row.values, row.state.per_value, row.state.accumulator, row.gradient, dim,
                        moments[i]);
  }
}

GRAPHBOX_CLONES
void update_rows_ftrl(const Common common, Rows rows, std::size_t dim, Proximal settings) {
  for (const RowGradient& row : rows) {
    settings.is_first = *row.state.steps == 1;
    update_ftrl(of_row(common, row), row.values, row.state.per_value, row.state.per_value + dim, row.gradient, dim,
                settings);
  }
}

// 1 - beta^steps for 0, 1, 2 ... steps, until it is 1 for good or nearly so.
std::vector<float> corrections_of(double beta) {
  constexpr std::size_t kMost = 1 << 17;
  std::vector<float> corrections = {0.0F};
  double power = 1;
  while (corrections.back() < 1.0F && corrections.size() < kMost) {
    power *= beta;
    corrections.push_back(static_cast<float>(1 - power));
  }
  return corrections;
}

}  // namespace

std::size_t state_per_value(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kAdagrad:
    case Optimizer::kRowwiseAdam:
      return 1;
    case Optimizer::kAdam:
    case Optimizer::kFtrl:
      return 2;
    case Optimizer::kSgd:
    case Optimizer::kRowwiseAdagrad:
      break;
  }
  return 0;
}

bool has_accumulator(Optimizer optimizer) {
  return optimizer == Optimizer::kRowwiseAdagrad || optimizer == Optimizer::kRowwiseAdam;
}

bool has_steps(Optimizer optimizer) {
  return optimizer == Optimizer::kAdam || optimizer == Optimizer::kRowwiseAdam || optimizer == Optimizer::kFtrl;
}

RowUpdate::RowUpdate(const OptimizerConfig& config) : config_(config) {
  if (config.kind == Optimizer::kAdam || config.kind == Optimizer::kRowwiseAdam) {
    corrections1_ = corrections_of(static_cast<double>(config.beta1));
    corrections2_ = corrections_of(static_cast<double>(config.beta2));
  }
}

void RowUpdate::initialize(RowState state, std::size_t dim) const {
  if (state.steps != nullptr) {
    *state.steps = 0;
  }
  if (state.accumulator != nullptr) {
    *state.accumulator = config_.kind == Optimizer::kRowwiseAdagrad ? config_.initial_accumulator : 0.0F;
  }
  if (config_.kind == Optimizer::kAdagrad) {
    std::fill_n(state.per_value, dim, config_.initial_accumulator);
    return;
  }
  std::fill_n(state.per_value, dim * state_per_value(config_.kind), 0.0F);
  if (config_.kind == Optimizer::kFtrl) {
    std::fill_n(state.per_value + dim, dim, config_.initial_accumulator);
  }
}

float RowUpdate::correction(const std::vector<float>& table, std::uint32_t steps) {
  return table[std::min<std::size_t>(steps, table.size() - 1)];
}

// The factor of the gradient that shortens it to clip_norm where it is longer.
float RowUpdate::clipped_scale(const float* gradient, float scale, std::size_t dim) const {
  if (std::isinf(config_.clip_norm)) {
    return scale;
  }
  const double norm = static_cast<double>(scale) * std::sqrt(square_sum(gradient, dim));
  const auto most = static_cast<double>(config_.clip_norm);
  return norm <= most ? scale : static_cast<float>(static_cast<double>(scale) * (most / norm));
}

void RowUpdate::apply(std::span<RowGradient> rows, std::size_t dim) const {
  const float decay = config_.weight_decay;
  const Common common = {1, config_.clip_value, config_.decoupled_weight_decay ? 0.0F : decay,
                         config_.decoupled_weight_decay ? 1 - config_.lr * decay : 1.0F, config_.lowest,
                         config_.highest};
  std::array<Moments, kUpdatedRows> moments;
  const bool has_moments = config_.kind == Optimizer::kAdam || config_.kind == Optimizer::kRowwiseAdam;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].scale = clipped_scale(rows[i].gradient, rows[i].scale, dim);
    std::uint32_t* const steps = rows[i].state.steps;
    if (steps != nullptr && *steps != UINT32_MAX) {
      ++*steps;
    }
    if (has_moments) {
      moments[i] = {config_.beta1, config_.beta2, config_.lr / correction(corrections1_, *steps),
                    1 / std::sqrt(correction(corrections2_, *steps)), config_.eps};
    }
  }
  switch (config_.kind) {
    case Optimizer::kSgd:
      return update_rows_sgd(common, rows, dim, config_.lr);
    case Optimizer::kAdagrad:
      return update_rows_adagrad(common, rows, dim, config_.lr, config_.eps);
    case Optimizer::kRowwiseAdagrad:
      return update_rows_rowwise_adagrad(common, rows, dim, config_.lr, config_.eps);
    case Optimizer::kAdam:
      return update_rows_adam(common, rows, dim, moments.data());
    case Optimizer::kRowwiseAdam:
      return update_rows_rowwise_adam(common, rows, dim, moments.data());
    case Optimizer::kFtrl:
      return update_rows_ftrl(common, rows, dim, {config_.lr, config_.beta, config_.l1, config_.l2, false});
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
