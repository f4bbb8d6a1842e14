#include "sample/overlay.h"

#include <cstdint>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

TEST(overlay, finds_each_touched_row_and_no_other) {
  for (const std::int64_t num_rows : {1, 63, 64, 65, 447, 448, 449, 5000}) {
    for (const std::int64_t every : {1, 2, 7, 450}) {
      std::vector<std::int64_t> rows;
      std::vector<std::int64_t> indptr{0};
      std::vector<std::int64_t> ids;
      for (std::int64_t row = 0; row < num_rows; row += every) {
        rows.push_back(row);
        for (std::int64_t i = 0; i < row % 3; ++i) {
          ids.push_back(1000 * row + i);
        }
        indptr.push_back(static_cast<std::int64_t>(ids.size()));
      }
      const std::vector<std::int32_t> indices(ids.size());
      const Overlay overlay(rows, indptr, indices, {}, ids, num_rows);
      for (std::int64_t row = 0; row < num_rows; ++row) {
        const std::int64_t number = overlay.find(row);
        CHECK_EQUAL(number, row % every == 0 ? row / every : -1);
        if (number >= 0) {
          CHECK_EQUAL(overlay.degree(number), row % 3);
          if (row % 3 > 0) {
            CHECK_EQUAL(overlay.edge_ids()[overlay.begin(number)], 1000 * row);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace graphbox
