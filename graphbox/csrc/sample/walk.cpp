#include "sample/walk.h"

#include <algorithm>
#include <array>
#include <span>

#include "parallel/parallel_for.h"
#include "random/philox_lanes.h"
#include "sample/node2vec.h"

namespace graphbox {
namespace {

// Walkers of one group move in turns: while one waits for its memory line, the others go on.
constexpr int kGroup = 64;
constexpr std::int64_t kChunkWalkers = 16 * kGroup;

enum class Restarts : std::uint8_t { kNone, kSteps, kRounds };

// Walkers along a path: all, or those listed.
struct PathWalkers {
  const std::vector<WalkStep>* path;
  const std::int64_t* numbers;  // null: 0, 1, 2, ...
  std::int64_t count;
};

constexpr int kLanes = 8;

// Writes the block of each position, as DrawSequence::block would. `count` is a multiple of kLanes.
GRAPHBOX_CLONES
void draw_blocks(PhiloxKey key, std::uint32_t hop, std::uint32_t block, const std::uint64_t* positions, int count,
                 PhiloxBlock* blocks) {
  PhiloxLanes<kLanes> lanes;
  for (int first = 0; first < count; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes.start(lane, block, hop, positions[static_cast<std::size_t>(first) + lane]);
    }
    lanes.run(key);
    lanes.store(blocks[first].data());
  }
}

// The words of one hop, those of `kPerStep` draws a step, drawn for all walkers of a group when first asked for.
template <int kPerStep>
class GroupWords {
 public:
  // `count` positions, a multiple of kLanes.
  void reach(std::int64_t step, PhiloxKey key, std::uint32_t hop, const std::uint64_t* positions, int count) {
    constexpr std::int64_t kSteps = 4 / kPerStep;
    const std::int64_t block = step / kSteps;
    offset_ = static_cast<std::size_t>(step % kSteps) * kPerStep;
    if (block != block_) {
      block_ = block;
      draw_blocks(key, hop, static_cast<std::uint32_t>(block), positions, count, words_.data());
    }
  }
  std::uint32_t word(int i, std::size_t number = 0) const {
    return words_[static_cast<std::size_t>(i)][offset_ + number];
  }
  // The same as word(i): words()[i][offset()].
  const PhiloxBlock* words() const { return words_.data(); }
  std::size_t offset() const { return offset_; }

 private:
  std::array<PhiloxBlock, kGroup> words_;
  std::int64_t block_ = -1;
  std::size_t offset_ = 0;
};

template <Restarts kRestarts>
class WalkerGroup {
 public:
  WalkerGroup(const WalkRequest& request, const PathWalkers& walkers, std::int64_t first, int size, std::int64_t* out)
      : request_(request),
        path_(*walkers.path),
        size_(size),
        out_(out),
        width_(request.length + 1),
        restart_below_(restart_threshold(request.restart_probability)) {
    for (int i = 0; i < size; ++i) {
      numbers_[i] = walkers.numbers != nullptr ? walkers.numbers[first + i] : first + i;
      positions_[i] = static_cast<std::uint64_t>(position(i));
    }
    std::fill(positions_.begin() + size, positions_.end(), 0);  // lanes in which nobody walks
  }

  void run() {
    for (std::int64_t step = begin(); step < request_.length; ++step) {
      const WalkStep& here = path_[static_cast<std::size_t>(step) % path_.size()];
      const WalkStep& next = path_[static_cast<std::size_t>(step + 1) % path_.size()];
      if constexpr (kRestarts == Restarts::kRounds) {
        if (step > 0 && static_cast<std::size_t>(step) % path_.size() == 0) {
          begin_round(step);
        }
      }
      // Rounds end at the type they start at, so that what the last step leads to can be checked, too.
      const bool has_next = kRestarts == Restarts::kRounds || step + 1 < request_.length;
      const Adjacency* next_rows = has_next ? &next.edges : nullptr;
      if (is_plain(here, next_rows) && go_plainly(here.edges, next_rows, step)) {
        continue;
      }
      if (here.times != nullptr) {
        choose_by_time(here, step);
      } else if (here.weights != nullptr) {
        choose_by_weight(here, step);
      } else {
        choose_any(here.edges, step);
      }
      if (here.edges.wide_indices != nullptr) {
        follow(here.edges, here.edges.wide_indices, next_rows, step);
      } else {
        follow(here.edges, here.edges.narrow_indices, next_rows, step);
      }
    }
  }

 private:
  static constexpr std::int64_t kNone = -1;
  static constexpr std::int64_t kRestart = -2;

  // Puts the walkers at their starts and returns the step they take first.
  std::int64_t begin() {
    const bool has_second = !request_.second.empty();
    const Adjacency& edges = path_.front().edges;
    for (int i = 0; i < size_; ++i) {
      const auto number = static_cast<std::size_t>(numbers_[i]);
      nodes_[i] = request_.start[number];
      check_start(edges, nodes_[i], position(i));
      times_[i] = request_.times.empty() ? TimeRule::kAnyTime : request_.times[number];
      row(i)[0] = nodes_[i];
      if (!has_second) {
        prefetch_row(edges, nodes_[i]);
      }
    }
    if (!has_second) {
      return 0;
    }
    for (int i = 0; i < size_; ++i) {
      nodes_[i] = request_.second[static_cast<std::size_t>(numbers_[i])];
      row(i)[1] = nodes_[i];
      if (request_.length > 1) {
        const Adjacency& next = path_[1 % path_.size()].edges;
        check_node(next, nodes_[i], position(i), "second");
        prefetch_row(next, nodes_[i]);
      }
    }
    return 1;
  }

  void begin_round(std::int64_t step) {
    reach(restart_words_, kRestartHop, step);
    for (int i = 0; i < size_; ++i) {
      if (nodes_[i] < 0 || restart_words_.word(i) < restart_below_) {
        nodes_[i] = row(i)[0];  // its row was read a round ago
      }
    }
  }

  // Calls visit(walker, its edges) for the walkers that choose one; sets what the others do.
  template <typename Visit>
  void for_each_choice(const Adjacency& edges, std::int64_t step, Visit visit) {
    if constexpr (kRestarts == Restarts::kSteps) {
      reach(restart_words_, kRestartHop, step);
    }
    for (int i = 0; i < size_; ++i) {
      edges_[i] = kNone;
      if (nodes_[i] < 0) {
        continue;
      }
      const EdgeSpan span = edges_of(edges, nodes_[i]);
      if constexpr (kRestarts == Restarts::kSteps) {
        if (span.degree == 0 || restart_words_.word(i) < restart_below_) {
          edges_[i] = kRestart;
          continue;
        }
      }
      if (span.degree > 0) {
        visit(i, span);
      }
    }
  }

  // Whether any edge is equally likely, and nothing is new.
  static bool is_plain(const WalkStep& here, const Adjacency* next) {
    return kRestarts != Restarts::kSteps && here.times == nullptr && here.weights == nullptr &&
           here.edges.overlay == nullptr && (next == nullptr || next->overlay == nullptr) && here.edges.num_rows > 0 &&
           here.edges.num_edges > 0;
  }

  // Such a step, in few instructions, none of which branches on what a walker meets. False where one meets what that
  // cannot do, a draw to be repeated or a damaged list: then nobody has moved.
  GRAPHBOX_INLINE bool go_plainly(const Adjacency& edges, const Adjacency* next, std::int64_t step) {
    return edges.wide_indices != nullptr ? go_plainly(edges, edges.wide_indices, next, step)
                                         : go_plainly(edges, edges.narrow_indices, next, step);
  }

  template <typename Index>
  bool go_plainly(const Adjacency& edges, const Index* indices, const Adjacency* next, std::int64_t step) {
    reach(words_, kUniformHop, step);
    const PhiloxBlock* const words = words_.words();
    const std::size_t word = words_.offset();
    const std::int64_t* const indptr = edges.indptr;
    const std::int64_t num_edges = edges.num_edges;
    const int size = size_;
    std::uint64_t other = 0;  // not 0: a list that is too long or leads out of the edges, a draw to be repeated
    for (int i = 0; i < size; ++i) {
      const std::int64_t gone = nodes_[i] >> 63;  // all bits, or none
      const std::int64_t* const bounds = indptr + (nodes_[i] & ~gone);
      const std::int64_t begin = bounds[0];
      const std::int64_t end = bounds[1];
      const auto degree = static_cast<std::uint64_t>(end - begin);
      const std::uint64_t product = words[i][word] * (degree & UINT32_MAX);
      const bool is_rejected = static_cast<std::uint32_t>(product) < degree;  // not of lists without edges
      other |= degree >> 32 | static_cast<std::uint64_t>(begin | (num_edges - end)) >> 63 | (is_rejected ? 1U : 0U);
      const std::int64_t edge = begin + static_cast<std::int64_t>(product >> 32);
      prefetch(indices + edge);
      edges_[i] = edge | gone | (static_cast<std::int64_t>(degree) - 1) >> 63;  // kNone where there is none
    }
    if (other != 0) [[unlikely]] {
      return false;
    }
    const auto limit = static_cast<std::uint64_t>(next != nullptr ? next->num_rows : INT64_MAX);
    const std::int64_t* const next_indptr = next != nullptr ? next->indptr : indptr;
    bool is_outside = false;
    for (int i = 0; i < size; ++i) {
      const std::int64_t gone = edges_[i] >> 63;
      const std::int64_t node = indices[edges_[i] & ~gone];
      is_outside |= static_cast<std::uint64_t>(node & ~gone) >= limit;
      prefetch(next_indptr + node);
      next_nodes_[i] = node | gone;
    }
    if (is_outside) [[unlikely]] {
      return false;
    }
    std::int64_t* const column = out_ + step + 1;
    const std::int64_t width = width_;
    for (int i = 0; i < size; ++i) {
      nodes_[i] = next_nodes_[i];
      column[numbers_[i] * width] = next_nodes_[i];
    }
    return true;
  }

  void choose_any(const Adjacency& edges, std::int64_t step) {
    reach(words_, kUniformHop, step);
    const auto draw = static_cast<std::uint32_t>(step);
    for_each_choice(edges, step, [&](int i, EdgeSpan span) {
      edges_[i] = span.begin + draw_below(draws(i, kUniformHop), words_.word(i), draw, span.degree);
      prefetch_neighbor(edges, edges_[i]);
    });
  }

  // A column of each walker's alias table, then what it stands for.
  void choose_by_weight(const WalkStep& here, std::int64_t step) {
    const Adjacency& edges = here.edges;
    reach(pair_words_, kPairHop, step);
    for_each_choice(edges, step, [&](int i, EdgeSpan span) {
      const std::uint32_t column =
          draws(i, kPairHop).bounded(pair_words_.word(i, 0), pair_draw(step), static_cast<std::uint32_t>(span.degree));
      edges_[i] = span.begin + column;
      begins_[i] = span.begin;
      degrees_[i] = span.degree;
      prefetch(alias_entry(here, edges_[i]));
      prefetch_neighbor(edges, edges_[i]);  // the edge of the column itself is taken more often than not
    });
    for (int i = 0; i < size_; ++i) {
      if (edges_[i] < 0) {
        continue;
      }
      const AliasEntry entry = *alias_entry(here, edges_[i]);
      if (pair_words_.word(i, 1) >= entry.threshold) {
        if (entry.alias >= degrees_[i]) [[unlikely]] {
          throw_other_rows(edges);
        }
        edges_[i] = begins_[i] + entry.alias;
        prefetch_neighbor(edges, edges_[i]);
      }
    }
  }

  // Finds the edges that are late enough, chooses one in their order by time, then finds its position.
  void choose_by_time(const WalkStep& here, std::int64_t step) {
    const Adjacency& edges = here.edges;
    for_each_choice(edges, step, [&](int i, EdgeSpan span) {
      const auto [order, shift] = tables_at(edges, here.times, here.overlay_times, span.begin);
      edges_[i] = 0;
      begins_[i] = span.begin;
      degrees_[i] = span.degree;
      prefetch(order->times() + span.begin - shift + span.degree / 2);
    });
    if (request_.time_rule.choice == TimeChoice::kLinear) {
      reach(pair_words_, kPairHop, step);
    } else {
      reach(words_, kUniformHop, step);
    }
    for (int i = 0; i < size_; ++i) {
      if (edges_[i] >= 0) {
        choose_late_enough(here, i, step);
      }
    }
    for (int i = 0; i < size_; ++i) {
      if (edges_[i] >= 0) {
        const auto [order, shift] = tables_at(edges, here.times, here.overlay_times, begins_[i]);
        edges_[i] += order->shifts()[edges_[i] - shift];
        prefetch_neighbor(edges, edges_[i]);
      }
    }
  }

  void choose_late_enough(const WalkStep& here, int i, std::int64_t step) {
    const auto [order, shift] = tables_at(here.edges, here.times, here.overlay_times, begins_[i]);
    const std::int64_t begin = begins_[i] - shift;
    const TimeRule& rule = request_.time_rule;
    std::int64_t first = 0;
    std::int64_t last = degrees_[i];
    if (times_[i] != TimeRule::kAnyTime) {
      first = order->count_until(begin, degrees_[i], times_[i] - (rule.strictly_later ? 0 : 1));
      std::int64_t latest = 0;
      if (rule.window != TimeRule::kNoWindow && !__builtin_add_overflow(times_[i], rule.window, &latest)) {
        last = order->count_until(begin, degrees_[i], latest);
      }
    }
    if (first >= last) {
      edges_[i] = kNone;
      return;
    }
    const std::int64_t place = begin + first + choose_place(i, static_cast<std::uint32_t>(last - first), step);
    times_[i] = order->times()[place];
    edges_[i] = place + shift;
    prefetch(order->shifts() + place);
  }

  std::uint32_t choose_place(int i, std::uint32_t count, std::int64_t step) const {
    if (request_.time_rule.choice == TimeChoice::kUniform) {
      return draws(i, kUniformHop).bounded(words_.word(i), static_cast<std::uint32_t>(step), count);
    }
    // The smaller of two different numbers up to `count` is r in count - r of all cases.
    const DrawSequence sequence = draws(i, kPairHop);
    const std::uint32_t one = sequence.bounded(pair_words_.word(i, 0), pair_draw(step), count + 1);
    const std::uint32_t other = sequence.bounded(pair_words_.word(i, 1), pair_draw(step) + 1, count);
    return std::min(one, other + (other >= one ? 1 : 0));
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
      } else if constexpr (kRestarts == Restarts::kSteps) {
        node = row(i)[0];
        prefetch_row(edges, node);
      }
      nodes_[i] = node;
      row(i)[step + 1] = node;
    }
  }

  GRAPHBOX_INLINE static void prefetch_neighbor(const Adjacency& edges, std::int64_t edge) {
    if (edges.wide_indices != nullptr) {
      prefetch(neighbor_at(edges, edges.wide_indices, edge));
    } else {
      prefetch(neighbor_at(edges, edges.narrow_indices, edge));
    }
  }
  static const AliasEntry* alias_entry(const WalkStep& here, std::int64_t edge) {
    const auto [tables, shift] = tables_at(here.edges, here.weights, here.overlay_weights, edge);
    return tables->entries() + edge - shift;
  }

  template <typename Words>
  void reach(Words& words, std::uint32_t hop, std::int64_t step) {
    words.reach(step, request_.key, hop, positions_.data(), (size_ + kLanes - 1) / kLanes * kLanes);
  }
  DrawSequence draws(int i, std::uint32_t hop) const {
    return DrawSequence(request_.key, hop, 0, static_cast<std::uint64_t>(position(i)));
  }
  std::int64_t position(int i) const { return request_.first_position + numbers_[i]; }
  std::int64_t* row(int i) const { return out_ + numbers_[i] * width_; }

  const WalkRequest& request_;
  const std::vector<WalkStep>& path_;
  int size_;
  std::int64_t* out_;
  std::int64_t width_;
  std::uint64_t restart_below_;
  std::array<std::int64_t, kGroup> numbers_;
  std::array<std::uint64_t, kGroup> positions_;
  std::array<std::int64_t, kGroup> nodes_;
  std::array<std::int64_t, kGroup> next_nodes_;
  std::array<std::int64_t, kGroup> times_;
  std::array<std::int64_t, kGroup> edges_;    // kNone, kRestart or the position of the edge chosen
  std::array<std::int64_t, kGroup> begins_;   // of the node's edges, and ...
  std::array<std::int64_t, kGroup> degrees_;  // ... how many
  GroupWords<1> words_;
  GroupWords<1> restart_words_;
  GroupWords<2> pair_words_;
};

// Puts the walkers of each path next to each other: their numbers, in order.
class WalkersByPath {
 public:
  explicit WalkersByPath(const WalkRequest& request) {
    const auto walkers = static_cast<std::int64_t>(request.start.size());
    if (request.paths.size() == 1) {
      paths_.push_back({&request.paths.front(), nullptr, walkers});
      return;
    }
    std::vector<std::int64_t> ends(request.paths.size() + 1, 0);
    for (const std::int64_t path : request.path_of) {
      check_path(path, static_cast<std::int64_t>(request.paths.size()));
      ++ends[static_cast<std::size_t>(path) + 1];
    }
    for (std::size_t path = 1; path < ends.size(); ++path) {
      ends[path] += ends[path - 1];
    }
    numbers_.resize(request.path_of.size());
    for (std::size_t path = 0; path < request.paths.size(); ++path) {
      paths_.push_back({&request.paths[path], numbers_.data() + ends[path], ends[path + 1] - ends[path]});
    }
    for (std::size_t number = 0; number < request.path_of.size(); ++number) {
      const auto path = static_cast<std::size_t>(request.path_of[number]);
      numbers_[static_cast<std::size_t>(ends[path]++)] = static_cast<std::int64_t>(number);
    }
  }

  // Calls visit(walkers of a path, first, last) for parts of at most kChunkWalkers, on several threads.
  template <typename Visit>
  void for_each_chunk(int threads, Visit visit) const {
    std::vector<std::int64_t> chunks{0};
    for (const PathWalkers& walkers : paths_) {
      chunks.push_back(chunks.back() + (walkers.count + kChunkWalkers - 1) / kChunkWalkers);
    }
    parallel_for(threads, chunks.back(), [&](std::int64_t chunk) {
      const auto path = std::upper_bound(chunks.begin(), chunks.end(), chunk) - chunks.begin() - 1;
      const PathWalkers& walkers = paths_[static_cast<std::size_t>(path)];
      const std::int64_t first = (chunk - chunks[static_cast<std::size_t>(path)]) * kChunkWalkers;
      visit(walkers, first, std::min(first + kChunkWalkers, walkers.count));
    });
  }

 private:
  static void check_path(std::int64_t path, std::int64_t paths) {
    if (path < 0 || path >= paths) [[unlikely]] {
      throw Error(
          ErrorKind::kUsage,
          "expected numbers of metapaths in [0, " + std::to_string(paths) + "), received " + std::to_string(path),
          "metapath_of");
    }
  }

  std::vector<PathWalkers> paths_;
  std::vector<std::int64_t> numbers_;
};

template <Restarts kRestarts>
void walk_chunks(const WalkRequest& request, std::int64_t* out) {
  const WalkersByPath by_path(request);
  by_path.for_each_chunk(request.threads, [&](const PathWalkers& walkers, std::int64_t first, std::int64_t last) {
    for (; first < last; first += kGroup) {
      const auto size = static_cast<int>(std::min<std::int64_t>(kGroup, last - first));
      WalkerGroup<kRestarts>(request, walkers, first, size, out).run();
    }
  });
}

}  // namespace

void random_walks(const WalkRequest& request, std::int64_t* out) {
  if (request.made != nullptr) {
    std::copy_n(request.made, std::ssize(request.start) * (request.length + 1), out);
  } else if ((request.p != 1 || request.q != 1) && request.length > 0) {
    node2vec_walks(request, out);
  } else if (request.restart_rounds) {
    walk_chunks<Restarts::kRounds>(request, out);
  } else if (request.restart_probability > 0) {
    walk_chunks<Restarts::kSteps>(request, out);
  } else {
    walk_chunks<Restarts::kNone>(request, out);
  }
}

}  // namespace graphbox
