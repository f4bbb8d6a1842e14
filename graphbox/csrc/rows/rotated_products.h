// Bounds of products of rotated rows with a query: sums of small integers, instead of decoded rows.
#pragma once

#include <memory>
#include <vector>

#include "rows/product_bounds.h"
#include "rows/rotated_rows.h"
#include "rows/walsh_hadamard.h"

namespace graphbox {

// The product of a row with a query q is scale * sum of code_j p_j + bias * b, for p = W (q * weights): the rotation is
// undone once, of the query. p is rounded to integers of a step, so that sums of eight terms fit 16 bits; the bound
// allows for the rounding.
class RotatedProducts final : public ProductBounds {
 public:
  // Null where the query is beyond what can be computed in float32. The table must outlive the result.
  static std::unique_ptr<ProductBounds> of(const RotatedRows& table, std::span<const float> query);

  void upper(std::int64_t start, std::int64_t count, float* out) const override;

  // Elements that are unpacked together, at most kTransformed.
  struct Part {
    std::size_t start;
    std::size_t size;
  };
  // Factors of a row's sum of code * p, of its scale and of its bias.
  struct Terms {
    float step;         // of the integers
    float centre;       // the middle code times the sum of p
    float bias;         // factor of the bias
    float scale_error;  // for each unit of |scale|
    float bias_error;   // for each unit of |bias|
  };

  const RotatedRows& table() const { return table_; }
  const std::vector<Part>& parts() const { return parts_; }
  const std::int16_t* factors(std::size_t part) const { return factors_.data() + part * kFactorsOfPart; }
  const std::int16_t* offsets(std::size_t part) const { return offsets_.data() + part * kLanesTogether; }
  std::int32_t rounded(std::size_t element) const { return rounded_[element]; }

  static constexpr std::size_t kLargestDim = std::size_t{1} << 18;  // sums of integers fit 32 bits
  static constexpr std::size_t kLanesTogether = kShortLanes * 4;  // of the most rows that a vector has
  static constexpr std::size_t kFactorsOfPart = kTransformed / kShortLanes * kLanesTogether;

 private:
  RotatedProducts(const RotatedRows& table, std::span<const float> query, const std::vector<double>& turned);
  void add_part(const Part& part);

  const RotatedRows& table_;
  Terms terms_;
  std::vector<std::int32_t> rounded_;  // [dim]
  std::vector<Part> parts_;
  std::vector<std::int16_t> factors_;  // of each part, as Codes::unpack() orders codes, for each row of a vector
  std::vector<std::int16_t> offsets_;  // - middle code * sum of the factors of a lane
};

}  // namespace graphbox
