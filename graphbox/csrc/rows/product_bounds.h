// Bounds of products with a query, found from stored codes, by which a ranking leaves most rows undecoded.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace graphbox {

class ProductBounds {
 public:
  ProductBounds() = default;
  virtual ~ProductBounds() = default;
  ProductBounds(const ProductBounds&) = delete;
  ProductBounds& operator=(const ProductBounds&) = delete;

  // out[i] is at least the product of row start + i with the query, in whatever order it is added up in float32. NaN
  // where nothing is known.
  virtual void upper(std::int64_t start, std::int64_t count, float* out) const = 0;
};

// Largest error of a product of two float32 vectors by rounding, relative to the product of their lengths; with room for
// the few roundings of each element before. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1.
inline float rounding_of_product(std::size_t dim) { return static_cast<float>(dim + 64) * 0x1p-23F; }

inline double length_of(std::span<const float> vector) {
  double squares = 0;
  for (const float each : vector) {
    squares += double{each} * double{each};
  }
  return std::sqrt(squares);
}

}  // namespace graphbox
