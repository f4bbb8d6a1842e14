// Rows of a served table, decoded as they are read. Compiled for several instruction sets, the same bits on all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace graphbox {

enum class RowEncoding { kFloat32, kFloat16, kInt8 };

// rows x dim values, row-major. kInt8: value = code * scale + bias, computed in float32, with two float16 for each row.
// Guan et al., "Post-Training 4-bit Quantization on Embedding Tables", arXiv:1911.02079, section 2, at 8 bits.
struct StoredRows {
  RowEncoding encoding;
  const void* values;               // float, float16 bits or uint8
  const std::uint16_t* scale_bias;  // float16 bits [rows, 2] of kInt8
  std::int64_t rows;
  std::size_t dim;
};

// Entries are rows, or -1 for one that has the default row, of `dim` values.
struct RowsOrDefault {
  std::span<const std::int64_t> index;
  const float* default_row;
};

// Bag b has the entries from offsets[b] to offsets[b + 1] - 1: rows, or -1 for one that adds nothing, and their
// weights. Offsets ascend from 0 to the number of entries.
struct WeightedBags {
  const std::int64_t* index;
  const float* weights;
  std::span<const std::int64_t> offsets;
};

// Position of the first entry outside [lowest, limit), or -1.
std::int64_t first_outside(std::span<const std::int64_t> index, std::int64_t lowest, std::int64_t limit);

// out[i * out_stride ...] = row index[i]. All entries must be rows.
void take_rows(const StoredRows& stored, std::span<const std::int64_t> index, float* out, std::size_t out_stride);

// out[i * out_stride ...] = row index[i], or the default row where index[i] is -1. All other entries must be rows.
void take_rows_or_default(const StoredRows& stored, const RowsOrDefault& wanted, float* out, std::size_t out_stride);

// out[i * out_stride ...] = row start + i, for i in [0, count). All must be rows.
void decode_block(const StoredRows& stored, std::int64_t start, std::int64_t count, float* out,
                  std::size_t out_stride);

// out[b * dim ...] = the sum of weight * row over bag b, added in its order, from 0. All entries must be rows or -1.
void sum_rows(const StoredRows& stored, const WeightedBags& bags, float* out);

}  // namespace graphbox
