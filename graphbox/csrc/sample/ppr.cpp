#include "sample/ppr.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "memory/buffer.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkWalkers = 1024;  // so that the walks of a chunk stay in the cache

// Counts how often nodes occur: an open-addressing table that lists what is in it.
class VisitCounts {
 public:
  explicit VisitCounts(std::int64_t most) {
    const auto slots = std::bit_ceil(static_cast<std::uint64_t>(most) * 2 + 2);
    mask_ = slots - 1;
    slots_.assign(slots, -1);
  }

  void add(std::int64_t node) {
    std::uint64_t slot = (static_cast<std::uint64_t>(node) * kMultiplier >> 32) & mask_;
    while (slots_[slot] >= 0) {
      auto& [known, visits] = counts_[static_cast<std::size_t>(slots_[slot])];
      if (known == node) {
        ++visits;
        return;
      }
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = static_cast<std::int64_t>(counts_.size());
    used_.push_back(slot);
    counts_.emplace_back(node, 1);
  }

  // Moves the first `most` of the nodes and their counts, in the order of ppr_neighbors(), to the front; then what is
  // returned of them may be read until take_top() or add() is called again.
  std::span<const std::pair<std::int64_t, std::int64_t>> take_top(std::int64_t most) {
    for (const std::uint64_t slot : used_) {
      slots_[slot] = -1;
    }
    used_.clear();
    top_.swap(counts_);
    counts_.clear();
    const auto kept = std::min<std::int64_t>(most, static_cast<std::int64_t>(top_.size()));
    std::partial_sort(top_.begin(), top_.begin() + kept, top_.end(), [](const auto& one, const auto& other) {
      return one.second != other.second ? one.second > other.second : one.first < other.first;
    });
    return {top_.data(), static_cast<std::size_t>(kept)};
  }

 private:
  static constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15U;

  std::uint64_t mask_;
  std::vector<std::int64_t> slots_;  // where a node's count is in counts_, -1: free
  std::vector<std::uint64_t> used_;
  std::vector<std::pair<std::int64_t, std::int64_t>> counts_;
  std::vector<std::pair<std::int64_t, std::int64_t>> top_;
};

class PprChunk {
 public:
  PprChunk(const PprRequest& request, std::int64_t first, std::int64_t last)
      : request_(request), first_(first), last_(last), visits_(most_visited(request)) {
    for (std::int64_t i = first; i < last; ++i) {
      start_.insert(start_.end(), static_cast<std::size_t>(request.num_walks),
                    request.nodes[static_cast<std::size_t>(i)]);
    }
  }

  void run(std::int64_t* neighbors, std::int64_t* visits) {
    const std::int64_t width = walk();
    for (std::int64_t i = first_; i < last_; ++i) {
      count(i, width);
      std::int64_t* const its_neighbors = neighbors + i * request_.num_neighbors;
      std::int64_t* const its_visits = visits + i * request_.num_neighbors;
      std::int64_t place = 0;
      for (const auto& [node, times] : visits_.take_top(request_.num_neighbors)) {
        its_neighbors[place] = node;
        its_visits[place++] = times;
      }
      std::fill(its_neighbors + place, its_neighbors + request_.num_neighbors, -1);
      std::fill(its_visits + place, its_visits + request_.num_neighbors, 0);
    }
  }

 private:
  static std::int64_t most_visited(const PprRequest& request) {
    return std::min(request.num_walks * request.num_rounds, request.round.front().edges.num_rows);
  }

  // Returns how many entries a walk has.
  std::int64_t walk() {
    WalkRequest walks;
    walks.paths = {request_.round};
    walks.start = start_;
    walks.length = request_.num_rounds * static_cast<std::int64_t>(request_.round.size());
    walks.key = request_.key;
    walks.restart_probability = request_.restart_probability;
    walks.restart_rounds = true;
    walks.first_position = first_ * request_.num_walks;
    walks_.resize(static_cast<std::int64_t>(start_.size()) * (walks.length + 1));
    random_walks(walks, walks_.data());
    return walks.length + 1;
  }

  void count(std::int64_t i, std::int64_t width) {
    const std::int64_t self = request_.nodes[static_cast<std::size_t>(i)];
    const auto round = static_cast<std::int64_t>(request_.round.size());
    const std::int64_t* row = walks_.data() + (i - first_) * request_.num_walks * width;
    for (std::int64_t number = 0; number < request_.num_walks; ++number, row += width) {
      for (std::int64_t column = round; column < width; column += round) {
        if (row[column] >= 0 && row[column] != self) {
          visits_.add(row[column]);
        }
      }
    }
  }

  const PprRequest& request_;
  std::int64_t first_;
  std::int64_t last_;
  std::vector<std::int64_t> start_;
  PooledArray<std::int64_t> walks_;
  VisitCounts visits_;
};

}  // namespace

void ppr_neighbors(const PprRequest& request, std::int64_t* neighbors, std::int64_t* visits) {
  const std::int64_t chunk_nodes = std::max<std::int64_t>(1, kChunkWalkers / request.num_walks);
  const auto nodes = static_cast<std::int64_t>(request.nodes.size());
  for (std::int64_t i = 0; i < nodes; ++i) {
    check_node(request.round.front().edges, request.nodes[static_cast<std::size_t>(i)], i, "nodes");
  }
  parallel_for(request.threads, (nodes + chunk_nodes - 1) / chunk_nodes, [&](std::int64_t chunk) {
    const std::int64_t first = chunk * chunk_nodes;
    PprChunk(request, first, std::min(first + chunk_nodes, nodes)).run(neighbors, visits);
  });
}

}  // namespace graphbox
