// Giving keys values that come from elsewhere, such as those of a pretrained model.
#include <cmath>
#include <mutex>
#include <string>

#include "errors/error.h"
#include "table/table.h"

namespace graphbox {

// Where a key comes twice, its last values count. State that belonged to other values begins anew; what policies count
// goes on.
void Table::assign(const std::int64_t* keys, std::int64_t count, const float* values, int threads) {
  const std::size_t dim = config_.dim;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!all_finite(values + static_cast<std::size_t>(i) * dim, dim)) {
      throw Error(ErrorKind::kData,
                  "values must be finite; those at position " + std::to_string(i) +
                      " hold NaN or infinity, and none of this part were assigned",
                  "key " + std::to_string(keys[i]), "leave such rows out, or replace what is not finite");
    }
  }
  PooledArray<std::uint32_t> rows(count);
  const auto lock = lock_with_rows({keys, count, rows.data(), false, true, true}, threads);
  ++updates_;
  if (tier_ != nullptr) {
    note_changed(rows.data(), count);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t row = rows[i];
    slab_.set_values(row, values + static_cast<std::size_t>(i) * dim);
    update_.initialize(slab_.state(row), dim);
    for (ChangeTracker& changes : trackers_) {
      changes.mark(row);
    }
  }
}

}  // namespace graphbox
