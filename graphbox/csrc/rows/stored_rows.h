// Rows of a served table, decoded as they are read. Every encoding gives the same bits on all instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "rows/found_rows.h"
#include "rows/product_bounds.h"

namespace graphbox {

// Row i of a result is at values + places[i] * stride; without places at values + i * stride.
struct RowOutput {
  float* values;
  std::size_t stride;
  const std::int64_t* places = nullptr;

  float* row(std::size_t i) const {
    return values + (places == nullptr ? i : static_cast<std::size_t>(places[i])) * stride;
  }
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

// A table of rows x dim numbers. One class for each family of encodings; reading is safe from several threads.
class StoredRows {
 public:
  StoredRows(std::int64_t rows, std::size_t dim) : rows_(rows), dim_(dim) {}
  virtual ~StoredRows() = default;
  StoredRows(const StoredRows&) = delete;
  StoredRows& operator=(const StoredRows&) = delete;

  std::int64_t rows() const { return rows_; }
  std::size_t dim() const { return dim_; }

  // Bytes of the stored rows, and of what was built to find them.
  virtual std::uint64_t bytes() const = 0;

  // Row i of `out` = row index[i]. All entries must be rows.
  virtual void take(std::span<const std::int64_t> index, const RowOutput& out) const = 0;

  // out[i * out_stride ...] = row start + i, for i in [0, count). All must be rows.
  virtual void decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const = 0;

  // out[i * out_stride ...] = row index[i], or the default row where index[i] is -1. All other entries must be rows.
  virtual void take_or_default(const RowsOrDefault& wanted, float* out, std::size_t out_stride) const;

  // out[b * dim ...] = the sum of weight * row over bag b, added in its order, from 0. All entries must be rows or -1.
  virtual void sum(const WeightedBags& bags, float* out) const;

  // Of the products with a query [dim]; null where decoding the rows costs no more. The rows must outlive the result.
  virtual std::unique_ptr<ProductBounds> product_bounds(std::span<const float> query) const;

  // Tables that find() may find rows in; not all where rows are stored otherwise. They live as long as the rows.
  virtual FoundTables found_tables() const { return {}; }

  // found[places[i]] = where row index[i] is, for at most kFoundTogether rows; only where found_tables() are all.
  virtual void find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const;

 private:
  std::int64_t rows_;
  std::size_t dim_;
};

// Position of the first entry outside [lowest, limit), or -1.
std::int64_t first_outside(std::span<const std::int64_t> index, std::int64_t lowest, std::int64_t limit);

}  // namespace graphbox
