#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "parallel/parallel_for.h"
#include "sample/known_positives.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkQueries = 16;

// A candidate and its column, in the order of items.
using Candidate = std::pair<std::int64_t, std::int64_t>;

std::vector<Candidate> by_item(std::span<const std::int64_t> candidates) {
  std::vector<Candidate> sorted;
  sorted.reserve(candidates.size());
  for (std::size_t column = 0; column < candidates.size(); ++column) {
    sorted.emplace_back(candidates[column], column);
  }
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// Marks the candidates that are in the ascending `known`: looks for the items of the shorter list in the longer one.
template <typename Index>
void mark(std::span<const Index> known, const std::vector<Candidate>& sorted, bool* row) {
  const auto steps = [](std::size_t searches, std::size_t length) {
    return searches * static_cast<std::size_t>(std::bit_width(length));
  };
  if (steps(known.size(), sorted.size()) <= steps(sorted.size(), known.size())) {
    auto place = sorted.begin();
    for (const Index item : known) {
      place = std::lower_bound(place, sorted.end(), Candidate{item, 0});
      for (auto same = place; same != sorted.end() && same->first == item; ++same) {
        row[same->second] = true;
      }
    }
    return;
  }
  for (const auto& [item, column] : sorted) {
    const auto place = std::lower_bound(known.begin(), known.end(), item);
    row[column] = row[column] || (place != known.end() && *place == item);
  }
}

// The positives of the same query in the batch, ascending.
class BatchPositives {
 public:
  BatchPositives(std::span<const std::int64_t> queries, std::span<const std::int64_t> positives)
      : items_(positives.size()), first_(queries.size()), count_(queries.size()) {
    std::vector<std::size_t> order(queries.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
      return std::pair(queries[one], positives[one]) < std::pair(queries[other], positives[other]);
    });
    for (std::size_t begin = 0; begin < order.size();) {
      std::size_t end = begin;
      for (; end < order.size() && queries[order[end]] == queries[order[begin]]; ++end) {
        items_[end] = positives[order[end]];
      }
      for (std::size_t i = begin; i < end; ++i) {
        first_[order[i]] = begin;
        count_[order[i]] = end - begin;
      }
      begin = end;
    }
  }

  std::span<const std::int64_t> of(std::size_t number) const { return {items_.data() + first_[number], count_[number]}; }

 private:
  std::vector<std::int64_t> items_;
  std::vector<std::size_t> first_;
  std::vector<std::size_t> count_;
};

template <typename Index>
void find(const CollisionRequest& request, const Index* indices, bool* out) {
  const auto rows = static_cast<std::int64_t>(request.positives.size());
  const auto width = static_cast<std::int64_t>(request.candidates.size());
  const std::vector<Candidate> sorted = by_item(request.candidates);
  const BatchPositives batch(request.queries, request.positives);
  parallel_for(request.threads, (rows + kChunkQueries - 1) / kChunkQueries, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkQueries, rows);
    for (std::int64_t number = chunk * kChunkQueries; number < end; ++number) {
      bool* const row = out + number * width;
      std::fill_n(row, width, false);
      const auto place = static_cast<std::size_t>(number);
      mark(request.queries.empty() ? request.positives.subspan(place, 1) : batch.of(place), sorted, row);
      if (request.known_positives != nullptr) {
        const EdgeSpan span = known_positives_of(*request.known_positives, request.queries, number);
        if (span.degree > 0) {
          const Index* const list = neighbor_at(*request.known_positives, indices, span.begin);
          mark(std::span(list, static_cast<std::size_t>(span.degree)), sorted, row);
        }
      }
      if (number < width) {
        row[number] = false;
      }
    }
  });
}

}  // namespace

void find_collisions(const CollisionRequest& request, bool* out) {
  const bool queries_needed = request.known_positives != nullptr || !request.queries.empty();
  if (queries_needed && request.queries.size() != request.positives.size()) {
    throw Error(ErrorKind::kUsage,
                "expected a query for each of " + std::to_string(request.positives.size()) + " items, received " +
                    std::to_string(request.queries.size()),
                "queries");
  }
  if (request.known_positives != nullptr && request.known_positives->wide_indices != nullptr) {
    find(request, request.known_positives->wide_indices, out);
  } else {
    find(request, request.known_positives == nullptr ? nullptr : request.known_positives->narrow_indices, out);
  }
}

}  // namespace graphbox
