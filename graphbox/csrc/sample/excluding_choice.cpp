#include "sample/excluding_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sample/excluded_edges.h"
#include "sample/weighted_choice.h"

namespace graphbox {
namespace {

// The edges of a node that may be chosen but for some.
struct Candidates {
  EdgeSpan span{};                     // positions, or places in the order of time
  std::vector<std::uint32_t> excluded{};  // offsets in it, ascending

  std::int64_t remaining() const { return span.degree - static_cast<std::int64_t>(excluded.size()); }
};

class ExcludingChooser : public NeighborChooser {
 public:
  ExcludingChooser(std::unique_ptr<NeighborChooser> plain, const NeighborRequest& request, const Relation& relation)
      : plain_(std::move(plain)), request_(request), relation_(relation) {}

  void narrow(const Frontier& frontier, std::int64_t begin, std::int64_t end, EdgeSpan* spans) const override {
    plain_->narrow(frontier, begin, end, spans);
    Candidates candidates;
    for (std::int64_t i = begin; i < end; ++i) {
      if (find_candidates(frontier, i, candidates)) {
        spans[i] = {candidates.span.begin, latest(frontier, candidates.remaining())};
      }
    }
  }

  void choose(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> out) override {
    if (relation_.weights == nullptr && relation_.times == nullptr) {
      choose_ranks(frontier, begin, end, out);
      return;
    }
    std::size_t chosen = 0;
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t plain_begin = i;
      const std::size_t plain_chosen = chosen;
      while (i < end && !find_candidates(frontier, i, candidates_)) {
        chosen += static_cast<std::size_t>(frontier.count(i++));
      }
      plain_->choose(frontier, plain_begin, i, out.subspan(plain_chosen));
      if (i < end) {
        choose_remaining(frontier, i, out.data() + chosen);
        chosen += static_cast<std::size_t>(frontier.count(i++));
      }
    }
  }

 private:
  // False for a node without excluded edges.
  bool find_candidates(const Frontier& frontier, std::int64_t i, Candidates& candidates) const {
    const std::int64_t node = frontier.node(i);
    if (!relation_.excluded->may_touch(node)) {
      return false;
    }
    const std::int64_t tree = frontier.tree(i);
    const EdgeSpan edges = edges_of(relation_.adjacency, node);
    candidates.span = edges;
    candidates.excluded.clear();
    relation_.excluded->for_each(tree, edges, [&](std::int64_t position) {
      candidates.excluded.push_back(static_cast<std::uint32_t>(position - edges.begin));
    });
    if (candidates.excluded.empty()) {
      return false;
    }
    if (relation_.times != nullptr) {
      order_by_time(request_.tree_times[static_cast<std::size_t>(tree)], candidates);
    }
    return true;
  }

  // Positions become places in the order of time, those not later than `time`.
  void order_by_time(std::int64_t time, Candidates& candidates) const {
    const TimeOrder& order = order_at(candidates.span.begin);
    const std::int64_t begin = in_its_arrays(candidates.span.begin);
    candidates.span.degree = order.count_until(begin, candidates.span.degree, time);
    std::vector<std::uint32_t> places;
    for (std::int64_t place = 0; place < candidates.span.degree; ++place) {
      const std::int64_t position = place + order.shifts()[begin + place];
      if (std::binary_search(candidates.excluded.begin(), candidates.excluded.end(),
                             static_cast<std::uint32_t>(position))) {
        places.push_back(static_cast<std::uint32_t>(place));
      }
    }
    candidates.excluded = std::move(places);
  }

  std::int64_t latest(const Frontier& frontier, std::int64_t remaining) const {
    const bool is_last = relation_.times != nullptr && request_.take_last && frontier.wanted >= 0;
    return is_last ? std::min(remaining, frontier.wanted) : remaining;
  }

  // Positions chosen of a narrowed span are ranks among the remaining edges.
  void choose_ranks(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> room) {
    plain_->choose(frontier, begin, end, room);
    std::int64_t* out = room.data();
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t count = frontier.count(i);
      if (count > 0 && find_candidates(frontier, i, candidates_)) {
        for (std::int64_t edge = 0; edge < count; ++edge) {
          out[edge] = candidates_.span.begin + offset_of_rank(out[edge] - candidates_.span.begin);
        }
      }
      out += count;
    }
  }

  void choose_remaining(const Frontier& frontier, std::int64_t i, std::int64_t* out) {
    if (relation_.weights != nullptr) {
      weighted_.prepare(frontier.draws(i), weighted_edges(), frontier.wanted, frontier.replace);
      weighted_.choose(out);
      return;
    }
    if (relation_.weight_sums != nullptr) {
      choose_summed(frontier, i, out);
      return;
    }
    const std::int64_t remaining = candidates_.remaining();
    const std::int64_t choosable = latest(frontier, remaining);
    const EdgeSpan ranks{remaining - choosable, choosable};
    uniform_.choose(frontier.draws(i), ranks, frontier.wanted, frontier.replace, out);
    for (std::int64_t* each = out; each != out + frontier.count(i); ++each) {
      const std::int64_t place = candidates_.span.begin + offset_of_rank(*each);
      *each = place + order_at(place).shifts()[in_its_arrays(place)];
    }
  }

  void choose_summed(const Frontier& frontier, std::int64_t i, std::int64_t* out) {
    SummedEdges edges = summed_edges(relation_, candidates_.span);
    edges.excluded = candidates_.excluded;
    summed_.choose(frontier.draws(i), edges, frontier.wanted, frontier.replace, out);
    for (std::int64_t* each = out; each != out + frontier.count(i); ++each) {
      *each += candidates_.span.begin + edges.shifts[*each];
    }
  }

  // The offset of the remaining edge number `rank`.
  std::int64_t offset_of_rank(std::int64_t rank) const {
    for (const std::uint32_t excluded : candidates_.excluded) {
      if (excluded > rank) {
        break;
      }
      ++rank;
    }
    return rank;
  }

  WeightedEdges weighted_edges() const {
    const EdgeSpan span = candidates_.span;
    const AliasTables& tables = is_in_overlay(span.begin) ? *relation_.overlay_weights : *relation_.weights;
    const std::int64_t begin = in_its_arrays(span.begin);
    return {span, tables.entries() + begin, tables.weights() + begin, candidates_.excluded};
  }

  const TimeOrder& order_at(std::int64_t place) const {
    return is_in_overlay(place) ? *relation_.overlay_times : *relation_.times;
  }

  bool is_in_overlay(std::int64_t position) const {
    return relation_.adjacency.overlay != nullptr && position >= relation_.adjacency.num_edges;
  }

  // Where a position is in the arrays it is in: those of the base or of the overlay.
  std::int64_t in_its_arrays(std::int64_t position) const {
    return is_in_overlay(position) ? position - relation_.adjacency.num_edges : position;
  }

  std::unique_ptr<NeighborChooser> plain_;
  const NeighborRequest& request_;
  const Relation& relation_;
  Candidates candidates_;
  EdgeChooser uniform_;
  WeightedChooser weighted_;
  SummedEdgeChooser summed_;
};

}  // namespace

std::unique_ptr<NeighborChooser> make_excluding_chooser(std::unique_ptr<NeighborChooser> plain,
                                                        const NeighborRequest& request, const Relation& relation) {
  return std::make_unique<ExcludingChooser>(std::move(plain), request, relation);
}

}  // namespace graphbox
