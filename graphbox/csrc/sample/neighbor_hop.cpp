#include "sample/neighbor_hop.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "parallel/parallel_for.h"
#include "sample/neighbor_choice.h"

namespace graphbox {
namespace {

// Prefetch distances of memory lines, in nodes or edges. A random line takes some 100 ns, a step some 5: far enough to
// cover that, near enough that the lines are still there when their turn comes.
constexpr std::int64_t kIndptrDistance = 64;
constexpr std::int64_t kIndicesDistance = 64;
constexpr std::int64_t kMapDistance = 32;

constexpr std::int64_t kRun = 8;                  // columns that are written at a time
constexpr std::int64_t kStrip = 16;               // edges that go through a stage at a time
constexpr std::int64_t kBlockNodes = 128;         // frontier nodes whose edges are chosen at a time
constexpr std::int64_t kParallelFrontier = 4096;  // smaller frontiers are not worth waking a thread

// kLive: the relation has an overlay; kDisjoint: each seed has a tree.
template <typename Index, bool kLive, bool kDisjoint>
class RelationHop {
 public:
  RelationHop(const NeighborRequest& request, int relation, int hop, BatchNodes& source, const BatchNodes& target,
              const std::optional<HopLists>& found, SampledEdges& out)
      : request_(request),
        relation_(request.relations[static_cast<std::size_t>(relation)]),
        adjacency_(relation_.adjacency),
        source_(source),
        target_(target),
        frontier_size_(target.frontier_end - target.frontier_begin),
        first_target_(target.frontier_begin),
        threads_(frontier_size_ >= kParallelFrontier ? request.threads : 1),
        is_found_(found.has_value()),
        lists_(found.value_or(HopLists{})),
        out_(out) {
    if constexpr (sizeof(Index) == 4) {
      indices_ = adjacency_.narrow_indices;
    } else {
      indices_ = adjacency_.wide_indices;
    }
    frontier_.wanted = relation_.num_neighbors[static_cast<std::size_t>(hop)];
    frontier_.replace = request.replace;
    frontier_.key = request.key;
    frontier_.hop = static_cast<std::uint32_t>(hop);
    frontier_.relation = static_cast<std::uint32_t>(relation);
    look_at_target();
  }

  void run() {
    const std::int64_t before = out_.rows.size();
    if (frontier_.wanted != 0 && frontier_size_ > 0 && (kLive || adjacency_.num_edges > 0) &&
        !(is_found_ && lists_.is_empty())) {
      chooser_ = make_chooser(request_, relation_);
      find_spans();
      reserve(before);
      std::visit([&](auto& map) { sample(*map, before); }, source_.map);
    }
    out_.edges_per_hop.push_back(out_.rows.size() - before);
  }

 private:
  // Positions in the output arrays up to which edges are chosen, their neighbours asked for, read, and given positions.
  // Each stage asks for the memory line that the next will need and runs ahead of it by a fixed distance.
  struct Cursor {
    explicit Cursor(std::int64_t begin) : chosen(begin), asked(begin), read(begin), inserted(begin) {}
    std::int64_t chosen;
    std::int64_t asked;
    std::int64_t read;
    std::int64_t inserted;
  };

  void look_at_target() {
    frontier_.nodes = target_.out->nodes.data() + first_target_;
    if constexpr (kDisjoint) {
      frontier_.trees = target_.out->trees.data() + first_target_;
      frontier_.numbers = target_.numbers.data() + first_target_;
    }
  }

  GRAPHBOX_INLINE const Index* neighbor(std::int64_t position) const {
    if constexpr (kLive) {
      return neighbor_at(adjacency_, indices_, position);
    }
    return indices_ + position;
  }

  // Reads where the edges of each frontier node are; counts how many each chunk will sample.
  void find_spans() {
    const std::int64_t chunks = (frontier_size_ + kHopChunkNodes - 1) / kHopChunkNodes;
    if (!is_found_) {
      spans_.resize(frontier_size_);
      rows_.resize(frontier_size_);
      lists_.spans = spans_.data();
      lists_.rows = rows_.data();
      lists_.begins.resize(static_cast<std::size_t>(chunks));
      lists_.ends.resize(static_cast<std::size_t>(chunks));
    }
    frontier_.spans = lists_.spans;
    frontier_.rows = lists_.rows;
    chunk_offsets_.assign(static_cast<std::size_t>(chunks) + 1, 0);
    parallel_for(threads_, chunks, [&](std::int64_t chunk) {
      const auto number = static_cast<std::size_t>(chunk);
      if (!is_found_) {
        const std::int64_t first = chunk * kHopChunkNodes;
        lists_.begins[number] = first;
        lists_.ends[number] = find_spans_of(first, std::min(first + kHopChunkNodes, frontier_size_));
      }
      chooser_->narrow(frontier_, lists_.begins[number], lists_.ends[number], lists_.spans);
      std::int64_t count = 0;
      for (std::int64_t i = lists_.begins[number]; i < lists_.ends[number]; ++i) {
        count += frontier_.count(i);
      }
      chunk_offsets_[number + 1] = count;
    });
    for (std::size_t chunk = 1; chunk < chunk_offsets_.size(); ++chunk) {
      chunk_offsets_[chunk] += chunk_offsets_[chunk - 1];
    }
  }

  // Of the nodes [begin, end) those with edges; returns the end of what was found.
  std::int64_t find_spans_of(std::int64_t begin, std::int64_t end) {
    EdgeSpan* const spans = spans_.data();
    std::uint32_t* const rows = rows_.data();
    std::int64_t found = begin;
    for_each_span(begin, end, [&](std::int64_t i, EdgeSpan span) {
      spans[found] = span;
      rows[found] = static_cast<std::uint32_t>(i);
      found += span.degree > 0 ? 1 : 0;
    });
    return found;
  }

  template <typename Visit>
  GRAPHBOX_INLINE void for_each_span(std::int64_t begin, std::int64_t end, Visit visit) const {
    const std::int64_t* const nodes = frontier_.nodes;
    if constexpr (kLive) {
      // Where a row's bounds stand is itself looked up, so that is done ahead.
      std::array<RowBounds, kIndptrDistance> ahead;
      const auto look_up = [&](std::int64_t i) {
        adjacency_.overlay->prefetch_row(nodes[std::min(i + kIndptrDistance, frontier_size_ - 1)]);
        RowBounds& place = ahead[static_cast<std::size_t>(i % kIndptrDistance)];
        place = bounds_of(adjacency_, nodes[i]);
        prefetch(place.bounds);
        prefetch(place.bounds + 1);  // of eight rows one ends in another line than it begins in
      };
      for (std::int64_t i = begin; i < std::min(begin + kIndptrDistance, end); ++i) {
        look_up(i);
      }
      for (std::int64_t i = begin; i < end; ++i) {
        const RowBounds place = ahead[static_cast<std::size_t>(i % kIndptrDistance)];
        visit(i, edges_between(adjacency_, place, nodes[i]));
        if (i + kIndptrDistance < end) {
          look_up(i + kIndptrDistance);
        }
      }
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t* const ahead = adjacency_.indptr + nodes[std::min(i + kIndptrDistance, frontier_size_ - 1)];
        prefetch(ahead);
        prefetch(ahead + 1);  // of eight rows one ends in another line than it begins in
        visit(i, edges_of(adjacency_, nodes[i]));
      }
    }
  }

  void reserve(std::int64_t before) {
    const std::int64_t edges = before + chunk_offsets_.back();
    out_.rows.resize(edges);
    out_.cols.resize(edges);
    out_.edge_ids.resize(edges);
    std::int64_t nodes = source_.out->nodes.size() + chunk_offsets_.back();
    if (!kDisjoint && source_.num_nodes >= 0) {
      nodes = std::min(nodes, source_.out->nodes_per_hop.front() + source_.num_nodes);
    }
    check_batch_size(nodes);
    source_.out->nodes.reserve(nodes + 1);  // insert_until writes one past the last
    if constexpr (kDisjoint) {
      source_.out->trees.reserve(nodes + 1);
      source_.numbers.reserve(nodes + 1);
      trees_ = target_.out->trees.data();
    }
    look_at_target();  // its arrays may have moved: source and target can be one type
  }

  template <typename Map>
  void sample(Map& map, std::int64_t before) {
    const auto chunks = static_cast<std::int64_t>(chunk_offsets_.size()) - 1;
    const std::int64_t end = before + chunk_offsets_.back();
    if (threads_ <= 1) {
      Cursor cursor(before);
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        sample_chunk<true>(map, *chooser_, chunk, end, cursor);
      }
      finish<true>(map, cursor);
      return;
    }
    parallel_for(threads_, chunks, [&](std::int64_t chunk) {
      const std::unique_ptr<NeighborChooser> chooser = make_chooser(request_, relation_);
      Cursor cursor(before + chunk_offsets_[static_cast<std::size_t>(chunk)]);
      sample_chunk<false>(map, *chooser, chunk, before + chunk_offsets_[static_cast<std::size_t>(chunk) + 1], cursor);
      finish<false>(map, cursor);
    });
    // Positions go by first appearance in the order of edges, so this part has one order and one thread.
    for (std::int64_t i = before; i < end; i += kStrip) {
      const std::int64_t ahead = std::min(i + kMapDistance + kStrip, end);
      for (std::int64_t j = i + kMapDistance; j < ahead; ++j) {
        map.prefetch(out_.rows[j]);
      }
      insert(map, i, std::min(kStrip, end - i));
    }
  }

  // `room` is where what this thread may write ends.
  template <bool kInsert, typename Map>
  void sample_chunk(Map& map, NeighborChooser& chooser, std::int64_t chunk, std::int64_t room, Cursor& cursor) {
    const std::int64_t end = lists_.ends[static_cast<std::size_t>(chunk)];
    for (std::int64_t begin = lists_.begins[static_cast<std::size_t>(chunk)]; begin < end; begin += kBlockNodes) {
      choose_block(chooser, begin, std::min(begin + kBlockNodes, end), room, cursor);
      follow<kInsert>(map, cursor);
    }
  }

  void choose_block(NeighborChooser& chooser, std::int64_t begin, std::int64_t end, std::int64_t room, Cursor& cursor) {
    chooser.choose(frontier_, begin, end,
                   std::span(out_.edge_ids.data() + cursor.chosen, static_cast<std::size_t>(room - cursor.chosen)));
    std::int64_t* const cols = out_.cols.data();
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t col = first_target_ + frontier_.rows[i];
      const std::int64_t last = cursor.chosen + frontier_.count(i);
      if (last + kRun <= room) [[likely]] {
        // More than there are, which the next node overwrites: few loops end at another count than the one before.
        for (std::int64_t j = cursor.chosen; j < last; j += kRun) {
          std::fill_n(cols + j, kRun, col);
        }
      } else {
        std::fill(cols + cursor.chosen, cols + last, col);
      }
      cursor.chosen = last;
    }
  }

  // Takes chosen edges through the later stages, as many as those may have on their way left.
  template <bool kInsert, typename Map>
  void follow(Map& map, Cursor& cursor) {
    while (cursor.asked + kStrip <= cursor.chosen) {
      ask(cursor.asked, kStrip);
      cursor.asked += kStrip;
      if (cursor.asked - cursor.read > kIndicesDistance) {
        read(map, cursor.read, kStrip);
        cursor.read += kStrip;
      }
      if (kInsert && cursor.read - cursor.inserted > kMapDistance) {
        insert(map, cursor.inserted, kStrip);
        cursor.inserted += kStrip;
      }
    }
  }

  template <bool kInsert, typename Map>
  void finish(Map& map, Cursor& cursor) {
    ask(cursor.asked, cursor.chosen - cursor.asked);
    read(map, cursor.read, cursor.chosen - cursor.read);
    if constexpr (kInsert) {
      insert(map, cursor.inserted, cursor.chosen - cursor.inserted);
    }
  }

  GRAPHBOX_INLINE void ask(std::int64_t begin, std::int64_t count) const {
    const std::int64_t* const edge_ids = out_.edge_ids.data() + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      prefetch(neighbor(edge_ids[i]));
    }
  }

  template <typename Map>
  GRAPHBOX_INLINE void read(const Map& map, std::int64_t begin, std::int64_t count) {
    const std::int64_t* const edge_ids = out_.edge_ids.data() + begin;
    std::int64_t* const rows = out_.rows.data() + begin;
    const std::int64_t* const cols = out_.cols.data() + begin;
    const std::int64_t unknown = kDisjoint ? source_.nodes_per_tree : INT64_MAX;
    const auto limit = static_cast<std::uint64_t>(source_.num_nodes >= 0 ? source_.num_nodes : unknown);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t node = *neighbor(edge_ids[i]);
      if (static_cast<std::uint64_t>(node) >= limit) [[unlikely]] {
        throw_bad_neighbor(adjacency_, edge_ids[i], node, static_cast<std::int64_t>(limit));
      }
      if constexpr (kDisjoint) {
        node += trees_[cols[i]] * source_.nodes_per_tree;
      }
      rows[i] = node;
      map.prefetch(node);
    }
  }

  template <typename Map>
  GRAPHBOX_INLINE void insert(Map& map, std::int64_t begin, std::int64_t count) {
    std::int64_t* const rows = out_.rows.data() + begin;
    const std::int64_t* const cols = out_.cols.data() + begin;
    SampledNodes& sampled = *source_.out;
    std::int64_t* const nodes = sampled.nodes.data();
    auto next = static_cast<std::uint32_t>(sampled.nodes.size());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t node = rows[i];
      const std::uint32_t position = map.find_or_insert(node, next);
      rows[i] = position;
      if constexpr (kDisjoint) {
        const std::int64_t tree = trees_[cols[i]];
        std::uint32_t& nodes_of_tree = source_.nodes_of_tree[static_cast<std::size_t>(tree)];
        nodes[next] = node - tree * source_.nodes_per_tree;
        sampled.trees.data()[next] = tree;
        source_.numbers.data()[next] = nodes_of_tree;
        nodes_of_tree += position == next ? 1U : 0U;
      } else {
        nodes[next] = node;
      }
      next += position == next ? 1U : 0U;
    }
    sampled.nodes.resize(next);
    if constexpr (kDisjoint) {
      sampled.trees.resize(next);
      source_.numbers.resize(next);
    }
  }

  const NeighborRequest& request_;
  const Relation& relation_;
  const Adjacency& adjacency_;
  const Index* indices_ = nullptr;
  BatchNodes& source_;
  const BatchNodes& target_;
  Frontier frontier_;
  std::unique_ptr<NeighborChooser> chooser_;  // of the calling thread
  const std::int64_t* trees_ = nullptr;  // of the nodes of the target type
  std::int64_t frontier_size_;
  std::int64_t first_target_;
  int threads_;
  bool is_found_;
  HopLists lists_;
  SampledEdges& out_;
  // Those of lists_, unless they were found before.
  PooledArray<EdgeSpan> spans_;
  PooledArray<std::uint32_t> rows_;
  std::vector<std::int64_t> chunk_offsets_;  // where in the sampled edges each chunk begins
};

template <typename Index, bool kLive>
void sample_hop_as(const NeighborRequest& request, int relation, int hop, BatchNodes& source, const BatchNodes& target,
                   const std::optional<HopLists>& found, SampledEdges& out) {
  if (request.disjoint) {
    RelationHop<Index, kLive, true>(request, relation, hop, source, target, found, out).run();
  } else {
    RelationHop<Index, kLive, false>(request, relation, hop, source, target, found, out).run();
  }
}

}  // namespace

void sample_hop(const NeighborRequest& request, int relation, int hop, BatchNodes& source, const BatchNodes& target,
                const std::optional<HopLists>& found, SampledEdges& out) {
  const Adjacency& adjacency = request.relations[static_cast<std::size_t>(relation)].adjacency;
  const bool live = adjacency.overlay != nullptr;
  if (adjacency.wide_indices != nullptr) {
    live ? sample_hop_as<std::int64_t, true>(request, relation, hop, source, target, found, out)
         : sample_hop_as<std::int64_t, false>(request, relation, hop, source, target, found, out);
  } else {
    live ? sample_hop_as<std::int32_t, true>(request, relation, hop, source, target, found, out)
         : sample_hop_as<std::int32_t, false>(request, relation, hop, source, target, found, out);
  }
}

}  // namespace graphbox
