// Rows whose elements are stored one by one: float32, float16, or int8 with a scale and a bias for each row.
#pragma once

#include "rows/stored_rows.h"

namespace graphbox {

enum class ElementEncoding { kFloat32, kFloat16, kInt8 };

// rows x dim values, row-major. kInt8: value = code * scale + bias, computed in float32, with two float16 for each row.
// Guan et al., "Post-Training 4-bit Quantization on Embedding Tables", arXiv:1911.02079, section 2, at 8 bits.
struct ElementArrays {
  ElementEncoding encoding;
  const void* values;               // float, float16 bits or uint8
  const std::uint16_t* scale_bias;  // float16 bits [rows, 2] of kInt8
  std::int64_t rows;
  std::size_t dim;
};

class ElementwiseRows final : public StoredRows {
 public:
  explicit ElementwiseRows(const ElementArrays& arrays) : StoredRows(arrays.rows, arrays.dim), arrays_(arrays) {}

  std::uint64_t bytes() const override;
  void take(std::span<const std::int64_t> index, const RowOutput& out) const override;
  void decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const override;
  void take_or_default(const RowsOrDefault& wanted, float* out, std::size_t out_stride) const override;
  void sum(const WeightedBags& bags, float* out) const override;

 private:
  ElementArrays arrays_;
};

}  // namespace graphbox
