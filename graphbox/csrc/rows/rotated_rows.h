// Rows of 2, 3 or 4 bits an element, quantized after a rotation: signs, then Walsh-Hadamard transforms of blocks.
#pragma once

#include <vector>

#include "rows/stored_rows.h"

namespace graphbox {

// Bytes of a row: scale and bias, two float16, and the codes. Of 3 bits the low two bits of all precede the high bits.
std::size_t rotated_row_bytes(int bits, std::size_t dim);

// docs/formats/artifact.md, codec `int4_rotated`, has the layout. The rotation is that of Tseng et al., "QuIP#", 2024,
// arXiv:2402.04396, section 3, of each row by itself: elements become alike in size, so that few levels do for all.
struct RotatedArrays {
  int bits;
  const std::uint8_t* packed;  // [rows, rotated_row_bytes]
  const std::int8_t* signs;    // [dim], 1 or -1
  std::int64_t rows;
  std::size_t dim;
};

class RotatedRows final : public StoredRows {
 public:
  explicit RotatedRows(const RotatedArrays& arrays);

  std::uint64_t bytes() const override;
  void take(std::span<const std::int64_t> index, const RowOutput& out) const override;
  void decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const override;
  std::unique_ptr<ProductBounds> product_bounds(std::span<const float> query) const override;
  FoundTables found_tables() const override { return {true, false, nullptr, {this}}; }
  void find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const override;

  // A power of two of elements that are transformed together.
  struct Block {
    std::size_t start;
    std::size_t size;
    float bias_weight;  // of the first element, which alone has a share of the bias
  };

  const RotatedArrays& arrays() const { return arrays_; }
  std::size_t row_bytes() const { return row_bytes_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const float* weights() const { return weights_.data(); }  // [dim]: sign / sqrt(size of the block)

 private:
  RotatedArrays arrays_;
  std::size_t row_bytes_;
  std::vector<Block> blocks_;
  std::vector<float> weights_;
};

}  // namespace graphbox
