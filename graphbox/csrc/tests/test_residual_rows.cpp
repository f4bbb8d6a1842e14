#include "rows/residual_rows.h"

#include <cstdint>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

TEST(residual_rows, rows_of_any_length_are_sums_in_the_order_of_the_codebooks) {
  for (const std::size_t books : {1U, 2U, 5U}) {
    for (const std::size_t dim : {1U, 15U, 16U, 63U, 64U, 65U, 130U}) {
      std::uint32_t state = 5;
      const auto next = [&state] { return (state = state * 1664525U + 1013904223U) >> 8; };
      std::vector<float> codebooks;
      for (std::size_t i = 0; i < books * kCodebookRows * dim; ++i) {
        codebooks.push_back(static_cast<float>(next()) / 1000.0F - 8000.0F);
      }
      std::vector<std::uint8_t> codes;
      for (std::size_t i = 0; i < 30 * books; ++i) {
        codes.push_back(static_cast<std::uint8_t>(next()));
      }
      const ResidualRows stored({codes.data(), codebooks.data(), books, 30, dim});
      const std::vector<std::int64_t> index = {29, 0, 3, 3, 17, 1,  2,  4,  5,  6,  7,  8,
                                               9,  10, 11, 12, 13, 14, 15, 16, 18, 19, 20};
      std::vector<float> out(index.size() * (dim + 1), -1.5F);
      stored.take(index, {out.data(), dim + 1});
      std::vector<float> block(30 * dim);
      stored.decode(0, 30, block.data(), dim);
      for (std::size_t i = 0; i < index.size(); ++i) {
        const auto row = static_cast<std::size_t>(index[i]);
        for (std::size_t column = 0; column < dim; ++column) {
          volatile float sum = 0;
          for (std::size_t book = 0; book < books; ++book) {
            sum = sum + codebooks[(book * kCodebookRows + codes[row * books + book]) * dim + column];
          }
          CHECK_EQUAL(out[i * (dim + 1) + column], sum);
          CHECK_EQUAL(block[row * dim + column], sum);
        }
        CHECK_EQUAL(out[i * (dim + 1) + dim], -1.5F);
      }
    }
  }
}

}  // namespace
}  // namespace graphbox
