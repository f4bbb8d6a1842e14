// Exponentially distributed numbers from uniform ones, with the same bits on every machine.
#pragma once

#include <bit>
#include <cstdint>

#include "portability/cpu.h"

namespace graphbox {

// -log(u) for u in (0, 1), by nothing but exactly rounded operations: the same bits on every machine. u is split into
// 2^exponent * mantissa, mantissa in [sqrt(1/2), sqrt(2)), whose logarithm is 2 artanh((mantissa - 1) / (mantissa + 1)).
GRAPHBOX_INLINE double exponential(double u) {
  constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDULL;
  constexpr double kLog2 = 0x1.62e42fefa39efp-1;
  const auto bits = std::bit_cast<std::uint64_t>(u);
  const std::int64_t exponent = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double mantissa = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = s * s;
  const double series =
      1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13))))));
  return -(2.0 * s * series + static_cast<double>(exponent) * kLog2);
}

}  // namespace graphbox
