#include "sample/excluded_edges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

namespace graphbox {
namespace {

constexpr std::uint64_t kBitsPerPair = 32;
constexpr std::size_t kLanes = 16;  // searches that wait for memory together
constexpr std::int64_t kScannedDegree = 64;

// A search for the first edge to a neighbour in an ascending list.
struct Search {
  std::size_t pair;
  std::int64_t begin;
  std::int64_t left;  // entries that may still be the first not below the neighbour
};

}  // namespace

void check_excluded(const ExcludedPairs& pairs, std::int64_t num_rows, std::size_t trees, const std::string& name) {
  const std::size_t groups = pairs.group_of_tree.empty() ? 0 : pairs.rows.size();
  if (pairs.sources.size() != pairs.rows.size() || pairs.groups.size() != groups) {
    throw Error(ErrorKind::kUsage,
                "expected a source for each of " + std::to_string(pairs.rows.size()) + " excluded targets and " +
                    std::to_string(groups) + " groups of trees, received " + std::to_string(pairs.sources.size()) +
                    " and " + std::to_string(pairs.groups.size()),
                name);
  }
  if (!pairs.group_of_tree.empty() && pairs.group_of_tree.size() != trees) {
    throw Error(ErrorKind::kUsage,
                "expected the group of each of " + std::to_string(trees) + " trees, received " +
                    std::to_string(pairs.group_of_tree.size()),
                name);
  }
  for (std::size_t pair = 0; pair < pairs.rows.size(); ++pair) {
    const std::int64_t row = pairs.rows[pair];
    if (row < 0 || row >= num_rows) {
      throw Error(ErrorKind::kUsage,
                  "excluded edges must lead to node indices in [0, " + std::to_string(num_rows) + "), received " +
                      std::to_string(row) + " at position " + std::to_string(pair),
                  name);
    }
  }
}

ExcludedEdges::ExcludedEdges(const Adjacency& adjacency, const ExcludedPairs& pairs) : group_of_tree_(pairs.group_of_tree) {
  const std::uint64_t bits = std::bit_ceil(std::max<std::uint64_t>(pairs.rows.size() * kBitsPerPair, 64));
  bits_.assign(bits / 64, 0);
  shift_ = 64 - std::countr_zero(bits);
  if (adjacency.wide_indices != nullptr) {
    find(adjacency, adjacency.wide_indices, pairs);
  } else {
    find(adjacency, adjacency.narrow_indices, pairs);
  }
  std::sort(entries_.begin(), entries_.end());
  entries_.erase(std::unique(entries_.begin(), entries_.end()), entries_.end());
}

// Many pairs at a time halve what is left of their lists in turn, so that their cache misses overlap.
template <typename Index>
void ExcludedEdges::find(const Adjacency& adjacency, const Index* indices, const ExcludedPairs& pairs) {
  const auto value = [&](std::int64_t position) {
    return static_cast<std::int64_t>(*neighbor_at(adjacency, indices, position));
  };
  const auto take = [&](std::size_t pair, std::int64_t position) {
    const std::uint64_t bit = hash(pairs.rows[pair]);
    bits_[bit / 64] |= std::uint64_t{1} << bit % 64;
    entries_.push_back({group_of_tree_.empty() ? 0 : pairs.groups[pair], position});
  };
  std::array<Search, kLanes> lanes;
  for (std::size_t first = 0; first < pairs.rows.size(); first += kLanes) {
    const std::size_t count = std::min(kLanes, pairs.rows.size() - first);
    for (std::size_t lane = 0; lane < count; ++lane) {
      prefetch_row(adjacency, pairs.rows[first + lane]);
    }
    std::int64_t longest = 0;
    for (std::size_t lane = 0; lane < count; ++lane) {
      const EdgeSpan edges = edges_of(adjacency, pairs.rows[first + lane]);
      lanes[lane] = {first + lane, edges.begin, edges.degree};
      longest = std::max(longest, edges.degree);
      if (edges.degree > 0) {
        prefetch(neighbor_at(adjacency, indices, edges.begin + (pairs.ascending ? edges.degree / 2 : 0)));
      }
    }
    if (pairs.ascending) {
      for (; longest > kScannedDegree; longest -= longest / 2) {
        for (std::size_t lane = 0; lane < count; ++lane) {
          Search& search = lanes[lane];
          if (search.left > kScannedDegree) {
            const std::int64_t half = search.left / 2;
            const bool above = value(search.begin + half) < pairs.sources[search.pair];
            search.begin += above ? half : 0;
            search.left = above ? search.left - half : half + 1;
            prefetch(neighbor_at(adjacency, indices, search.begin + search.left / 2));
          }
        }
      }
    }
    for (std::size_t lane = 0; lane < count; ++lane) {
      const EdgeSpan edges = edges_of(adjacency, pairs.rows[first + lane]);
      const std::int64_t source = pairs.sources[first + lane];
      const std::int64_t end = edges.begin + edges.degree;
      for (std::int64_t i = lanes[lane].begin; i < end; ++i) {
        const std::int64_t neighbor = value(i);
        if (neighbor == source) {
          take(first + lane, i);
        } else if (pairs.ascending && neighbor > source) {
          break;
        }
      }
    }
  }
}

std::vector<ExcludedEdges::Entry>::const_iterator ExcludedEdges::first_at(std::int64_t group,
                                                                         std::int64_t position) const {
  return std::lower_bound(entries_.begin(), entries_.end(), Entry{group, position});
}

}  // namespace graphbox
