#include "sample/node2vec.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "parallel/parallel_for.h"
#include "sample/list_search.h"

namespace graphbox {
namespace {

constexpr int kSlots = 96;  // walkers under way at once
constexpr std::int64_t kChunkWalkers = 2048;
constexpr std::int64_t kChunkRows = 1 << 14;
constexpr std::uint32_t kHop = 1;  // of the counter: hops 0, 2 and 3 have the draws of walks that do not look back
constexpr std::uint32_t kAliasHop = 4;
constexpr std::uint32_t kMostDarts = 32;

GRAPHBOX_INLINE double unit_interval(std::uint32_t low, std::uint32_t high) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// Rejection sampling (Yang et al., "KnightKing", SOSP'19): a dart falls on an area of one column for each edge, as wide
// as the larger of 1 and 1 / q is high, and is taken when it falls below the edge's weight. What 1 / p exceeds that
// height by is a further area for the edges back. Whether t has an edge to x is looked up only where the answer
// decides. After kMostDarts misses, which say nothing about where a hit would be, the choice is made by counting; so a
// step ends for any p and q.
//
// With weights a candidate comes from the alias table of the node, and columns are as high as the largest of 1, 1 / p
// and 1 / q: what the edges back weigh among all is not known before it is looked up, so they have no area of their
// own.
//
// Walkers stand in one of four queues by what they wait for: a row of indptr, an entry of an alias table, a candidate
// edge, a line of a list that is searched. One round serves all that waited when it began; they asked for their lines
// in the round before.
template <typename Index>
class Node2VecWalkers {
 public:
  // With `lists` walkers take one step, the last of the request, in lists that were read for it.
  Node2VecWalkers(const WalkRequest& request, const Index* indices, std::int64_t first, std::int64_t end,
                  std::int64_t* out, const StepRequest* one_step = nullptr, const FetchedLists* lists = nullptr)
      : request_(request),
        one_step_(one_step),
        lists_(lists),
        step_(request.paths.front().front()),
        edges_(step_.edges),
        num_nodes_(lists != nullptr ? lists->num_nodes : edges_.num_rows),
        indices_(indices),
        next_(first),
        end_(end),
        out_(out),
        return_weight_(1 / request.p),
        far_weight_(1 / request.q),
        height_(std::max({1.0, far_weight_, step_.weights != nullptr ? return_weight_ : 0.0})),
        excess_(std::max(0.0, return_weight_ - height_)),
        sure_below_(std::min(1.0, far_weight_)),
        never_above_(std::max(1.0, far_weight_)),
        restarts_(request.restart_probability > 0),
        restart_below_(restart_threshold(request.restart_probability)) {}

  void run() {
    for (int slot = 0; slot < kSlots; ++slot) {
      enter(slot);
    }
    while (!rows_.empty() || !columns_.empty() || !candidates_.empty() || !searches_.empty()) {
      const Queue rows = take(rows_);
      const Queue columns = take(columns_);
      const Queue candidates = take(candidates_);
      const Queue searches = take(searches_);
      for (const std::uint8_t slot : rows) {
        begin_step(slot);
      }
      for (const std::uint8_t slot : columns) {
        resolve(slot);
      }
      for (const std::uint8_t slot : candidates) {
        judge(slot);
      }
      for (const std::uint8_t slot : searches) {
        search(slot);
      }
    }
  }

 private:
  struct Walker {
    std::int64_t number;  // its place in start
    std::int64_t step;
    std::int64_t node;
    std::int64_t previous;  // -1: the step looks back at nothing
    EdgeSpan edges;         // of the node
    EdgeSpan previous_edges;
    std::int64_t candidate_edge;
    std::int64_t candidate;
    std::uint32_t dart;
    double height;  // where the dart fell in its column
    bool back;      // what is searched for is an edge back
    ListSearch<Index> search;
  };

  class Queue {
   public:
    void push(int slot) { slots_[static_cast<std::size_t>(size_++)] = static_cast<std::uint8_t>(slot); }
    bool empty() const { return size_ == 0; }
    void clear() { size_ = 0; }
    const std::uint8_t* begin() const { return slots_.data(); }
    const std::uint8_t* end() const { return slots_.data() + size_; }

   private:
    std::array<std::uint8_t, kSlots> slots_;
    int size_ = 0;
  };

  static Queue take(Queue& queue) {
    Queue taken = queue;
    queue.clear();
    return taken;
  }

  // Where the node goes that the walker is at after so many steps.
  std::int64_t* at(const Walker& walker, std::int64_t steps) const {
    return out_ + (one_step_ != nullptr ? walker.number : walker.number * (request_.length + 1) + steps);
  }
  const Index* list(const EdgeSpan& edges) const { return neighbor_at(edges_, indices_, edges.begin); }
  // A dart's draws do not depend on how many there were before: its number stands where relations do, its step is the
  // number of the block. Word 0 chooses the edge, 1 and 2 where the dart falls, 3 of the first dart whether to restart.
  // With weights word 0 chooses a column, and word 0 of another hop whether its own edge or the other.
  DrawSequence draws(const Walker& walker, std::uint32_t hop = kHop) const {
    if (one_step_ != nullptr) {
      return one_step_->draws->of(one_step_->numbers[static_cast<std::size_t>(walker.number)], hop, walker.dart);
    }
    return DrawSequence(request_.key, hop, walker.dart,
                        static_cast<std::uint64_t>(request_.first_position + walker.number));
  }
  TablesAt<AliasTables> tables(const EdgeSpan& edges) const {
    return tables_at(edges_, step_.weights, step_.overlay_weights, edges.begin);
  }

  // Gives the slot to the next walker that has a choice to make, if one is left.
  void enter(int slot) {
    Walker& walker = walkers_[slot];
    while (next_ < end_) {
      walker.number = next_++;
      const auto number = static_cast<std::size_t>(walker.number);
      if (lists_ != nullptr) {
        resume(walker, number);
        rows_.push(slot);
        return;
      }
      walker.step = 0;
      walker.node = request_.start[number];
      walker.previous = -1;
      check_start(edges_, walker.node, request_.first_position + walker.number);
      *at(walker, 0) = walker.node;
      if (!request_.second.empty()) {
        walker.previous = walker.node;
        walker.previous_edges = edges_of(edges_, walker.node);
        walker.node = request_.second[number];
        check_node(edges_, walker.node, request_.first_position + walker.number, "second");
        *at(walker, ++walker.step) = walker.node;
      }
      if (walker.step < request_.length) {
        prefetch_row(edges_, walker.node);
        rows_.push(slot);
        return;
      }
    }
  }

  // Puts a walker before the one step that it takes.
  void resume(Walker& walker, std::size_t number) const {
    walker.step = one_step_->step;
    walker.node = checked_row(lists_->rows[number]);
    walker.previous = lists_->previous[number];
    if (walker.previous >= 0) {
      walker.previous_edges = edges_of(edges_, checked_row(lists_->previous_rows[number]));
    }
  }

  std::int64_t checked_row(std::int64_t row) const {
    check_node(edges_, row, 0, "rows");
    return row;
  }

  void begin_step(int slot) {
    Walker& walker = walkers_[slot];
    walker.edges = edges_of(edges_, walker.node);
    walker.dart = 0;
    throw_dart(slot);
  }

  void throw_dart(int slot) {
    Walker& walker = walkers_[slot];
    const DrawSequence sequence = draws(walker);
    const PhiloxBlock words = sequence.block(static_cast<std::uint32_t>(walker.step));
    const std::int64_t degree = walker.edges.degree;
    if (walker.dart == 0) {
      if (restarts_ && (words[3] < restart_below_ || degree == 0)) {
        walker.previous = -1;
        arrive(slot, request_.start[static_cast<std::size_t>(walker.number)]);
        return;
      }
      if (degree == 0) {
        std::fill(at(walker, walker.step + 1), at(walker, request_.length) + 1, -1);
        enter(slot);
        return;
      }
    }
    walker.height = -1;
    if (walker.previous >= 0) {
      const double columns = static_cast<double>(degree) * height_;
      const double parallel = static_cast<double>(std::min(degree, request_.most_parallel));
      const double dart = unit_interval(words[1], words[2]) * (columns + parallel * excess_);
      if (dart >= columns && excess_ > 0) {
        walker.back = true;
        walker.candidate = walker.previous;
        walker.search.start(list(walker.edges), degree, walker.previous, num_nodes_,
                            static_cast<std::int64_t>((dart - columns) / excess_));
        searches_.push(slot);
        return;
      }
      walker.height = dart / static_cast<double>(degree);
    }
    walker.candidate_edge = walker.edges.begin + draw_below(sequence, words[0], edge_draw(walker), degree);
    prefetch(neighbor_at(edges_, indices_, walker.candidate_edge));
    if (step_.weights != nullptr) {
      const auto [aliases, shift] = tables(walker.edges);
      prefetch(aliases->entries() + walker.candidate_edge - shift);
      columns_.push(slot);
    } else {
      candidates_.push(slot);
    }
  }

  // The entry of the alias table has come.
  void resolve(int slot) {
    Walker& walker = walkers_[slot];
    const auto [aliases, shift] = tables(walker.edges);
    const AliasEntry entry = aliases->entries()[walker.candidate_edge - shift];
    if (draws(walker, kAliasHop).block(static_cast<std::uint32_t>(walker.step))[0] >= entry.threshold) {
      if (entry.alias >= walker.edges.degree) [[unlikely]] {
        throw_other_rows(edges_);
      }
      walker.candidate_edge = walker.edges.begin + entry.alias;
      prefetch(neighbor_at(edges_, indices_, walker.candidate_edge));
    }
    candidates_.push(slot);
  }

  static std::uint32_t edge_draw(const Walker& walker) { return static_cast<std::uint32_t>(walker.step) * 4; }

  // The candidate has come.
  void judge(int slot) {
    Walker& walker = walkers_[slot];
    walker.candidate = *neighbor_at(edges_, indices_, walker.candidate_edge);
    if (static_cast<std::uint64_t>(walker.candidate) >= static_cast<std::uint64_t>(num_nodes_)) [[unlikely]] {
      throw_bad_neighbor(edges_, walker.candidate_edge, walker.candidate, num_nodes_);
    }
    if (walker.candidate == walker.previous) {
      settle(slot, walker.height < return_weight_);
    } else if (walker.height < sure_below_ || walker.height >= never_above_) {
      settle(slot, walker.height < sure_below_);
    } else {
      walker.back = false;
      walker.search.start(list(walker.previous_edges), walker.previous_edges.degree, walker.candidate, num_nodes_, 0);
      searches_.push(slot);
    }
  }

  // A line of the list that is searched has come.
  void search(int slot) {
    Walker& walker = walkers_[slot];
    const SearchState state = walker.search.advance();
    if (state == SearchState::kGoesOn) {
      searches_.push(slot);
      return;
    }
    const bool found = state == SearchState::kFound;
    settle(slot, walker.back || far_weight_ < 1 ? found : !found);
  }

  void settle(int slot, bool taken) {
    Walker& walker = walkers_[slot];
    if (!taken) {
      if (++walker.dart < kMostDarts) [[likely]] {
        throw_dart(slot);
        return;
      }
      walker.candidate = step_.weights != nullptr ? choose_by_adding(walker) : choose_by_counting(walker);
    }
    walker.previous = walker.node;
    walker.previous_edges = walker.edges;
    arrive(slot, walker.candidate);
  }

  void arrive(int slot, std::int64_t node) {
    Walker& walker = walkers_[slot];
    walker.node = node;
    *at(walker, ++walker.step) = node;
    if (walker.step == request_.length) {
      enter(slot);
      return;
    }
    prefetch_row(edges_, node);
    rows_.push(slot);
  }

  // Calls visit(node, kind) for the node's edges: 0 leads back, 1 to a neighbour of the previous node, 2 elsewhere.
  template <typename Visit>
  void for_each_edge(const Walker& walker, Visit visit) const {
    const Index* const nodes = list(walker.edges);
    const Index* known = list(walker.previous_edges);
    const Index* const known_end = known + walker.previous_edges.degree;
    for (std::int64_t i = 0; i < walker.edges.degree; ++i) {
      const std::int64_t node = nodes[i];
      known = std::lower_bound(known, known_end, node);
      const bool near = known != known_end && *known == node;
      visit(node, node == walker.previous ? 0U : near ? 1U : 2U);
    }
  }

  // The exact choice by weights in time that grows with the degree.
  std::int64_t choose_by_adding(const Walker& walker) const {
    const std::array<double, 3> factors = {return_weight_, 1, far_weight_};
    const auto [aliases, shift] = tables(walker.edges);
    const float* const weights = aliases->weights() + walker.edges.begin - shift;
    double total = 0;
    const float* weight = weights;
    for_each_edge(walker, [&](std::int64_t, std::size_t kind) { total += *weight++ * factors[kind]; });
    const PhiloxBlock words = draws(walker).block(static_cast<std::uint32_t>(walker.step));
    double left = unit_interval(words[1], words[2]) * total;
    std::int64_t chosen = -1;
    weight = weights;
    for_each_edge(walker, [&](std::int64_t neighbor, std::size_t kind) {
      const bool is_before = left >= 0;  // the last edge is chosen where rounding leaves nothing below it
      left -= *weight++ * factors[kind];
      chosen = is_before ? neighbor : chosen;
    });
    return checked(walker, chosen);
  }

  std::int64_t checked(const Walker& walker, std::int64_t node) const {
    if (static_cast<std::uint64_t>(node) >= static_cast<std::uint64_t>(num_nodes_)) [[unlikely]] {
      throw_bad_neighbor(edges_, walker.edges.begin, node, num_nodes_);
    }
    return node;
  }

  // The exact choice among equal edges in time that grows with the degree.
  std::int64_t choose_by_counting(const Walker& walker) const {
    const std::array<double, 3> weights = {return_weight_, 1, far_weight_};
    std::array<std::int64_t, 3> counts{};
    for_each_edge(walker, [&](std::int64_t, std::size_t kind) { ++counts[kind]; });
    double total = 0;
    for (std::size_t kind = 0; kind < 3; ++kind) {
      total += static_cast<double>(counts[kind]) * weights[kind];
    }
    const DrawSequence sequence = draws(walker);
    const PhiloxBlock words = sequence.block(static_cast<std::uint32_t>(walker.step));
    double left = unit_interval(words[1], words[2]) * total;
    std::size_t chosen = 0;
    for (std::size_t kind = 0; kind < 3; ++kind) {
      if (counts[kind] == 0) {
        continue;
      }
      chosen = kind;  // the last one that has edges where rounding leaves nothing below it
      left -= static_cast<double>(counts[kind]) * weights[kind];
      if (left < 0) {
        break;
      }
    }
    std::int64_t before = draw_below(sequence, words[0], edge_draw(walker), counts[chosen]);
    std::int64_t node = -1;
    for_each_edge(walker, [&](std::int64_t neighbor, std::size_t kind) {
      if (kind == chosen && before-- == 0) {
        node = neighbor;
      }
    });
    return checked(walker, node);
  }

  const WalkRequest& request_;
  const StepRequest* one_step_;  // null: whole walks
  const FetchedLists* lists_;
  const WalkStep& step_;
  const Adjacency& edges_;
  std::int64_t num_nodes_;
  const Index* indices_;
  std::int64_t next_;
  std::int64_t end_;
  std::int64_t* out_;
  double return_weight_;
  double far_weight_;
  double height_;       // of a column
  double excess_;       // what the weight of an edge back exceeds it by
  double sure_below_;   // every edge has at least this weight, and ...
  double never_above_;  // ... at most this, edges back apart
  bool restarts_;
  std::uint64_t restart_below_;
  Queue rows_;
  Queue columns_;
  Queue candidates_;
  Queue searches_;
  std::array<Walker, kSlots> walkers_;
};

template <typename Index>
void walk_chunks(const WalkRequest& request, const Index* indices, std::int64_t* out,
                 const StepRequest* one_step = nullptr, const FetchedLists* lists = nullptr) {
  const auto walkers = static_cast<std::int64_t>(one_step != nullptr ? one_step->numbers.size() : request.start.size());
  parallel_for(request.threads, (walkers + kChunkWalkers - 1) / kChunkWalkers, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkWalkers, walkers);
    Node2VecWalkers<Index>(request, indices, chunk * kChunkWalkers, end, out, one_step, lists).run();
  });
}

template <typename Index>
std::int64_t longest_run(const Adjacency& edges, const Index* indices, std::int64_t first, std::int64_t last) {
  std::int64_t longest = 1;
  for (std::int64_t row = first; row < last; ++row) {
    const EdgeSpan span = edges_of(edges, row);
    if (span.degree == 0) {
      continue;
    }
    const Index* const list = neighbor_at(edges, indices, span.begin);
    std::int64_t run = 1;
    for (std::int64_t i = 1; i < span.degree; ++i) {
      if (list[i] < list[i - 1]) {
        throw Error(ErrorKind::kUsage,
                    "p and q need lists that ascend; that of node " + std::to_string(row) + " goes from " +
                        std::to_string(list[i - 1]) + " to " + std::to_string(list[i]),
                    edges.name, "sort the neighbours of each node, as Graph.from_coo does");
      }
      run = list[i] == list[i - 1] ? run + 1 : 1;
      longest = std::max(longest, run);
    }
  }
  return longest;
}

}  // namespace

void node2vec_walks(const WalkRequest& request, std::int64_t* out) {
  const Adjacency& edges = request.paths.front().front().edges;
  if (edges.wide_indices != nullptr) {
    walk_chunks(request, edges.wide_indices, out);
  } else {
    walk_chunks(request, edges.narrow_indices, out);
  }
}

void node2vec_step(const StepRequest& request, const FetchedLists& lists, double p, double q,
                   std::int64_t most_parallel, std::int64_t* next) {
  WalkRequest walks;
  walks.paths = {{*lists.lists}};
  walks.length = request.step + 1;
  walks.p = p;
  walks.q = q;
  walks.most_parallel = most_parallel;
  walks.threads = request.threads;
  const Adjacency& edges = lists.lists->edges;
  if (edges.wide_indices != nullptr) {
    walk_chunks(walks, edges.wide_indices, next, &request, &lists);
  } else {
    walk_chunks(walks, edges.narrow_indices, next, &request, &lists);
  }
}

std::int64_t most_parallel_edges(const Adjacency& edges, int threads) {
  std::atomic<std::int64_t> most{1};
  parallel_for(threads, (edges.num_rows + kChunkRows - 1) / kChunkRows, [&](std::int64_t chunk) {
    const std::int64_t first = chunk * kChunkRows;
    const std::int64_t last = std::min(first + kChunkRows, edges.num_rows);
    const std::int64_t longest = edges.wide_indices != nullptr ? longest_run(edges, edges.wide_indices, first, last)
                                                               : longest_run(edges, edges.narrow_indices, first, last);
    std::int64_t known = most.load(std::memory_order_relaxed);
    while (known < longest && !most.compare_exchange_weak(known, longest, std::memory_order_relaxed)) {
    }
  });
  return most.load();
}

}  // namespace graphbox
