#include "store/gather.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "errors/error.h"
#include "tests/check.h"

namespace graphbox {
namespace {

// Every row has its own bytes, and a guard behind the output must stay as it is.
void check_rows(std::uint64_t row_bytes, std::size_t count, int threads) {
  constexpr std::int64_t kRows = 257;
  std::vector<std::byte> table(kRows * row_bytes);
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::byte>((i * 2654435761U) >> 7);
  }
  std::vector<std::int64_t> index(count);
  for (std::size_t i = 0; i < count; ++i) {
    index[i] = static_cast<std::int64_t>(i * 7919 % kRows);
  }
  std::vector<std::byte> out(count * row_bytes + 64, std::byte{0xAB});
  gather_rows({table.data(), kRows, row_bytes}, index, threads, out.data());
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(row_bytes == 0 || std::memcmp(out.data() + i * row_bytes,
                                        table.data() + static_cast<std::uint64_t>(index[i]) * row_bytes,
                                        row_bytes) == 0);
  }
  for (std::size_t i = count * row_bytes; i < out.size(); ++i) {
    CHECK(out[i] == std::byte{0xAB});
  }
}

TEST(gather, rows_of_all_lengths_by_any_number_of_threads) {
  for (const std::uint64_t row_bytes : {0, 1, 3, 4, 8, 48, 64, 100, 256, 512, 4096}) {
    for (const int threads : {1, 4}) {
      check_rows(row_bytes, 0, threads);
      check_rows(row_bytes, 1, threads);
      check_rows(row_bytes, 3000, threads);
    }
  }
}

TEST(gather, results_written_past_the_caches) {
  check_rows(512, kStreamedBytes / 512 + 5, 3);
  check_rows(500, kStreamedBytes / 500 + 5, 3);
}

TEST(gather, a_row_that_is_not_there_is_refused_before_anything_is_copied) {
  const std::vector<std::byte> table(10 * 8);
  std::vector<std::byte> out(3 * 8, std::byte{1});
  const RowTable rows{table.data(), 10, 8};
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{10}, INT64_MIN, INT64_MAX}) {
    const std::vector<std::int64_t> index{0, 9, wrong};
    CHECK_THROWS(gather_rows(rows, index, 1, out.data()), ErrorKind::kUsage, "at position 2");
  }
  CHECK(out == std::vector<std::byte>(3 * 8, std::byte{1}));
}

}  // namespace
}  // namespace graphbox
