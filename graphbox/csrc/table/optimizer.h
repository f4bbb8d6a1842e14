// The arithmetic of a row: what a gradient does to values and state.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graphbox {

enum class Optimizer : std::uint32_t { kSgd = 0, kAdagrad = 1, kRowwiseAdagrad = 2 };

// Values of state for each value of the embedding.
constexpr std::size_t state_per_value(Optimizer optimizer) { return optimizer == Optimizer::kAdagrad ? 1 : 0; }

// values -= lr * gradient
void update_sgd(float* values, const float* gradient, std::size_t dim, float lr);

// state += gradient^2; values -= lr * gradient / (sqrt(state) + eps)
// (Duchi, Hazan, Singer, "Adaptive subgradient methods", JMLR 12, 2011, in the diagonal form)
void update_adagrad(float* values, float* state, const float* gradient, std::size_t dim, float lr, float eps);

// The same with one state for the row, which gains the mean of gradient^2.
void update_rowwise_adagrad(float* values, float* accumulator, const float* gradient, std::size_t dim, float lr,
                            float eps);

// sum += gradient
void add_gradient(float* sum, const float* gradient, std::size_t dim);

// Whether no value is NaN or infinite.
bool all_finite(const float* values, std::size_t count);

// Uniform values in [-scale, scale) from random words.
void uniform_values(float* values, const std::uint32_t* words, std::size_t count, float scale);

}  // namespace graphbox
