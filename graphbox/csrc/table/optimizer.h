// The arithmetic of a row: what a gradient does to values and state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "portability/cpu.h"

namespace graphbox {

enum class Optimizer : std::uint32_t {
  kSgd = 0,
  kAdagrad = 1,         // Duchi, Hazan, Singer, JMLR 12, 2011, in the diagonal form
  kRowwiseAdagrad = 2,  // the same with one state for the row, which gains the mean of gradient^2
  kAdam = 3,            // Kingma, Ba, ICLR 2015; steps are counted for each row
  kRowwiseAdam = 4,     // the same with one second moment for the row, of the mean of gradient^2
  kFtrl = 5,            // FTRL-Proximal: McMahan et al., "Ad click prediction", KDD 2013, algorithm 1
};
inline constexpr std::uint32_t kOptimizers = 6;

struct OptimizerConfig {
  Optimizer kind = Optimizer::kRowwiseAdagrad;
  float lr = 0.05F;
  float eps = 1e-8F;
  float initial_accumulator = 0.0F;  // of both Adagrads and of FTRL
  float beta1 = 0.9F;                // of both Adams
  float beta2 = 0.999F;
  float beta = 1.0F;  // of FTRL, as l1 and l2
  float l1 = 0.0F;
  float l2 = 0.0F;
  float weight_decay = 0.0F;
  float lowest = -std::numeric_limits<float>::infinity();  // values are held between these
  float highest = std::numeric_limits<float>::infinity();
  float clip_norm = std::numeric_limits<float>::infinity();   // gradients longer than this are shortened to it,
  float clip_value = std::numeric_limits<float>::infinity();  // then each of their values is held between -this and this
  bool decoupled_weight_decay = false;  // values shrink by lr * weight_decay; otherwise it is part of the gradient
  bool mean_gradient = false;           // gradients of equal keys are averaged instead of summed
};

// Values of state for each value of the embedding.
std::size_t state_per_value(Optimizer optimizer);

bool has_accumulator(Optimizer optimizer);
bool has_steps(Optimizer optimizer);

// Optimizer state of a row beside its values, null where its optimizer does not need it.
struct RowState {
  float* accumulator;    // one number for the row
  std::uint32_t* steps;  // how often the row was updated; stays at its end
  float* per_value;      // state_per_value arrays of dim numbers, one after another
};

// A row, and the gradient to apply to it.
struct RowGradient {
  float* values;
  RowState state;
  const float* gradient;
  float scale;  // multiplies the gradient, before it is clipped
};

inline constexpr std::size_t kUpdatedRows = 16;  // that are updated together

// Asks for the bytes of a row, or the start of a long one: the processor follows by itself from there. Inlined always:
// the compiler takes a function that only prefetches for one without effect, and leaves it out.
GRAPHBOX_INLINE void prefetch_bytes(const std::byte* begin, std::size_t bytes) {
  const std::size_t most = std::min<std::size_t>(bytes, 1024);
  for (std::size_t line = 0; line < most; line += kCacheLineBytes) {
    prefetch(begin + line);
  }
}

// Rows to be updated next. Their memory is asked for while others are, a row for a row: if it is asked for in one go,
// the processor stops at what is more than it can wait for.
struct RowsAhead {
  std::span<const RowGradient> rows;
  std::size_t row_bytes;  // from their values on
};

// Applies gradients to rows, as the settings say. Compiled for several instruction sets, the same bits on all.
class RowUpdate {
 public:
  explicit RowUpdate(const OptimizerConfig& config);

  // Initializes all state of a new row.
  void initialize(RowState state, std::size_t dim) const;

  // At most kUpdatedRows different rows, and as many ahead.
  void apply(std::span<RowGradient> rows, std::size_t dim, const RowsAhead& ahead = {}) const;

  void set_lr(float lr) { config_.lr = lr; }
  const OptimizerConfig& config() const { return config_; }

 private:
  float clipped_scale(const float* gradient, float scale, std::size_t dim) const;
  // 1 - beta^steps
  static float correction(const std::vector<float>& table, std::uint32_t steps);

  OptimizerConfig config_;
  bool has_settings_;  // any besides those of the optimizer itself
  std::vector<float> corrections1_;  // 1 - beta^steps, until it is 1
  std::vector<float> corrections2_;
};

// sum += gradient
void add_gradient(float* sum, const float* gradient, std::size_t dim);

// Whether no value is NaN or infinite.
bool all_finite(const float* values, std::size_t count);

// Uniform values in [-scale, scale) from random words.
void uniform_values(float* values, const std::uint32_t* words, std::size_t count, float scale);

}  // namespace graphbox
