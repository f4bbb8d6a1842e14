#include "sample/walk.h"

#include <algorithm>
#include <array>
#include <string>

#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

// Walkers of one group move in turns: while one waits for its memory line, the others go on.
constexpr int kGroup = 64;
constexpr std::int64_t kChunkWalkers = 16 * kGroup;
constexpr std::int64_t kChunkWalks = 1024;

class WalkerGroup {
 public:
  WalkerGroup(const WalkRequest& request, std::int64_t first, int size, std::int64_t* out)
      : request_(request), first_(first), size_(size), out_(out), width_(request.length + 1) {}

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
  void begin() {
    const Adjacency& edges = request_.steps.front();
    for (int i = 0; i < size_; ++i) {
      const std::int64_t node = request_.start[static_cast<std::size_t>(first_ + i)];
      if (node < 0 || node >= edges.num_rows) {
        throw Error(ErrorKind::kUsage,
                    "start must hold node indices in [0, " + std::to_string(edges.num_rows) + "), received " +
                        std::to_string(node) + " at position " + std::to_string(first_ + i),
                    "start");
      }
      nodes_[i] = node;
      row(i)[0] = node;
      prefetch_row(edges, node);
    }
  }

  void draw_words(std::int64_t step) {
    for (int i = 0; i < size_; ++i) {
      words_[i] = draws(i).block(static_cast<std::uint32_t>(step / 4));
    }
  }

  // Picks the edge each walker leaves by; -1 where there is none.
  void choose_edges(const Adjacency& edges, std::int64_t step) {
    for (int i = 0; i < size_; ++i) {
      edges_[i] = -1;
      if (nodes_[i] < 0) {
        continue;
      }
      const EdgeSpan span = edges_of(edges, nodes_[i]);
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
      }
      nodes_[i] = node;
      row(i)[step + 1] = node;
    }
  }

  DrawSequence draws(int i) const { return DrawSequence(request_.key, 0, 0, static_cast<std::uint64_t>(first_ + i)); }
  std::int64_t* row(int i) const { return out_ + (first_ + i) * width_; }

  const WalkRequest& request_;
  std::int64_t first_;
  int size_;
  std::int64_t* out_;
  std::int64_t width_;
  std::array<std::int64_t, kGroup> nodes_;
  std::array<std::int64_t, kGroup> edges_;
  std::array<PhiloxBlock, kGroup> words_;
};

}  // namespace

void random_walks(const WalkRequest& request, std::int64_t* out) {
  const auto walkers = static_cast<std::int64_t>(request.start.size());
  const std::int64_t chunks = (walkers + kChunkWalkers - 1) / kChunkWalkers;
  parallel_for(request.threads, chunks, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkWalkers, walkers);
    for (std::int64_t first = chunk * kChunkWalkers; first < end; first += kGroup) {
      WalkerGroup(request, first, static_cast<int>(std::min<std::int64_t>(kGroup, end - first)), out).run();
    }
  });
}

// Calls visit(centre column, first context column, one past the last) for each centre of the walk.
template <typename Visit>
void SkipGramPairs::for_each_center(std::int64_t walk, Visit visit) const {
  const std::int64_t* const nodes = request_.walks + walk * request_.width;
  std::int64_t length = 0;
  while (length < request_.width && nodes[length] >= 0) {
    ++length;
  }
  const DrawSequence draws(request_.key, 0, 0, static_cast<std::uint64_t>(walk));
  PhiloxBlock words{};
  for (std::int64_t center = 0; center < length; ++center) {
    std::int64_t window = request_.window;
    if (request_.dynamic_window) {
      const auto draw = static_cast<std::uint32_t>(center);
      if (draw % 4 == 0) {
        words = draws.block(draw / 4);
      }
      window = 1 + draws.bounded(words[draw % 4], draw, static_cast<std::uint32_t>(request_.window));
    }
    visit(center, std::max<std::int64_t>(0, center - window), std::min(length, center + window + 1));
  }
}

SkipGramPairs::SkipGramPairs(const SkipGramRequest& request) : request_(request) {
  const std::int64_t chunks = (request.num_walks + kChunkWalks - 1) / kChunkWalks;
  chunk_offsets_.assign(static_cast<std::size_t>(chunks) + 1, 0);
  parallel_for(request.threads, chunks, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkWalks, request_.num_walks);
    std::int64_t count = 0;
    for (std::int64_t walk = chunk * kChunkWalks; walk < end; ++walk) {
      for_each_center(walk, [&](std::int64_t, std::int64_t first, std::int64_t last) { count += last - first - 1; });
    }
    chunk_offsets_[static_cast<std::size_t>(chunk) + 1] = count;
  });
  for (std::size_t chunk = 1; chunk < chunk_offsets_.size(); ++chunk) {
    chunk_offsets_[chunk] += chunk_offsets_[chunk - 1];
  }
}

void SkipGramPairs::write(std::int64_t* centers, std::int64_t* contexts) const {
  const auto chunks = static_cast<std::int64_t>(chunk_offsets_.size()) - 1;
  parallel_for(request_.threads, chunks, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkWalks, request_.num_walks);
    std::int64_t pair = chunk_offsets_[static_cast<std::size_t>(chunk)];
    for (std::int64_t walk = chunk * kChunkWalks; walk < end; ++walk) {
      const std::int64_t* const nodes = request_.walks + walk * request_.width;
      const auto key = [&](std::int64_t column) {
        return nodes[column] + (request_.column_offsets != nullptr ? request_.column_offsets[column] : 0);
      };
      for_each_center(walk, [&](std::int64_t center, std::int64_t first, std::int64_t last) {
        const std::int64_t center_key = key(center);
        for (std::int64_t context = first; context < last; ++context) {
          if (context != center) {
            centers[pair] = center_key;
            contexts[pair] = key(context);
            ++pair;
          }
        }
      });
    }
  });
}

}  // namespace graphbox
