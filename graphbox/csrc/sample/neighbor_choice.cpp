#include "sample/neighbor_choice.h"

#include <utility>

#include "sample/excluding_choice.h"
#include "sample/lane_choice.h"
#include "sample/weighted_choice.h"

namespace graphbox {
namespace {

constexpr std::int64_t kRun = 8;  // positions that are written at a time
constexpr std::int64_t kRareShare = 16;  // what fewer nodes than one in so many do can be predicted
constexpr std::int64_t kShiftDistance = 32;  // how far ahead of its use the memory line of an edge is asked for

// Writes begin, begin + 1 ... `count` of them, eight at a time where `room` allows that.
GRAPHBOX_INLINE void write_all(std::int64_t begin, std::int64_t count, std::int64_t room, std::int64_t* out) {
  if (count + kRun <= room) [[likely]] {
    std::int64_t written = 0;
    do {
      for (std::int64_t i = 0; i < kRun; ++i) {
        out[written + i] = begin + written + i;
      }
      written += kRun;
    } while (written < count);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = begin + i;
  }
}

// Every edge equally likely.
class UniformChooser : public NeighborChooser {
 public:
  void choose(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> room) override {
    if (lane_chooser_ != nullptr && frontier.wanted > 0 && frontier.wanted <= kMostLaneChoices) {
      choose_in_lanes(frontier, begin, end, room);
      return;
    }
    std::int64_t* out = room.data();
    for (std::int64_t i = begin; i < end; ++i) {
      chooser_.choose(frontier.draws(i), frontier.spans[i], frontier.wanted, frontier.replace, out);
      out += frontier.count(i);
    }
  }

 private:
  // Nodes that must draw wait until the lanes are full.
  void choose_in_lanes(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> room) {
    const std::int64_t least = frontier.replace ? 0 : frontier.wanted;  // nodes with up to so many edges give all
    std::int64_t drawing = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      drawing += frontier.spans[i].degree > least ? 1 : 0;
    }
    if (drawing * kRareShare < end - begin) {
      choose_in_lanes<true>(frontier, begin, end, room, least);
    } else {
      choose_in_lanes<false>(frontier, begin, end, room, least);
    }
  }

  // Unless it is rare that nodes draw, which do cannot be predicted, so little branches on it: all nodes are written as
  // if they gave their first edges, and as if they waited.
  template <bool kRare>
  void choose_in_lanes(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> room,
                       std::int64_t least) {
    std::int64_t* out = room.data();
    std::int64_t* const room_end = out + room.size();
    std::uint32_t waiting = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const EdgeSpan span = frontier.spans[i];
      const std::int64_t count = frontier.count(i);
      const bool draws = span.degree > least;
      write_all(span.begin, draws ? 0 : count, room_end - out, out);
      if constexpr (kRare) {
        if (!draws) [[likely]] {
          out += count;
          continue;
        }
      }
      if (span.degree >= std::int64_t{UINT32_MAX}) [[unlikely]] {
        chooser_.choose(frontier.draws(i), span, frontier.wanted, frontier.replace, out);
        out += count;
        continue;
      }
      const std::uint64_t position = frontier.draw_position(i);
      nodes_.degree[waiting] = static_cast<std::uint32_t>(span.degree);
      nodes_.position_low[waiting] = static_cast<std::uint32_t>(position);
      nodes_.position_high[waiting] = static_cast<std::uint32_t>(position >> 32);
      numbers_[waiting] = i;
      out_[waiting] = out;
      waiting += draws ? 1U : 0U;
      out += count;
      if (waiting == kLanes) {
        flush(frontier, waiting);
        waiting = 0;
      }
    }
    if (waiting > 0) {
      for (std::uint32_t lane = waiting; lane < kLanes; ++lane) {
        nodes_.degree[lane] = nodes_.degree[0];
        nodes_.position_low[lane] = nodes_.position_low[0];
        nodes_.position_high[lane] = nodes_.position_high[0];
      }
      flush(frontier, waiting);
    }
  }

  void flush(const Frontier& frontier, std::uint32_t lanes) {
    const auto count = static_cast<std::uint32_t>(frontier.wanted);
    const std::uint32_t rejected = lane_chooser_(
        {frontier.key, frontier.hop, frontier.relation, count, frontier.replace}, nodes_, offsets_);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const EdgeSpan span = frontier.spans[numbers_[lane]];
      std::int64_t* const out = out_[lane];
      if ((rejected >> lane & 1) != 0) [[unlikely]] {
        chooser_.choose(frontier.draws(numbers_[lane]), span, frontier.wanted, frontier.replace, out);
        continue;
      }
      for (std::uint32_t draw = 0; draw < count; ++draw) {
        out[draw] = span.begin + offsets_.values[draw][lane];
      }
    }
  }

  EdgeChooser chooser_;
  const LaneChooser lane_chooser_ = lane_choosers().empty() ? nullptr : lane_choosers().front();
  LaneNodes nodes_;
  LaneOffsets offsets_;
  std::int64_t numbers_[kLanes];  // of the waiting nodes in the frontier
  std::int64_t* out_[kLanes];
};

// In proportion to the edges' weights.
class WeightChooser : public NeighborChooser {
 public:
  explicit WeightChooser(const Relation& relation) : relation_(relation) {}

  void choose(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> room) override {
    std::int64_t* out = room.data();
    std::int64_t next = begin;
    const auto choose_next = [&] {
      chooser_.choose(out);
      out += frontier.count(next++);
    };
    for (std::int64_t i = begin; i < end; ++i) {
      while (chooser_.is_full()) {
        choose_next();
      }
      chooser_.prepare(frontier.draws(i), weighted_edges(frontier.spans[i]), frontier.wanted, frontier.replace);
    }
    while (next < end) {
      choose_next();
    }
  }

 private:
  WeightedEdges weighted_edges(EdgeSpan span) const {
    if (span.begin >= relation_.adjacency.num_edges && relation_.overlay_weights != nullptr) {
      const std::int64_t offset = span.begin - relation_.adjacency.num_edges;
      return {span, relation_.overlay_weights->entries() + offset, relation_.overlay_weights->weights() + offset};
    }
    return {span, relation_.weights->entries() + span.begin, relation_.weights->weights() + span.begin};
  }

  const Relation& relation_;
  WeightedChooser chooser_;
};

// Of the edges that are not later than the time of the node's tree: any, or the latest. Narrowed spans are places in
// the order of time.
class TimeChooser : public NeighborChooser {
 public:
  TimeChooser(const NeighborRequest& request, const Relation& relation)
      : tree_times_(request.tree_times.data()), take_last_(request.take_last), relation_(relation) {}

  void narrow(const Frontier& frontier, std::int64_t begin, std::int64_t end, EdgeSpan* spans) const override {
    for (std::int64_t i = begin; i < end; ++i) {
      EdgeSpan& span = spans[i];
      const Part part = part_of(span.begin);
      span.degree = part.order->count_until(span.begin - part.offset, span.degree, tree_times_[frontier.tree(i)]);
      if (take_last_ && frontier.wanted >= 0 && span.degree > frontier.wanted) {
        span.begin += span.degree - frontier.wanted;
        span.degree = frontier.wanted;
      }
    }
  }

  void choose(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> room) override {
    std::int64_t* const out = room.data();
    std::int64_t drawn = 0;
    std::int64_t placed = 0;
    const auto place_until = [&](std::int64_t last) {
      for (; placed < last; ++placed) {
        out[placed] += *shift_at(out[placed]);
      }
    };
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t last = drawn + frontier.count(i);
      chooser_.choose(frontier.draws(i), frontier.spans[i], frontier.wanted, frontier.replace, out + drawn);
      for (; drawn < last; ++drawn) {
        prefetch(shift_at(out[drawn]));
      }
      place_until(drawn - kShiftDistance);
    }
    place_until(drawn);
  }

 protected:
  // The base or the overlay, and the position at which that begins.
  struct Part {
    const TimeOrder* order;
    std::int64_t offset;
  };

  GRAPHBOX_INLINE Part part_of(std::int64_t position) const {
    if (position >= relation_.adjacency.num_edges && relation_.overlay_times != nullptr) {
      return {relation_.overlay_times, relation_.adjacency.num_edges};
    }
    return {relation_.times, 0};
  }

  GRAPHBOX_INLINE const std::int32_t* shift_at(std::int64_t place) const {
    const Part part = part_of(place);
    return part.order->shifts() + (place - part.offset);
  }

 private:
  const std::int64_t* tree_times_;
  bool take_last_;
  EdgeChooser chooser_;

 protected:
  const Relation& relation_;
};

// Of these edges in proportion to their weights.
class WeightAndTimeChooser : public TimeChooser {
 public:
  using TimeChooser::TimeChooser;

  void choose(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> room) override {
    std::int64_t* out = room.data();
    for (std::int64_t i = begin; i < end; ++i) {
      const EdgeSpan span = frontier.spans[i];
      const std::int64_t count = frontier.count(i);
      chooser_.choose(frontier.draws(i), summed_edges(relation_, span), frontier.wanted, frontier.replace, out);
      for (std::int64_t j = 0; j < count; ++j) {
        out[j] += span.begin;
        out[j] += *shift_at(out[j]);
      }
      out += count;
    }
  }

 private:
  SummedEdgeChooser chooser_;
};

std::unique_ptr<NeighborChooser> make_plain_chooser(const NeighborRequest& request, const Relation& relation) {
  if (relation.weight_sums != nullptr) {
    return std::make_unique<WeightAndTimeChooser>(request, relation);
  }
  if (relation.times != nullptr) {
    return std::make_unique<TimeChooser>(request, relation);
  }
  if (relation.weights != nullptr) {
    return std::make_unique<WeightChooser>(relation);
  }
  return std::make_unique_for_overwrite<UniformChooser>();  // it has room that needs no zeros
}

}  // namespace

SummedEdges summed_edges(const Relation& relation, EdgeSpan span) {
  const bool in_overlay = relation.overlay_weight_sums != nullptr && span.begin >= relation.adjacency.num_edges;
  const WeightSums& sums = in_overlay ? *relation.overlay_weight_sums : *relation.weight_sums;
  const TimeOrder& order = in_overlay ? *relation.overlay_times : *relation.times;
  const std::int64_t begin = in_overlay ? span.begin - relation.adjacency.num_edges : span.begin;
  return {span.degree, sums.sums() + begin, sums.weights() + begin, order.shifts() + begin};
}

void NeighborChooser::narrow(const Frontier&, std::int64_t, std::int64_t, EdgeSpan*) const {}

std::unique_ptr<NeighborChooser> make_chooser(const NeighborRequest& request, const Relation& relation) {
  std::unique_ptr<NeighborChooser> plain = make_plain_chooser(request, relation);
  if (relation.excluded == nullptr) {
    return plain;
  }
  return make_excluding_chooser(std::move(plain), request, relation);
}

}  // namespace graphbox
