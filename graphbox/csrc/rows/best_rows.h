// The rows of a served table with the largest products with queries, found without decoding the table as a whole.
#pragma once

#include <cstdint>

#include "rows/stored_rows.h"

namespace graphbox {

struct RowQueries {
  const float* values;  // [count, dim]
  std::int64_t count;
  const float* lengths;  // [rows]: products are divided by them; null: they are not
};

// index[q * k ...] and scores[q * k ...]: the `k` rows of the largest scores, largest first, of equal ones the lower row
// first. k must be in [0, rows]. A score that is NaN counts as -infinity. The same bits on all instruction sets.
void best_rows(const StoredRows& stored, const RowQueries& queries, std::int64_t k, std::int64_t* index, float* scores);

}  // namespace graphbox
