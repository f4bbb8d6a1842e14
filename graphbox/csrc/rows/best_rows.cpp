#include "rows/best_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "portability/cpu.h"
#include "train/lanes.h"

namespace graphbox {
namespace {

// Decoded rows stay in the first cache until all queries are done with them: written farther, they cost twice as much.
constexpr std::size_t kTileBytes = std::size_t{16} << 10;
constexpr std::size_t kRowsTogether = 4;
constexpr std::int64_t kBoundedTogether = 1024;  // rows whose bounds are found before those that may be best are decoded
// Where the best are a larger part of the rows, so many would be decoded for each query that bounds save nothing.
constexpr std::int64_t kRowsForOneOfBest = 16;

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

  // True unless a later row with at most this score cannot be among the best; NaN: nothing is known.
  bool can_take(float most) const { return heap_.size() < k_ || !(most <= least_); }

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

struct Query {
  std::vector<float> values;              // [stride], zeros behind the end, which add nothing
  std::unique_ptr<ProductBounds> bounds;  // null: all rows are decoded
  BestScores best;
};

// Offers the rows of a table to queries.
class Ranking {
 public:
  Ranking(const StoredRows& stored, const float* lengths)
      : stored_(stored), lengths_(lengths), stride_(whole_lanes(std::max<std::size_t>(stored.dim(), 1))) {
    const std::size_t groups = std::max<std::size_t>(kTileBytes / (stride_ * sizeof(float) * kRowsTogether), 1);
    tile_.resize(groups * kRowsTogether * stride_);
    products_.resize(groups * kRowsTogether);
  }

  Query query(const float* values, std::int64_t k) const {
    std::vector<float> padded(stride_);
    std::copy_n(values, stored_.dim(), padded.begin());
    const bool is_selective = k < stored_.rows() / kRowsForOneOfBest;
    return {std::move(padded), is_selective ? stored_.product_bounds({values, stored_.dim()}) : nullptr, BestScores(k)};
  }

  void offer_all(std::vector<Query>& queries) {
    for (std::int64_t start = 0; start < stored_.rows(); start += tile_rows()) {
      const std::int64_t rows = std::min(tile_rows(), stored_.rows() - start);
      bool is_decoded = false;
      for (Query& query : queries) {
        if (query.bounds != nullptr) {
          continue;
        }
        if (!is_decoded) {
          stored_.decode(start, rows, tile_.data(), stride_);
          is_decoded = true;
        }
        offer_tile(query, rows, [start](std::int64_t i) { return start + i; });
      }
    }
    for (Query& query : queries) {
      if (query.bounds != nullptr) {
        offer_bounded(query);
      }
    }
  }

 private:
  std::int64_t tile_rows() const { return static_cast<std::int64_t>(products_.size()); }

  float score(float product, std::int64_t row) const { return lengths_ != nullptr ? product / lengths_[row] : product; }

  // Rows that can be among the best are decoded; their bound, divided like the product, is above the least score.
  void offer_bounded(Query& query) {
    std::array<float, kBoundedTogether> upper;
    std::array<std::int64_t, kBoundedTogether> possible;
    for (std::int64_t start = 0; start < stored_.rows(); start += kBoundedTogether) {
      const std::int64_t rows = std::min(kBoundedTogether, stored_.rows() - start);
      query.bounds->upper(start, rows, upper.data());
      std::size_t count = 0;
      for (std::int64_t i = 0; i < rows; ++i) {
        possible[count] = start + i;
        count += query.best.can_take(score(upper[static_cast<std::size_t>(i)], start + i)) ? 1 : 0;
      }
      offer_rows(query, {possible.data(), count});
    }
  }

  void offer_rows(Query& query, std::span<const std::int64_t> index) {
    for (std::size_t start = 0; start < index.size(); start += products_.size()) {
      const std::span<const std::int64_t> part = index.subspan(start, std::min(products_.size(), index.size() - start));
      stored_.take(part, {tile_.data(), stride_});
      offer_tile(query, static_cast<std::int64_t>(part.size()),
                 [part](std::int64_t i) { return part[static_cast<std::size_t>(i)]; });
    }
  }

  template <typename RowOf>
  void offer_tile(Query& query, std::int64_t rows, const RowOf& row_of) {
    multiply(tile_.data(), stride_, static_cast<std::size_t>(rows), query.values.data(), products_.data());
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t row = row_of(i);
      query.best.offer(row, score(products_[static_cast<std::size_t>(i)], row));
    }
  }

  const StoredRows& stored_;
  const float* lengths_;
  std::size_t stride_;
  std::vector<float> tile_;
  std::vector<float> products_;
};

}  // namespace

void best_rows(const StoredRows& stored, const RowQueries& queries, std::int64_t k, std::int64_t* index,
               float* scores) {
  if (k == 0) {
    return;
  }
  Ranking ranking(stored, queries.lengths);
  std::vector<Query> all;
  for (std::int64_t number = 0; number < queries.count; ++number) {
    all.push_back(ranking.query(queries.values + static_cast<std::size_t>(number) * stored.dim(), k));
  }
  ranking.offer_all(all);
  for (Query& query : all) {
    query.best.write(index, scores);
    index += k;
    scores += k;
  }
}

}  // namespace graphbox
