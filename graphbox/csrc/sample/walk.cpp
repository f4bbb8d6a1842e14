#include "sample/walk.h"

#include <algorithm>
#include <array>

#include "parallel/parallel_for.h"
#include "sample/node2vec.h"

namespace graphbox {
namespace {

// Walkers of one group move in turns: while one waits for its memory line, the others go on.
constexpr int kGroup = 64;
constexpr std::int64_t kChunkWalkers = 16 * kGroup;
constexpr std::uint32_t kRestartHop = 2;  // of the counter, for the draws that decide whether to restart

template <bool kRestarts>
class WalkerGroup {
 public:
  WalkerGroup(const WalkRequest& request, std::int64_t first, int size, std::int64_t* out)
      : request_(request),
        first_(first),
        size_(size),
        out_(out),
        width_(request.length + 1),
        restart_below_(restart_threshold(request.restart_probability)) {}

  void run() {
    begin();
    for (std::int64_t step = 0; step < request_.length; ++step) {
      const auto number = static_cast<std::size_t>(step) % request_.steps.size();
      const Adjacency& edges = request_.steps[number];
      const Adjacency& next = request_.steps[(number + 1) % request_.steps.size()];
      if (step % 4 == 0) {
        draw_words(step);
      }
      choose_edges(edges, step);
      const Adjacency* next_rows = step + 1 < request_.length ? &next : nullptr;
      if (edges.wide_indices != nullptr) {
        follow(edges, edges.wide_indices, next_rows, step);
      } else {
        follow(edges, edges.narrow_indices, next_rows, step);
      }
    }
  }

 private:
  static constexpr std::int64_t kRestart = -2;

  void begin() {
    const Adjacency& edges = request_.steps.front();
    for (int i = 0; i < size_; ++i) {
      const std::int64_t node = request_.start[static_cast<std::size_t>(first_ + i)];
      check_start(edges, node, request_.first_position + first_ + i);
      nodes_[i] = node;
      row(i)[0] = node;
      prefetch_row(edges, node);
    }
  }

  void draw_words(std::int64_t step) {
    for (int i = 0; i < size_; ++i) {
      words_[i] = draws(i).block(static_cast<std::uint32_t>(step / 4));
      if constexpr (kRestarts) {
        restart_words_[i] = draws(i, kRestartHop).block(static_cast<std::uint32_t>(step / 4));
      }
    }
  }

  // Picks the edge each walker leaves by; -1 where there is none, kRestart where it goes back to its start.
  void choose_edges(const Adjacency& edges, std::int64_t step) {
    for (int i = 0; i < size_; ++i) {
      edges_[i] = -1;
      if (nodes_[i] < 0) {
        continue;
      }
      const EdgeSpan span = edges_of(edges, nodes_[i]);
      if constexpr (kRestarts) {
        if (span.degree == 0 || restart_words_[i][static_cast<std::size_t>(step % 4)] < restart_below_) {
          edges_[i] = kRestart;
          continue;
        }
      }
      if (span.degree == 0) {
        continue;
      }
      const auto draw = static_cast<std::uint32_t>(step);
      if (span.degree < std::int64_t{1} << 32) [[likely]] {
        edges_[i] = span.begin + draws(i).bounded(words_[i][draw % 4], draw, static_cast<std::uint32_t>(span.degree));
      } else {
        edges_[i] = span.begin +
                    static_cast<std::int64_t>(draws(i).bounded_wide(draw, static_cast<std::uint64_t>(span.degree)));
      }
      if (edges.wide_indices != nullptr) {
        prefetch(neighbor_at(edges, edges.wide_indices, edges_[i]));
      } else {
        prefetch(neighbor_at(edges, edges.narrow_indices, edges_[i]));
      }
    }
  }

  template <typename Index>
  void follow(const Adjacency& edges, const Index* indices, const Adjacency* next, std::int64_t step) {
    const std::int64_t limit = next != nullptr ? next->num_rows : INT64_MAX;
    for (int i = 0; i < size_; ++i) {
      std::int64_t node = -1;
      if (edges_[i] >= 0) {
        node = *neighbor_at(edges, indices, edges_[i]);
        if (static_cast<std::uint64_t>(node) >= static_cast<std::uint64_t>(limit)) [[unlikely]] {
          throw_bad_neighbor(edges, edges_[i], node, limit);
        }
        if (next != nullptr) {
          prefetch_row(*next, node);
        }
      } else if constexpr (kRestarts) {
        node = row(i)[0];
        prefetch_row(edges, node);
      }
      nodes_[i] = node;
      row(i)[step + 1] = node;
    }
  }

  DrawSequence draws(int i, std::uint32_t hop = 0) const {
    return DrawSequence(request_.key, hop, 0, static_cast<std::uint64_t>(request_.first_position + first_ + i));
  }
  std::int64_t* row(int i) const { return out_ + (first_ + i) * width_; }

  const WalkRequest& request_;
  std::int64_t first_;
  int size_;
  std::int64_t* out_;
  std::int64_t width_;
  std::array<std::int64_t, kGroup> nodes_;
  std::array<std::int64_t, kGroup> edges_;
  std::array<PhiloxBlock, kGroup> words_;
  std::array<PhiloxBlock, kRestarts ? kGroup : 0> restart_words_;
  std::uint64_t restart_below_;
};

template <bool kRestarts>
void walk_chunks(const WalkRequest& request, std::int64_t* out) {
  const auto walkers = static_cast<std::int64_t>(request.start.size());
  const std::int64_t chunks = (walkers + kChunkWalkers - 1) / kChunkWalkers;
  parallel_for(request.threads, chunks, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkWalkers, walkers);
    for (std::int64_t first = chunk * kChunkWalkers; first < end; first += kGroup) {
      WalkerGroup<kRestarts>(request, first, static_cast<int>(std::min<std::int64_t>(kGroup, end - first)), out).run();
    }
  });
}

}  // namespace

void random_walks(const WalkRequest& request, std::int64_t* out) {
  if ((request.p != 1 || request.q != 1) && request.length > 0) {
    node2vec_walks(request, out);
  } else if (request.restart_probability > 0) {
    walk_chunks<true>(request, out);
  } else {
    walk_chunks<false>(request, out);
  }
}

}  // namespace graphbox
