#include "rows/best_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "portability/cpu.h"
#include "train/lanes.h"

namespace graphbox {
namespace {

// Decoded rows stay in the first cache until all queries are done with them: written farther, they cost twice as much.
constexpr std::size_t kTileBytes = std::size_t{16} << 10;
constexpr std::size_t kRowsTogether = 4;

using Quarter [[gnu::vector_size(16)]] = float;
using QuarterIndex [[gnu::vector_size(16)]] = std::int32_t;

// sums[i] = the sum of lanes[i], added as quarters first and then their four numbers.
GRAPHBOX_INLINE void add_lanes(const std::array<Lanes, 4>& lanes, float* sums) {
  std::array<Quarter, 4> rows;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::array<Quarter, 4> quarters;
    std::memcpy(quarters.data(), &lanes[row], sizeof(Lanes));
    rows[row] = (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
  }
  const Quarter low01 = __builtin_shuffle(rows[0], rows[1], QuarterIndex{0, 4, 1, 5});
  const Quarter high01 = __builtin_shuffle(rows[0], rows[1], QuarterIndex{2, 6, 3, 7});
  const Quarter low23 = __builtin_shuffle(rows[2], rows[3], QuarterIndex{0, 4, 1, 5});
  const Quarter high23 = __builtin_shuffle(rows[2], rows[3], QuarterIndex{2, 6, 3, 7});
  const Quarter first = __builtin_shuffle(low01, low23, QuarterIndex{0, 1, 4, 5});
  const Quarter second = __builtin_shuffle(low01, low23, QuarterIndex{2, 3, 6, 7});
  const Quarter third = __builtin_shuffle(high01, high23, QuarterIndex{0, 1, 4, 5});
  const Quarter fourth = __builtin_shuffle(high01, high23, QuarterIndex{2, 3, 6, 7});
  const Quarter total = (first + second) + (third + fourth);
  std::memcpy(sums, &total, sizeof(total));
}

// scores[i] = query * row i, for whole groups of four rows. `stride` is a multiple of kLaneCount.
GRAPHBOX_CLONES
void multiply(const float* rows, std::size_t stride, std::size_t count, const float* query, float* scores) {
  for (std::size_t row = 0; row < count; row += kRowsTogether) {
    std::array<Lanes, kRowsTogether> sums{};
    const float* const first = rows + row * stride;
    for (std::size_t at = 0; at < stride; at += kLaneCount) {
      Lanes right;
      load(right, query + at);
      for (std::size_t i = 0; i < kRowsTogether; ++i) {
        Lanes left;
        load(left, first + i * stride + at);
        sums[i] += left * right;
      }
    }
    add_lanes(sums, scores + row);
  }
}

struct Scored {
  float score;
  std::int64_t row;
};

// Whether `a` is ahead of `b`: a heap by it has the worst in front.
bool is_better(const Scored& a, const Scored& b) { return a.score > b.score || (a.score == b.score && a.row < b.row); }

// The best k of rows that come in ascending order.
class BestScores {
 public:
  explicit BestScores(std::int64_t k) : k_(static_cast<std::size_t>(k)) {}

  void offer(std::int64_t row, float score) {
    if (heap_.size() == k_) {
      if (!(score > least_)) {
        return;
      }
      std::pop_heap(heap_.begin(), heap_.end(), is_better);
      heap_.pop_back();
    }
    heap_.push_back({std::isnan(score) ? -std::numeric_limits<float>::infinity() : score, row});
    std::push_heap(heap_.begin(), heap_.end(), is_better);
    if (heap_.size() == k_) {
      least_ = heap_.front().score;
    }
  }

  void write(std::int64_t* index, float* scores) {
    std::sort(heap_.begin(), heap_.end(), is_better);
    for (const Scored& each : heap_) {
      *index++ = each.row;
      *scores++ = each.score;
    }
  }

 private:
  std::size_t k_;
  float least_ = std::numeric_limits<float>::infinity();
  std::vector<Scored> heap_;
};

}  // namespace

void best_rows(const StoredRows& stored, const RowQueries& queries, std::int64_t k, std::int64_t* index,
               float* scores) {
  const std::size_t stride = whole_lanes(std::max<std::size_t>(stored.dim(), 1));
  const auto count = static_cast<std::size_t>(queries.count);
  const std::size_t groups = std::max<std::size_t>(kTileBytes / (stride * sizeof(float) * kRowsTogether), 1);
  const std::size_t tile_rows = groups * kRowsTogether;
  // Zeros behind the ends of rows and queries, which add nothing.
  std::vector<float> padded(count * stride);
  for (std::size_t query = 0; query < count; ++query) {
    std::copy_n(queries.values + query * stored.dim(), stored.dim(), padded.data() + query * stride);
  }
  std::vector<float> tile(tile_rows * stride);
  std::vector<float> products(tile_rows);
  std::vector<BestScores> best(count, BestScores(k));
  for (std::int64_t start = 0; start < stored.rows() && k > 0; start += static_cast<std::int64_t>(tile_rows)) {
    const std::int64_t rows = std::min(static_cast<std::int64_t>(tile_rows), stored.rows() - start);
    stored.decode(start, rows, tile.data(), stride);
    for (std::size_t query = 0; query < count; ++query) {
      multiply(tile.data(), stride, static_cast<std::size_t>(rows), padded.data() + query * stride, products.data());
      for (std::int64_t i = 0; i < rows; ++i) {
        const float product = products[static_cast<std::size_t>(i)];
        best[query].offer(start + i, queries.lengths != nullptr ? product / queries.lengths[start + i] : product);
      }
    }
  }
  for (std::size_t query = 0; query < count; ++query) {
    const std::size_t place = query * static_cast<std::size_t>(k);
    best[query].write(index + place, scores + place);
  }
}

}  // namespace graphbox
