#include "sample/weight_sums.h"

#include <algorithm>
#include <cmath>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "random/exponential.h"
#include "sample/rows_check.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkRows = 4096;
constexpr std::uint32_t kKeyAttempt = 2;  // of the generator's counter: those of draws are attempt 0

[[noreturn]] void throw_bad_indptr(std::int64_t row, std::int64_t edges, const std::string& name) {
  throw Error(ErrorKind::kData,
              "indptr must rise from 0 to the number of weights, " + std::to_string(edges) + "; it does not at node " +
                  std::to_string(row),
              name, "the graph is damaged: import it again");
}

[[noreturn]] void throw_bad_weight(float weight, std::int64_t edge, std::int64_t row, const std::string& name) {
  throw Error(ErrorKind::kData,
              "weights must be positive finite numbers; edge " + std::to_string(edge) + " of node " +
                  std::to_string(row) + " has " + std::to_string(weight),
              name, "leave edges without weight out, or sample without weights");
}

// A number in (0, 1) of the bits of draw `number`: draws 2n and 2n + 1 are the halves of block n.
double uniform(const DrawSequence& draws, std::uint32_t number, std::uint32_t attempt) {
  const PhiloxBlock words = draws.block(number / 2, attempt);
  const std::uint64_t word = std::uint64_t{words[number % 2 * 2]} << 32 | words[number % 2 * 2 + 1];
  return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
}

}  // namespace

WeightSums::WeightSums(const TimeOrder& order, std::span<const std::int64_t> indptr, std::span<const float> weights,
                       const std::string& name, int threads)
    : weights_(weights), sums_(weights.size() * sizeof(double)) {
  if (order.num_edges() != num_edges()) {
    throw Error(ErrorKind::kUsage,
                "expected a weight and a timestamp for each edge, received " + std::to_string(num_edges()) + " and " +
                    std::to_string(order.num_edges()),
                name);
  }
  const auto rows = static_cast<std::int64_t>(indptr.size()) - 1;
  auto* const sums = reinterpret_cast<double*>(sums_.data());
  parallel_for(threads, (rows + kChunkRows - 1) / kChunkRows, [&](std::int64_t chunk) {
    const std::int64_t end_row = std::min((chunk + 1) * kChunkRows, rows);
    for (std::int64_t row = chunk * kChunkRows; row < end_row; ++row) {
      const std::int64_t begin = indptr[static_cast<std::size_t>(row)];
      const std::int64_t end = indptr[static_cast<std::size_t>(row) + 1];
      if (begin < 0 || end < begin || end > num_edges()) {
        throw_bad_indptr(row, num_edges(), name);
      }
      double sum = 0;
      for (std::int64_t place = begin; place < end; ++place) {
        const std::int64_t edge = place + order.shifts()[place];
        if (edge < begin || edge >= end) {
          throw_bad_indptr(row, num_edges(), name);
        }
        const float weight = weights[static_cast<std::size_t>(edge)];
        if (!(weight > 0) || !std::isfinite(weight)) {
          throw_bad_weight(weight, edge, row, name);
        }
        sum += static_cast<double>(weight);
        sums[place] = sum;
      }
    }
  });
  check_rows_have_all(indptr, num_edges(), "weight", name);
}

void SummedEdgeChooser::choose(const DrawSequence& draws, const SummedEdges& edges, std::int64_t wanted, bool replace,
                               std::int64_t* out) {
  const std::int64_t remaining = edges.degree - static_cast<std::int64_t>(edges.excluded.size());
  if (wanted < 0 || (!replace && remaining <= wanted)) {
    auto excluded = edges.excluded.begin();
    for (std::int64_t place = 0; place < edges.degree; ++place) {
      if (excluded != edges.excluded.end() && *excluded == place) {
        ++excluded;
      } else {
        *out++ = place;
      }
    }
    return;
  }
  if (remaining == 0 || wanted == 0) {
    return;
  }
  const double* sums = edges.sums;
  if (!edges.excluded.empty()) {
    sum_remaining(edges);
    sums = sums_.data();
  }
  // The first edge whose sum is above a point below the sum of all: never one that adds nothing.
  const auto draw_place = [&](std::uint32_t number) {
    const double point = uniform(draws, number, 0) * sums[edges.degree - 1];
    return std::upper_bound(sums, sums + edges.degree - 1, point) - sums;
  };
  const auto count = static_cast<std::uint32_t>(wanted);
  if (replace) {
    for (std::uint32_t draw = 0; draw < count; ++draw) {
      out[draw] = draw_place(draw);
    }
    return;
  }
  // Where most are wanted drawing would mostly repeat; later, looking at the whole rest costs less than was spent.
  const std::int64_t limit = remaining <= 2 * wanted ? 0 : 4 * wanted + edges.degree / 4;
  taken_.start(count);
  std::int64_t found = 0;
  for (std::int64_t draw = 0; draw < limit && found < wanted; ++draw) {
    const std::int64_t place = draw_place(static_cast<std::uint32_t>(draw));
    if (taken_.insert(static_cast<std::uint64_t>(place))) {
      out[found++] = place;
    }
  }
  if (found < wanted) {
    take_rest(draws, edges, wanted - found, out + found);
  }
}

// Excluded edges add nothing.
void SummedEdgeChooser::sum_remaining(const SummedEdges& edges) {
  sums_.resize(static_cast<std::size_t>(edges.degree));
  auto excluded = edges.excluded.begin();
  double sum = 0;
  for (std::int64_t place = 0; place < edges.degree; ++place) {
    if (excluded != edges.excluded.end() && *excluded == place) {
      ++excluded;
    } else {
      sum += static_cast<double>(edges.weights[place + edges.shifts[place]]);
    }
    sums_[static_cast<std::size_t>(place)] = sum;
  }
}

// The `count` untaken edges with the smallest keys, by place.
void SummedEdgeChooser::take_rest(const DrawSequence& draws, const SummedEdges& edges, std::int64_t count,
                                  std::int64_t* out) {
  keys_.clear();
  auto excluded = edges.excluded.begin();
  for (std::uint32_t place = 0; place < edges.degree; ++place) {
    if (excluded != edges.excluded.end() && *excluded == place) {
      ++excluded;
    } else if (!taken_.contains(place)) {
      const double weight = static_cast<double>(edges.weights[place + edges.shifts[place]]);
      keys_.emplace_back(exponential(uniform(draws, place, kKeyAttempt)) / weight, place);
    }
  }
  const auto end = keys_.begin() + count;
  std::nth_element(keys_.begin(), end - 1, keys_.end());
  std::sort(keys_.begin(), end, [](const auto& left, const auto& right) { return left.second < right.second; });
  for (auto key = keys_.begin(); key != end; ++key) {
    *out++ = key->second;
  }
}

}  // namespace graphbox
