#include "table/row_contents.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "portability/cpu.h"
#include "table/float16.h"
#include "table/optimizer.h"

namespace graphbox {
namespace {

constexpr float kLargestInt8 = 127;

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    largest = std::fabs(value) > largest ? std::fabs(value) : largest;
  }
  return largest;
}

// Of the smallest scales, so few bits are left that the largest value may be more than 127 of them.
std::int8_t rounded_int8(float units) {
  return static_cast<std::int8_t>(std::clamp(std::nearbyint(units), -kLargestInt8, kLargestInt8));
}

GRAPHBOX_CLONES
void from_int8(const std::int8_t* __restrict units, float scale, float* __restrict values, std::size_t dim) {
  for (std::size_t i = 0; i < dim; ++i) {
    values[i] = static_cast<float>(units[i]) * scale;
  }
}

}  // namespace

void encode_int8(const float* values, std::size_t dim, std::byte* out) {
  const float scale = largest_magnitude({values, dim}) / kLargestInt8;
  std::memcpy(out, &scale, sizeof scale);
  auto* const units = reinterpret_cast<std::int8_t*>(out + sizeof scale);
  for (std::size_t i = 0; i < dim; ++i) {
    units[i] = scale == 0 ? std::int8_t{0} : rounded_int8(values[i] / scale);
  }
}

void decode_int8(const std::byte* encoded, float* values, std::size_t dim) {
  float scale = 0;
  std::memcpy(&scale, encoded, sizeof scale);
  from_int8(reinterpret_cast<const std::int8_t*>(encoded + sizeof scale), scale, values, dim);
}

std::size_t served_bytes(std::size_t dim, RowContents contents) {
  switch (contents) {
    case RowContents::kFloat16: return dim * sizeof(std::uint16_t);
    case RowContents::kInt8: return sizeof(float) + dim;
    default: return dim * sizeof(float);
  }
}

bool encode_values(std::span<const float> values, RowContents contents, std::byte* out) {
  if (contents == RowContents::kFloat32) {
    std::memcpy(out, values.data(), values.size_bytes());
    return true;
  }
  if (!all_finite(values.data(), values.size())) {
    return false;
  }
  if (contents == RowContents::kFloat16) {
    to_float16(values.data(), reinterpret_cast<std::uint16_t*>(out), values.size());
  } else {
    encode_int8(values.data(), values.size(), out);
  }
  return true;
}

void decode_values(const std::byte* encoded, RowContents contents, std::span<float> values) {
  switch (contents) {
    case RowContents::kFloat16:
      from_float16(reinterpret_cast<const std::uint16_t*>(encoded), values.data(), values.size());
      break;
    case RowContents::kInt8: decode_int8(encoded, values.data(), values.size()); break;
    default: std::memcpy(values.data(), encoded, values.size_bytes());
  }
}

}  // namespace graphbox
