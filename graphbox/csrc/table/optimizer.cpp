#include "table/optimizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>

#include "portability/cpu.h"

namespace graphbox {
namespace {

// Settings common to all updates, or their absence. An unused setting has the value that changes nothing; where all are
// unused, nothing is computed for them.
struct Settings {
  float scale;   // of the gradient
  float clip;    // its largest magnitude after that
  float decay;   // times the value: added to the gradient
  float keep;    // of the value, before the step
  float lowest;  // of the result
  float highest;
};
struct NoSettings {};

GRAPHBOX_INLINE float gradient_of(const Settings& settings, float value, float gradient) {
  const float scaled = settings.scale * gradient;
  const float raised = scaled < -settings.clip ? -settings.clip : scaled;
  return (raised > settings.clip ? settings.clip : raised) + settings.decay * value;
}
GRAPHBOX_INLINE float gradient_of(NoSettings, float, float gradient) { return gradient; }

GRAPHBOX_INLINE float bounded(const Settings& settings, float value) {
  const float raised = value < settings.lowest ? settings.lowest : value;
  return raised > settings.highest ? settings.highest : raised;
}
GRAPHBOX_INLINE float bounded(NoSettings, float value) { return value; }

GRAPHBOX_INLINE float stepped(const Settings& settings, float value, float step) {
  return bounded(settings, value * settings.keep - step);
}
GRAPHBOX_INLINE float stepped(NoSettings, float value, float step) { return value - step; }

// The mean of the squares. Sixteen sums side by side, added pairwise at the end: the same bits however wide the
// registers are.
template <typename Common>
GRAPHBOX_INLINE float mean_square(const Common& common, const float* __restrict values,
                                  const float* __restrict gradient, std::size_t dim) {
  constexpr std::size_t kLanes = 16;
  using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
  using Order = std::int32_t __attribute__((vector_size(kLanes * sizeof(float))));
  Lanes sums = {};
  std::size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    Lanes squares;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float g = gradient_of(common, values[i + lane], gradient[i + lane]);
      squares[lane] = g * g;
    }
    sums += squares;
  }
  for (std::size_t lane = 0; lane < dim - i; ++lane) {
    const float g = gradient_of(common, values[i + lane], gradient[i + lane]);
    sums[lane] += g * g;
  }
  sums += __builtin_shuffle(sums, Order{8, 9, 10, 11, 12, 13, 14, 15});
  sums += __builtin_shuffle(sums, Order{4, 5, 6, 7});
  sums += __builtin_shuffle(sums, Order{2, 3});
  sums += __builtin_shuffle(sums, Order{1});
  return sums[0] / static_cast<float>(dim);
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
template <typename Common>
GRAPHBOX_INLINE void update_sgd(const Common common, float* __restrict values, const float* __restrict gradient,
                                std::size_t dim, float lr) {
  for (std::size_t i = 0; i < dim; ++i) {
    values[i] = stepped(common, values[i], lr * gradient_of(common, values[i], gradient[i]));
  }
}

// state += g^2; values -= lr * g / (sqrt(state) + eps)
template <typename Common>
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
template <typename Common>
GRAPHBOX_INLINE void update_adam(const Common common, float* __restrict values, float* __restrict first,
                                 float* __restrict second, const float* __restrict gradient, std::size_t dim,
                                 const Moments moments) {
  for (std::size_t i = 0; i < dim; ++i) {
    const float g = gradient_of(common, values[i], gradient[i]);
    first[i] += (1 - moments.beta1) * (g - first[i]);
    second[i] = moments.beta2 * second[i] + (1 - moments.beta2) * g * g;
    const float root = moments.scale * std::sqrt(second[i]) + moments.eps;
    values[i] = stepped(common, values[i], moments.step * first[i] / root);
  }
}

template <typename Common>
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
template <typename Common>
GRAPHBOX_INLINE void update_ftrl(const Common common, float* __restrict values, float* __restrict z,
                                 float* __restrict n, const float* __restrict gradient, std::size_t dim,
                                 const Proximal settings) {
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
    values[i] = bounded(common, next);
  }
}

// --- Several rows, so that the long operations of one overlap those of the others ------------------------------------

using Rows = std::span<const RowGradient>;

GRAPHBOX_INLINE Settings of_row(Settings settings, const RowGradient& row) {
  settings.scale = row.scale;
  return settings;
}
GRAPHBOX_INLINE NoSettings of_row(NoSettings settings, const RowGradient&) { return settings; }

// Calls work(settings, dim); without settings, where they are null, and with a constant for usual dims: the fewer
// instructions a row takes, the more rows' memory a processor waits for at a time. Work is inlined, so that it is
// compiled for the instruction sets of its caller.
template <typename Work>
GRAPHBOX_INLINE void with(const Settings* settings, std::size_t dim, const Work& work) {
  if (settings != nullptr) {
    return work(*settings, dim);
  }
  switch (dim) {
    case 16:
      return work(NoSettings(), std::integral_constant<std::size_t, 16>());
    case 32:
      return work(NoSettings(), std::integral_constant<std::size_t, 32>());
    case 64:
      return work(NoSettings(), std::integral_constant<std::size_t, 64>());
    case 128:
      return work(NoSettings(), std::integral_constant<std::size_t, 128>());
    default:
      return work(NoSettings(), dim);
  }
}

GRAPHBOX_INLINE void ask_for(const RowGradient& row, std::size_t row_bytes, std::size_t dim) {
  prefetch_bytes(reinterpret_cast<const std::byte*>(row.values), row_bytes);
  if (row.state.accumulator != nullptr) {  // for nothing, the processor would look for a page that is not there
    prefetch(row.state.accumulator);
  }
  if (row.state.steps != nullptr) {
    prefetch(row.state.steps);
  }
  prefetch_bytes(reinterpret_cast<const std::byte*>(row.gradient), dim * sizeof(float));
}

// Calls update(row, its number) for all rows.
template <typename Dim, typename Update>
GRAPHBOX_INLINE void for_rows(Rows rows, const RowsAhead& ahead, Dim dim, const Update& update) {
  const bool has_values_only = ahead.row_bytes == dim * sizeof(float);
  std::size_t i = 0;
  for (; i < std::min(rows.size(), ahead.rows.size()); ++i) {
    ask_for(ahead.rows[i], has_values_only ? dim * sizeof(float) : ahead.row_bytes, dim);
    update(rows[i], i);
  }
  for (; i < rows.size(); ++i) {
    update(rows[i], i);
  }
  for (; i < ahead.rows.size(); ++i) {
    ask_for(ahead.rows[i], ahead.row_bytes, dim);
  }
}

GRAPHBOX_CLONES
void update_rows_sgd(const Settings* settings, Rows rows, const RowsAhead& ahead, std::size_t row_dim, float lr) {
  with(settings, row_dim, [&](const auto& common, const auto dim) __attribute__((always_inline)) {
    for_rows(rows, ahead, dim, [&](const RowGradient& row, std::size_t) __attribute__((always_inline)) {
      update_sgd(of_row(common, row), row.values, row.gradient, dim, lr);
    });
  });
}

GRAPHBOX_CLONES
void update_rows_adagrad(const Settings* settings, Rows rows, const RowsAhead& ahead, std::size_t row_dim, float lr,
                         float eps) {
  with(settings, row_dim, [&](const auto& common, const auto dim) __attribute__((always_inline)) {
    for_rows(rows, ahead, dim, [&](const RowGradient& row, std::size_t) __attribute__((always_inline)) {
      update_adagrad(of_row(common, row), row.values, row.state.per_value, row.gradient, dim, lr, eps);
    });
  });
}

// accumulator += mean of g^2; values -= lr * g / (sqrt(accumulator) + eps)
GRAPHBOX_CLONES
void update_rows_rowwise_adagrad(const Settings* settings, Rows rows, const RowsAhead& ahead, std::size_t row_dim,
                                 float lr, float eps) {
  with(settings, row_dim, [&](const auto& common, const auto dim) __attribute__((always_inline)) {
    for_rows(rows, ahead, dim, [&](const RowGradient& row, std::size_t) __attribute__((always_inline)) {
      float& accumulator = *row.state.accumulator;
      accumulator += mean_square(of_row(common, row), row.values, row.gradient, dim);
      const float step = lr / (std::sqrt(accumulator) + eps);
      update_sgd(of_row(common, row), row.values, row.gradient, dim, step);
    });
  });
}

GRAPHBOX_CLONES
void update_rows_adam(const Settings* settings, Rows rows, const RowsAhead& ahead, std::size_t row_dim,
                      const Moments* moments) {
  with(settings, row_dim, [&](const auto& common, const auto dim) __attribute__((always_inline)) {
    for_rows(rows, ahead, dim, [&](const RowGradient& row, std::size_t i) __attribute__((always_inline)) {
      update_adam(of_row(common, row), row.values, row.state.per_value, row.state.per_value + dim, row.gradient, dim,
                  moments[i]);
    });
  });
}

GRAPHBOX_CLONES
void update_rows_rowwise_adam(const Settings* settings, Rows rows, const RowsAhead& ahead, std::size_t row_dim,
                              const Moments* moments) {
  with(settings, row_dim, [&](const auto& common, const auto dim) __attribute__((always_inline)) {
    for_rows(rows, ahead, dim, [&](const RowGradient& row, std::size_t i) __attribute__((always_inline)) {
      update_rowwise_adam(of_row(common, row), row.values, row.state.per_value, row.state.accumulator, row.gradient,
                          dim, moments[i]);
    });
  });
}

GRAPHBOX_CLONES
void update_rows_ftrl(const Settings* settings, Rows rows, const RowsAhead& ahead, std::size_t row_dim,
                      const Proximal proximal) {
  with(settings, row_dim, [&](const auto& common, const auto dim) __attribute__((always_inline)) {
    for_rows(rows, ahead, dim, [&](const RowGradient& row, std::size_t) __attribute__((always_inline)) {
      Proximal of_update = proximal;
      of_update.is_first = *row.state.steps == 1;
      update_ftrl(of_row(common, row), row.values, row.state.per_value, row.state.per_value + dim, row.gradient, dim,
                  of_update);
    });
  });
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
  has_settings_ = !std::isinf(config.clip_value) || !std::isinf(config.clip_norm) || config.mean_gradient ||
                  config.weight_decay != 0 || !std::isinf(config.lowest) || !std::isinf(config.highest);
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

void RowUpdate::apply(std::span<RowGradient> rows, std::size_t dim, const RowsAhead& ahead) const {
  const float decay = config_.weight_decay;
  const Settings all = {1, config_.clip_value, config_.decoupled_weight_decay ? 0.0F : decay,
                        config_.decoupled_weight_decay ? 1 - config_.lr * decay : 1.0F, config_.lowest,
                        config_.highest};
  const Settings* const settings = has_settings_ ? &all : nullptr;
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
      return update_rows_sgd(settings, rows, ahead, dim, config_.lr);
    case Optimizer::kAdagrad:
      return update_rows_adagrad(settings, rows, ahead, dim, config_.lr, config_.eps);
    case Optimizer::kRowwiseAdagrad:
      return update_rows_rowwise_adagrad(settings, rows, ahead, dim, config_.lr, config_.eps);
    case Optimizer::kAdam:
      return update_rows_adam(settings, rows, ahead, dim, moments.data());
    case Optimizer::kRowwiseAdam:
      return update_rows_rowwise_adam(settings, rows, ahead, dim, moments.data());
    case Optimizer::kFtrl:
      return update_rows_ftrl(settings, rows, ahead, dim, {config_.lr, config_.beta, config_.l1, config_.l2, false});
  }
}

GRAPHBOX_CLONES
void add_gradient(float* __restrict sum, const float* __restrict gradient, std::size_t row_dim) {
  with(nullptr, row_dim, [&](const auto&, const auto dim) __attribute__((always_inline)) {
    for (std::size_t i = 0; i < dim; ++i) {
      sum[i] += gradient[i];
    }
  });
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
