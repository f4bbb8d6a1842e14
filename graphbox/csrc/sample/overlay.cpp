#include "sample/overlay.h"

#include <algorithm>
#include <string>

#include "errors/error.h"

namespace graphbox {
namespace {

[[noreturn]] void throw_damaged(const std::string& message) {
  throw Error(ErrorKind::kData, message, "changes of the graph", "the graph is damaged: import it again");
}

}  // namespace

Overlay::Overlay(std::span<const std::int64_t> rows, std::span<const std::int64_t> indptr,
                 std::span<const std::int32_t> narrow_indices, std::span<const std::int64_t> wide_indices,
                 std::span<const std::int64_t> edge_ids, std::int64_t num_rows)
    : indptr_(indptr),
      narrow_indices_(narrow_indices.data()),
      wide_indices_(wide_indices.data()),
      edge_ids_(edge_ids),
      num_rows_(num_rows) {
  const std::size_t edges = std::max(narrow_indices.size(), wide_indices.size());
  if (indptr.size() != rows.size() + 1 || edges != edge_ids.size() || indptr.front() != 0 ||
      indptr.back() != static_cast<std::int64_t>(edges) || !std::is_sorted(indptr.begin(), indptr.end())) {
    throw_damaged("indptr must rise from 0 to the " + std::to_string(edges) + " edges of " +
                  std::to_string(rows.size()) + " rows, each with an id");
  }
  const std::int64_t blocks = num_rows / kBlockRows + 1;
  blocks_.resize(blocks);
  std::fill_n(blocks_.data(), blocks, Block{});
  std::int64_t last = -1;
  for (const std::int64_t row : rows) {
    if (row <= last || row >= num_rows) {
      throw_damaged("rows must rise and be in [0, " + std::to_string(num_rows) + "), received " + std::to_string(row) +
                    " after " + std::to_string(last));
    }
    last = row;
    blocks_[row / kBlockRows].bits |= std::uint64_t{1} << (row % kBlockRows);
  }
  std::int64_t before = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    blocks_[block].before = before;
    before += count_bits(blocks_[block].bits);
  }
}

}  // namespace graphbox
