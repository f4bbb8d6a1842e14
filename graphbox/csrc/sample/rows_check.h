// Check that the rows of an index cover all edges, for data made row by row.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "errors/error.h"

namespace graphbox {

// Edges before the first row or behind the last would have entries that were never written. `value` is "weight" or the
// like, of which there are `values`.
inline void check_rows_have_all(std::span<const std::int64_t> indptr, std::int64_t values, const std::string& value,
                                const std::string& name) {
  if (indptr.empty() || indptr.front() != 0) {
    throw Error(ErrorKind::kData,
                "indptr must begin with 0, " +
                    (indptr.empty() ? std::string("it is empty") : "received " + std::to_string(indptr.front())),
                name, "the graph is damaged: import it again");
  }
  if (indptr.back() != values) {
    throw Error(ErrorKind::kUsage,
                "expected a " + value + " for each of " + std::to_string(indptr.back()) + " edges, received " +
                    std::to_string(values),
                name);
  }
}

}  // namespace graphbox
