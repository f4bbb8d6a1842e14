// Values of 16 bits (IEEE 754 binary16) and what turns them into float32 and back. Compiled for several instruction
// sets, the same bits on all.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "portability/cpu.h"

namespace graphbox {

// Exact, for infinities and NaN as well. Choices are made of masks: GCC turns others into branches around the
// subtraction, and then vectorizes loops for AVX-512 alone.
GRAPHBOX_INLINE float float16_value(std::uint16_t half_bits) {
  constexpr std::uint32_t kSignBit = 0x8000;
  constexpr std::uint32_t kDropped = 13;                    // bits of a float's mantissa that 16 bits lack
  constexpr std::uint32_t kSmallest = 113U << 23;           // 2^-14 as a float
  constexpr std::uint32_t kExponents = (127U - 15U) << 23;  // between the biases
  const std::uint32_t half = half_bits;
  const std::uint32_t magnitude = half & ~kSignBit;
  const std::uint32_t normal = (magnitude << kDropped) + kExponents;
  // A small one: its mantissa below a leading 1 that stands for 2^-14, which is subtracted.
  const float raised = std::bit_cast<float>((magnitude << kDropped) | kSmallest);
  const auto small = std::bit_cast<std::uint32_t>(raised - std::bit_cast<float>(kSmallest));
  const std::uint32_t is_small = 0U - static_cast<std::uint32_t>(magnitude < 0x400);
  const std::uint32_t is_infinite = 0U - static_cast<std::uint32_t>(magnitude >= 0x7C00);
  const std::uint32_t result = (small & is_small) | ((normal + (kExponents & is_infinite)) & ~is_small);
  return std::bit_cast<float>(result | (half & kSignBit) << 16);
}

// Exact.
void from_float16(const std::uint16_t* halves, float* values, std::size_t count);

// To the nearest, to even between two. Beyond the largest, 65,504, that one.
void to_float16(const float* values, std::uint16_t* halves, std::size_t count);

// Up or down, by 13 random bits for each value (words[i / 2], low half first): the mean of what comes out is the value,
// so that steps too small for 16 bits are not lost. Beyond the largest, that one.
// Gupta, Agrawal, Gopalakrishnan, Narayanan, "Deep learning with limited numerical precision", ICML 2015.
void to_float16_stochastic(const float* values, const std::uint32_t* words, std::uint16_t* halves, std::size_t count);

}  // namespace graphbox
