// Stored part of a row in a checkpoint: its whole record, to resume training, or its values alone, to serve them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace graphbox {

enum class RowContents : std::uint32_t {
  kRecords = 0,
  kFloat32 = 1,
  kFloat16 = 2,  // to the nearest; beyond the largest, that one
  kInt8 = 3,     // a float32 scale, then the values in units of it: the largest one is 127 of them
};
inline constexpr std::uint32_t kRowContents = 4;

// A scale and values in units of it; they must be finite.
void encode_int8(const float* values, std::size_t dim, std::byte* out);
void decode_int8(const std::byte* encoded, float* values, std::size_t dim);

// Bytes of the values of a row; not of kRecords.
std::size_t served_bytes(std::size_t dim, RowContents contents);

// The values as `contents` keeps them, in served_bytes(). False where one of them is not finite and cannot be kept.
bool encode_values(std::span<const float> values, RowContents contents, std::byte* out);
void decode_values(const std::byte* encoded, RowContents contents, std::span<float> values);

}  // namespace graphbox
