#include "train/skip_gram_loss.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "portability/cpu.h"
#include "train/lanes.h"

namespace graphbox {
namespace {

constexpr std::size_t kBlockCenters = 8;

// A sum of log(1 + e^-|x|) and max(x, 0): the logarithms are taken of products of many 1 + e^-|x|.
class LossSum {
 public:
  GRAPHBOX_INLINE void add(const Lanes& positive_part, const Lanes& one_plus_exponential) {
    parts_ += positive_part;
    product_ *= one_plus_exponential;
    if (++factors_ == kMostFactors) {
      flush();
    }
  }

  GRAPHBOX_INLINE double take() {
    flush();
    double sum = 0;
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
      sum += static_cast<double>(parts_[lane]);
    }
    parts_ = Lanes{};
    return sum + std::exchange(logarithms_, 0.0);
  }

 private:
  static constexpr int kMostFactors = 60;  // of at most 2, in each lane: the product of all lanes is a double yet

  GRAPHBOX_INLINE void flush() {
    double product = 1;
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
      product *= static_cast<double>(product_[lane]);
    }
    logarithms_ += std::log(product);
    product_ = Lanes{} + 1.0F;
    factors_ = 0;
  }

  Lanes parts_ = Lanes{};
  Lanes product_ = Lanes{} + 1.0F;
  int factors_ = 0;
  double logarithms_ = 0;
};

constexpr IntLanes kPlaces = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Turns the logits of one centre into the gradients of its pairs with the contexts from place
// `begin` on. x - x is 0, but NaN where x is infinite or NaN, which then shows in the loss.
GRAPHBOX_INLINE void pair_gradients(const WalkRows& rows, std::size_t center, std::size_t begin, std::size_t width,
                                    float* logits, LossSum& loss) {
  const std::int32_t key = rows.keys[center];
  const auto first = rows.first[center] - static_cast<std::int32_t>(begin);
  const auto last = rows.last[center] - static_cast<std::int32_t>(begin);
  for (std::size_t i = 0; i < width; i += kLaneCount) {
    const IntLanes places = kPlaces + static_cast<std::int32_t>(i);
    IntLanes keys;
    std::memcpy(&keys, rows.keys + begin + i, sizeof(keys));
    const IntLanes is_pair = (places >= first) & (places < last) & (keys != key);
    Lanes logit;
    load(logit, logits + i);
    Lanes exponential;
    exp_of_negative_absolute(logit, exponential);
    const Lanes sum = 1.0F + exponential;
    const Lanes slope = (logit >= 0.0F ? -exponential : Lanes{} - 1.0F) / sum;
    const Lanes zeros = {};
    loss.add(is_pair ? (logit < 0.0F ? -logit : logit - logit) : zeros, is_pair ? sum : zeros + 1.0F);
    const Lanes gradient = is_pair ? slope * rows.scale : zeros;
    store(logits + i, gradient);
  }
}

// The same with the negatives of one centre, all of which but the padding count.
GRAPHBOX_INLINE double negative_gradients_of(const NegativeRows& rows, std::size_t center, float* logits,
                                             LossSum& loss) {
  const auto last = static_cast<std::int32_t>(rows.num_negatives);
  const float scale = rows.scale * rows.weights[center];
  for (std::size_t i = 0; i < rows.num_negatives; i += kLaneCount) {
    const IntLanes is_negative = kPlaces + static_cast<std::int32_t>(i) < last;
    Lanes logit;
    load(logit, logits + i);
    Lanes exponential;
    exp_of_negative_absolute(logit, exponential);
    const Lanes sum = 1.0F + exponential;
    const Lanes slope = (logit >= 0.0F ? Lanes{} + 1.0F : exponential) / sum;
    const Lanes zeros = {};
    loss.add(is_negative ? (logit > 0.0F ? logit : logit - logit) : zeros, is_negative ? sum : zeros + 1.0F);
    const Lanes gradient = is_negative ? slope * scale : zeros;
    store(logits + i, gradient);
  }
  return loss.take() * static_cast<double>(rows.weights[center]);
}

}  // namespace

GRAPHBOX_CLONES
void transpose(const float* __restrict from, std::size_t rows, std::size_t columns, float* __restrict to,
               std::size_t to_stride) {
  for (std::size_t column = 0; column < columns; ++column) {
    float* const target = to + column * to_stride;
    for (std::size_t row = 0; row < rows; ++row) {
      target[row] = from[row * columns + column];
    }
    std::fill(target + rows, target + to_stride, 0.0F);
  }
}

GRAPHBOX_CLONES
double walk_loss(const WalkRows& rows, float* center_gradients, float* context_gradients, LossWorkspace& workspace) {
  const std::size_t stride = rows.stride;
  const std::size_t padded = whole_lanes(rows.count + 2 * kLaneCount);  // tiles begin anywhere
  workspace.transposed.resize(padded * stride);
  workspace.logits.resize(kBlockCenters * padded);
  float* const transposed = workspace.transposed.data();
  float* const logits = workspace.logits.data();
  transpose(rows.contexts, rows.count, stride, transposed, padded);
  std::fill_n(context_gradients, rows.count * stride, 0.0F);
  LossSum loss;
  for (std::size_t center = 0; center < rows.count; center += kBlockCenters) {
    const std::size_t count = std::min(kBlockCenters, rows.count - center);
    const auto begin = static_cast<std::size_t>(*std::min_element(rows.first + center, rows.first + center + count));
    const auto end = static_cast<std::size_t>(*std::max_element(rows.last + center, rows.last + center + count));
    const std::size_t width = whole_lanes(end - begin);
    product<false>({rows.centers + center * stride, stride, 1}, count, transposed + begin, padded, width, stride,
                   logits, width);
    for (std::size_t i = 0; i < count; ++i) {
      pair_gradients(rows, center + i, begin, width, logits + i * width, loss);
    }
    product<false>({logits, width, 1}, count, rows.contexts + begin * stride, stride, stride, end - begin,
                   center_gradients + center * stride, stride);
    product<true>({logits, 1, width}, end - begin, rows.centers + center * stride, stride, stride, count,
                  context_gradients + begin * stride, stride);
  }
  return loss.take();
}

GRAPHBOX_CLONES
double negative_loss(const NegativeRows& rows, float* center_gradients, float* negative_gradients,
                     LossWorkspace& workspace) {
  const std::size_t stride = rows.stride;
  const std::size_t width = whole_lanes(rows.num_negatives);
  workspace.logits.resize(rows.count * width);
  float* const logits = workspace.logits.data();
  product<false>({rows.centers, stride, 1}, rows.count, rows.transposed, width, width, stride, logits, width);
  LossSum sum;
  double loss = 0;
  for (std::size_t center = 0; center < rows.count; ++center) {
    loss += negative_gradients_of(rows, center, logits + center * width, sum);
  }
  product<false>({logits, width, 1}, rows.count, rows.negatives, stride, stride, rows.num_negatives, center_gradients,
                 stride);
  product<false>({logits, 1, width}, rows.num_negatives, rows.centers, stride, stride, rows.count, negative_gradients,
                 stride);
  return loss;
}

}  // namespace graphbox
