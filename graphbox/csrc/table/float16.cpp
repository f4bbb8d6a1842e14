#include "table/float16.h"

#include <bit>

#include "portability/cpu.h"

namespace graphbox {
namespace {

constexpr std::uint32_t kSign = 0x8000;
constexpr std::uint32_t kLargest = 0x7BFF;  // 65,504
constexpr std::uint32_t kNaN = 0x7E00;
constexpr std::uint32_t kDroppedBits = 13;             // of a float's mantissa
constexpr std::uint32_t kSmallestNormal = 113U << 23;  // 2^-14 as a float
constexpr std::uint32_t kInfinity = 255U << 23;
constexpr std::uint32_t kBias = (127U - 15U) << 10;  // between the exponents, at the place of those of 16 bits

GRAPHBOX_INLINE std::uint16_t finished(std::uint32_t bits, std::uint32_t magnitude, std::uint32_t rounded) {
  const std::uint32_t bounded = rounded < kLargest ? rounded : kLargest;
  const std::uint32_t result = magnitude > kInfinity ? kNaN : bounded;
  return static_cast<std::uint16_t>((bits >> 16 & kSign) | result);
}

GRAPHBOX_INLINE std::uint16_t rounded_to_nearest(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Floats near 0.5 are as far apart as small numbers of 16 bits: the addition rounds those.
  const auto small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t half = (1U << (kDroppedBits - 1)) - 1 + (magnitude >> kDroppedBits & 1);
  const std::uint32_t normal = ((magnitude + half) >> kDroppedBits) - kBias;
  return finished(bits, magnitude, magnitude < kSmallestNormal ? small : normal);
}

// Dropping bits rounds down; adding random ones to them first rounds up as often as they say. Small numbers have fewer
// bits: adding 2^-14 puts those to be dropped at the same place.
GRAPHBOX_INLINE std::uint16_t rounded_by(float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const float raised = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kSmallestNormal);
  const bool is_small = magnitude < kSmallestNormal;
  const std::uint32_t from = is_small ? std::bit_cast<std::uint32_t>(raised) : magnitude;
  const std::uint32_t offset = is_small ? kBias + (1U << 10) : kBias;
  const std::uint32_t above = random & ((1U << kDroppedBits) - 1);
  return finished(bits, magnitude, ((from + above) >> kDroppedBits) - offset);
}

}  // namespace

GRAPHBOX_CLONES
void from_float16(const std::uint16_t* __restrict halves, float* __restrict values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = float16_value(halves[i]);
  }
}

GRAPHBOX_CLONES
void to_float16(const float* __restrict values, std::uint16_t* __restrict halves, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    halves[i] = rounded_to_nearest(values[i]);
  }
}

GRAPHBOX_CLONES
void to_float16_stochastic(const float* __restrict values, const std::uint32_t* __restrict words,
                           std::uint16_t* __restrict halves, std::size_t count) {
  for (std::size_t pair = 0; pair < count / 2; ++pair) {
    halves[2 * pair] = rounded_by(values[2 * pair], words[pair]);
    halves[2 * pair + 1] = rounded_by(values[2 * pair + 1], words[pair] >> 16);
  }
  if (count % 2 != 0) {
    halves[count - 1] = rounded_by(values[count - 1], words[count / 2]);
  }
}

}  // namespace graphbox
