#include "rows/clustered_rows.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "rows/elementwise_rows.h"
#include "tests/check.h"

namespace graphbox {
namespace {

TEST(clustered_rows, rows_of_any_length_are_centroid_and_rest) {
  for (const std::size_t dim : {1U, 7U, 16U, 67U}) {
    for (const std::int64_t rows : {1, 63, 64, 65, 300}) {
      std::vector<float> rest(static_cast<std::size_t>(rows) * dim);
      std::vector<std::uint8_t> clusters(static_cast<std::size_t>(rows));
      std::vector<float> centroids(5 * dim);
      for (std::size_t i = 0; i < rest.size(); ++i) {
        rest[i] = static_cast<float>(i % 97) * 0.25F;
      }
      for (std::size_t i = 0; i < clusters.size(); ++i) {
        clusters[i] = static_cast<std::uint8_t>(i * 7 % 5);
      }
      for (std::size_t i = 0; i < centroids.size(); ++i) {
        centroids[i] = 100.0F - static_cast<float>(i);
      }
      const ClusteredRows stored(
          {clusters.data(), centroids.data(), 5},
          std::make_shared<const ElementwiseRows>(
              ElementArrays{ElementEncoding::kFloat32, rest.data(), nullptr, rows, dim}));
      const auto expected = [&](std::int64_t row, std::size_t column) {
        const auto at = static_cast<std::size_t>(row);
        return rest[at * dim + column] + centroids[clusters[at] * dim + column];
      };
      const std::size_t stride = dim + 2;
      std::vector<float> all(static_cast<std::size_t>(rows) * stride, 0.5F);
      stored.decode(0, rows, all.data(), stride);
      std::vector<std::int64_t> index;
      std::vector<std::int64_t> places;
      for (std::int64_t i = 0; i < 200; ++i) {
        index.push_back(i * 613 % rows);
        places.push_back(199 - i);
      }
      std::vector<float> taken(index.size() * dim);
      std::vector<float> placed(index.size() * dim);
      stored.take(index, {taken.data(), dim});
      stored.take(index, {placed.data(), dim, places.data()});
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::size_t column = 0; column < dim; ++column) {
          CHECK_EQUAL(all[static_cast<std::size_t>(row) * stride + column], expected(row, column));
        }
        CHECK_EQUAL(all[static_cast<std::size_t>(row) * stride + dim], 0.5F);
      }
      for (std::size_t i = 0; i < index.size(); ++i) {
        for (std::size_t column = 0; column < dim; ++column) {
          CHECK_EQUAL(taken[i * dim + column], expected(index[i], column));
          CHECK_EQUAL(placed[(199 - i) * dim + column], expected(index[i], column));
        }
      }
    }
  }
}

}  // namespace
}  // namespace graphbox
