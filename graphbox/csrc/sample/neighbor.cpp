#include "sample/neighbor.h"

#include <algorithm>
#include <memory>
#include <string>
#include <variant>

#include "parallel/parallel_for.h"
#include "sample/choice.h"
#include "sample/node_map.h"
#include "sample/weighted_choice.h"

namespace graphbox {
namespace {

// How far ahead of their use memory lines are asked for, in nodes or edges. A random line takes some 100 ns, a step
// some 5: far enough to cover that, near enough that the lines are still there when their turn comes.
constexpr std::int64_t kIndptrDistance = 24;
constexpr std::int64_t kIndicesDistance = 32;
constexpr std::int64_t kMapDistance = 16;

constexpr std::int64_t kChunkNodes = 1024;        // frontier nodes that one thread takes at a time
constexpr std::int64_t kParallelFrontier = 4096;  // smaller frontiers are not worth waking a thread
constexpr std::int64_t kChunkEdges = 16384;       // the same for edges whose values are read
constexpr std::int64_t kParallelEdges = 65536;

// A borrowed node map, given back to its pool.
template <typename Map>
class BorrowedMap {
 public:
  explicit BorrowedMap(std::int64_t num_nodes) : map_(NodeMapPool<Map>::shared().take(num_nodes)) {}
  BorrowedMap(BorrowedMap&&) = default;
  BorrowedMap& operator=(BorrowedMap&&) = default;
  BorrowedMap(const BorrowedMap&) = delete;
  BorrowedMap& operator=(const BorrowedMap&) = delete;
  ~BorrowedMap() {
    if (map_) {
      NodeMapPool<Map>::shared().give(std::move(map_));
    }
  }
  Map& operator*() const { return *map_; }

 private:
  std::unique_ptr<Map> map_;
};

using AnyMap = std::variant<BorrowedMap<DirectNodeMap>, BorrowedMap<HashNodeMap>>;

AnyMap borrow_map(std::int64_t num_nodes) {
  if (num_nodes >= 0 && num_nodes <= kLargestDirectMap) {
    return BorrowedMap<DirectNodeMap>(num_nodes);
  }
  return BorrowedMap<HashNodeMap>(num_nodes);
}

// The nodes of one type while the batch grows.
struct TypeState {
  AnyMap map;
  SampledNodes* out;
  std::int64_t num_nodes;  // -1: unknown
  std::int64_t frontier_begin = 0;
  std::int64_t frontier_end = 0;
  // Of disjoint samples: a node of a tree is tree * nodes_per_tree + node in the map.
  std::int64_t first_tree = 0;  // of the seeds
  std::int64_t nodes_per_tree = 0;
  PooledArray<std::uint32_t> numbers{};       // of each node within its tree and type
  std::vector<std::uint32_t> nodes_of_tree{};  // how many nodes of this type each tree has
};

void check_batch_size(std::int64_t nodes) {
  if (nodes > std::int64_t{UINT32_MAX}) {
    throw Error(ErrorKind::kDoesNotFit,
                "a batch can hold at most 2^32 - 1 nodes of a type, this one may reach " + std::to_string(nodes), {},
                "ask for fewer seeds or fewer neighbours");
  }
}

// Gives every type room for `trees` trees.
void start_trees(TypeState& type, std::int64_t first_tree, std::int64_t trees) {
  type.first_tree = first_tree;
  type.nodes_per_tree = type.num_nodes >= 0 ? type.num_nodes : INT64_MAX / std::max<std::int64_t>(trees, 1);
  if (trees > 0 && type.nodes_per_tree > INT64_MAX / trees) {
    throw Error(ErrorKind::kDoesNotFit,
                "disjoint samples need seeds times nodes below 2^63, received " + std::to_string(trees) +
                    " seeds and " + std::to_string(type.num_nodes) + " nodes",
                {}, "ask for fewer seeds");
  }
  type.nodes_of_tree.assign(static_cast<std::size_t>(trees), 0);
}

// The seeds of a disjoint sample: each the first node of its own tree.
void plant_seeds(TypeState& type) {
  auto& map = *std::get<BorrowedMap<HashNodeMap>>(type.map);
  const std::int64_t count = type.out->nodes.size();
  type.out->trees.resize(count);
  type.numbers.resize(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t tree = type.first_tree + i;
    map.find_or_insert(tree * type.nodes_per_tree + type.out->nodes[i], static_cast<std::uint32_t>(i));
    type.out->trees[i] = tree;
    type.numbers[i] = 0;
    type.nodes_of_tree[static_cast<std::size_t>(tree)] = 1;
  }
}

void insert_seeds(TypeState& type, std::span<const std::int64_t> seeds, bool disjoint) {
  const auto count = static_cast<std::int64_t>(seeds.size());
  check_batch_size(count);
  type.out->nodes.resize(count);
  std::visit(
      [&](auto& borrowed) {
        auto& map = *borrowed;
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t seed = seeds[static_cast<std::size_t>(i)];
          if (seed < 0 || (type.num_nodes >= 0 && seed >= type.num_nodes)) {
            throw Error(ErrorKind::kUsage,
                        "seeds must be node indices in [0, " +
                            (type.num_nodes >= 0 ? std::to_string(type.num_nodes) : std::string("2^63")) +
                            "), received " + std::to_string(seed) + " at position " + std::to_string(i),
                        "seeds");
          }
          if (!disjoint) {
            map.find_or_insert(seed, static_cast<std::uint32_t>(i));
          }
          type.out->nodes[i] = seed;
        }
      },
      type.map);
  if (disjoint) {
    plant_seeds(type);
  }
  type.frontier_end = count;
  type.out->nodes_per_hop.push_back(count);
}

// One hop of one relation; kLive: it has an overlay; kDisjoint: each seed has a tree.
template <typename Index, bool kLive, bool kDisjoint>
class RelationHop {
 public:
  RelationHop(const NeighborRequest& request, int relation, int hop, TypeState& source, const TypeState& target,
              SampledEdges& out)
      : relation_(request.relations[static_cast<std::size_t>(relation)]),
        adjacency_(relation_.adjacency),
        relation_number_(static_cast<std::uint32_t>(relation)),
        hop_(static_cast<std::uint32_t>(hop)),
        wanted_(relation_.num_neighbors[static_cast<std::size_t>(hop)]),
        replace_(request.replace),
        take_last_(request.take_last),
        tree_times_(request.tree_times.data()),
        key_(request.key),
        source_(source),
        target_(target),
        frontier_(target.out->nodes.data() + target.frontier_begin),
        frontier_size_(target.frontier_end - target.frontier_begin),
        first_target_(target.frontier_begin),
        threads_(frontier_size_ >= kParallelFrontier ? request.threads : 1),
        out_(out) {
    if constexpr (sizeof(Index) == 4) {
      indices_ = adjacency_.narrow_indices;
    } else {
      indices_ = adjacency_.wide_indices;
    }
  }

  void run() {
    const std::int64_t before = out_.rows.size();
    if (wanted_ != 0 && frontier_size_ > 0 && (kLive || adjacency_.num_edges > 0)) {
      find_spans();
      reserve(before);
      std::visit([&](auto& map) { sample(*map, before); }, source_.map);
    }
    out_.edges_per_hop.push_back(out_.rows.size() - before);
  }

 private:
  GRAPHBOX_INLINE const Index* neighbor(std::int64_t position) const {
    if constexpr (kLive) {
      return neighbor_at(adjacency_, indices_, position);
    }
    return indices_ + position;
  }

  // Reads where the edges of each frontier node are; counts how many each chunk will sample.
  void find_spans() {
    const std::int64_t chunks = (frontier_size_ + kChunkNodes - 1) / kChunkNodes;
    spans_.resize(frontier_size_);
    chunk_offsets_.assign(static_cast<std::size_t>(chunks) + 1, 0);
    parallel_for(threads_, chunks, [&](std::int64_t chunk) {
      const std::int64_t begin = chunk * kChunkNodes;
      const std::int64_t end = std::min(begin + kChunkNodes, frontier_size_);
      std::int64_t count = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        if (i + kIndptrDistance < frontier_size_) {
          prefetch_row(adjacency_, frontier_[i + kIndptrDistance]);
        }
        EdgeSpan span = edges_of(adjacency_, frontier_[i]);
        if constexpr (kDisjoint) {
          if (relation_.times != nullptr) {
            span = span_until(span, tree_times_[target_.out->trees[first_target_ + i]]);
          }
        }
        spans_[i] = span;
        count += choice_count(span.degree, wanted_, replace_);
      }
      chunk_offsets_[static_cast<std::size_t>(chunk) + 1] = count;
    });
    for (std::size_t chunk = 1; chunk < chunk_offsets_.size(); ++chunk) {
      chunk_offsets_[chunk] += chunk_offsets_[chunk - 1];
    }
  }

  // The places in the order of time of the edges that may be chosen at `time`.
  EdgeSpan span_until(EdgeSpan span, std::int64_t time) const {
    const TimeOrder& order = times_of(span.begin);
    const std::int64_t in_order = span.begin - offset_of(span.begin);
    span.degree = order.count_until(in_order, span.degree, time);
    if (take_last_ && wanted_ >= 0 && span.degree > wanted_) {
      span.begin += span.degree - wanted_;
      span.degree = wanted_;
    }
    return span;
  }

  GRAPHBOX_INLINE const TimeOrder& times_of(std::int64_t position) const {
    return kLive && position >= adjacency_.num_edges ? *relation_.overlay_times : *relation_.times;
  }

  // Where the arrays that `position` is in begin.
  GRAPHBOX_INLINE std::int64_t offset_of(std::int64_t position) const {
    return kLive && position >= adjacency_.num_edges ? adjacency_.num_edges : 0;
  }

  GRAPHBOX_INLINE const std::int32_t* shift_at(std::int64_t place) const {
    return times_of(place).shifts() + (place - offset_of(place));
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
    source_.out->nodes.reserve(nodes + 1);                  // insert_until writes one past the last
    if constexpr (kDisjoint) {
      source_.out->trees.reserve(nodes + 1);
      source_.numbers.reserve(nodes + 1);
      trees_ = target_.out->trees.data();
    }
    frontier_ = target_.out->nodes.data() + first_target_;  // may have moved: source and target can be one type
  }

  template <typename Map>
  void sample(Map& map, std::int64_t before) {
    const auto chunks = static_cast<std::int64_t>(chunk_offsets_.size()) - 1;
    const std::int64_t end = before + chunk_offsets_.back();
    if (threads_ <= 1) {
      Choosers choosers;
      Cursor cursor{before, before, before};
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        draw_chunk<true>(map, choosers, chunk, cursor);
      }
      read_until(map, cursor, end);
      insert_until(map, cursor, end);
      return;
    }
    parallel_for(threads_, chunks, [&](std::int64_t chunk) {
      Choosers choosers;
      const std::int64_t offset = before + chunk_offsets_[static_cast<std::size_t>(chunk)];
      Cursor cursor{offset, offset, offset};
      draw_chunk<false>(map, choosers, chunk, cursor);
      read_until(map, cursor, cursor.drawn);
    });
    // Positions go by first appearance in the order of edges, so this part has one order and one thread.
    Cursor cursor{end, end, before};
    insert_until(map, cursor, end);
  }

  // Positions in the output arrays up to which edges are chosen, their neighbours read, and those given positions.
  // Each stage asks for the memory line that the next will need and runs ahead of it by a fixed distance.
  struct Cursor {
    std::int64_t drawn;
    std::int64_t read;
    std::int64_t inserted;
  };

  struct Choosers {
    EdgeChooser uniform;
    WeightedChooser weighted;
  };

  template <bool kInsert, typename Map>
  void draw_chunk(Map& map, Choosers& choosers, std::int64_t chunk, Cursor& cursor) {
    const std::int64_t begin = chunk * kChunkNodes;
    const std::int64_t end = std::min(begin + kChunkNodes, frontier_size_);
    if constexpr (kDisjoint) {
      if (relation_.times != nullptr) {
        draw_temporal<kInsert>(map, choosers.uniform, begin, end, cursor);
        return;
      }
    }
    if (relation_.weights != nullptr) {
      draw_weighted<kInsert>(map, choosers.weighted, begin, end, cursor);
      return;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      choosers.uniform.choose(draws_of(i), spans_[i], wanted_, replace_, out_.edge_ids.data() + cursor.drawn);
      advance<kInsert>(map, i, cursor);
    }
  }

  // The lines of the alias tables are one stage more.
  template <bool kInsert, typename Map>
  void draw_weighted(Map& map, WeightedChooser& chooser, std::int64_t begin, std::int64_t end, Cursor& cursor) {
    std::int64_t next = begin;
    const auto choose_next = [&] {
      chooser.choose(out_.edge_ids.data() + cursor.drawn);
      advance<kInsert>(map, next++, cursor);
    };
    for (std::int64_t i = begin; i < end; ++i) {
      while (chooser.is_full()) {
        choose_next();
      }
      chooser.prepare(draws_of(i), weighted_edges(spans_[i]), wanted_, replace_);
    }
    while (next < end) {
      choose_next();
    }
  }

  // What is chosen are places in the order of time; going from them to positions is one stage more.
  template <bool kInsert, typename Map>
  void draw_temporal(Map& map, EdgeChooser& chooser, std::int64_t begin, std::int64_t end, Cursor& cursor) {
    std::int64_t* const edge_ids = out_.edge_ids.data();
    std::int64_t* const cols = out_.cols.data();
    std::int64_t placed = cursor.drawn;
    const auto place_until = [&](std::int64_t last) {
      for (; placed < last; ++placed) {
        edge_ids[placed] += *shift_at(edge_ids[placed]);
        prefetch(neighbor(edge_ids[placed]));
      }
    };
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t last = cursor.drawn + choice_count(spans_[i].degree, wanted_, replace_);
      chooser.choose(draws_of(i), spans_[i], wanted_, replace_, edge_ids + cursor.drawn);
      for (; cursor.drawn < last; ++cursor.drawn) {
        prefetch(shift_at(edge_ids[cursor.drawn]));
        cols[cursor.drawn] = first_target_ + i;
      }
      place_until(cursor.drawn - kIndicesDistance);
      read_until(map, cursor, placed - kIndicesDistance);
      if constexpr (kInsert) {
        insert_until(map, cursor, cursor.read - kMapDistance);
      }
    }
    place_until(cursor.drawn);
  }

  GRAPHBOX_INLINE DrawSequence draws_of(std::int64_t i) const {
    if constexpr (kDisjoint) {
      const auto tree = static_cast<std::uint64_t>(trees_[first_target_ + i]);
      return {key_, hop_, relation_number_, tree << 32 | target_.numbers[first_target_ + i]};
    }
    return {key_, hop_, relation_number_, static_cast<std::uint64_t>(frontier_[i])};
  }

  WeightedEdges weighted_edges(EdgeSpan span) const {
    if (kLive && span.begin >= adjacency_.num_edges) {
      const std::int64_t offset = span.begin - adjacency_.num_edges;
      return {span, relation_.overlay_weights->entries() + offset, relation_.overlay_weights->weights() + offset};
    }
    return {span, relation_.weights->entries() + span.begin, relation_.weights->weights() + span.begin};
  }

  // The edges of the i-th frontier node are chosen: asks for their neighbours, and lets the later stages follow.
  template <bool kInsert, typename Map>
  GRAPHBOX_INLINE void advance(Map& map, std::int64_t i, Cursor& cursor) {
    const std::int64_t end = cursor.drawn + choice_count(spans_[i].degree, wanted_, replace_);
    const std::int64_t* const edge_ids = out_.edge_ids.data();
    std::int64_t* const cols = out_.cols.data();
    for (std::int64_t j = cursor.drawn; j < end; ++j) {
      prefetch(neighbor(edge_ids[j]));
      cols[j] = first_target_ + i;
    }
    cursor.drawn = end;
    read_until(map, cursor, cursor.drawn - kIndicesDistance);
    if constexpr (kInsert) {
      insert_until(map, cursor, cursor.read - kMapDistance);
    }
  }

  template <typename Map>
  void read_until(const Map& map, Cursor& cursor, std::int64_t end) {
    const std::int64_t* const edge_ids = out_.edge_ids.data();
    std::int64_t* const rows = out_.rows.data();
    const std::int64_t* const cols = out_.cols.data();
    const std::int64_t unknown = kDisjoint ? source_.nodes_per_tree : INT64_MAX;
    const auto limit = static_cast<std::uint64_t>(source_.num_nodes >= 0 ? source_.num_nodes : unknown);
    for (; cursor.read < end; ++cursor.read) {
      std::int64_t node = *neighbor(edge_ids[cursor.read]);
      if (static_cast<std::uint64_t>(node) >= limit) [[unlikely]] {
        throw_bad_neighbor(adjacency_, edge_ids[cursor.read], node, static_cast<std::int64_t>(limit));
      }
      if constexpr (kDisjoint) {
        node += trees_[cols[cursor.read]] * source_.nodes_per_tree;
      }
      rows[cursor.read] = node;
      map.prefetch(node);
    }
  }

  template <typename Map>
  void insert_until(Map& map, Cursor& cursor, std::int64_t end) {
    if (cursor.inserted >= end) {
      return;
    }
    std::int64_t* const rows = out_.rows.data();
    PooledArray<std::int64_t>& nodes = source_.out->nodes;
    std::int64_t* const node_data = nodes.data();
    auto next = static_cast<std::uint32_t>(nodes.size());
    for (; cursor.inserted < end; ++cursor.inserted) {
      if (cursor.inserted + kMapDistance < cursor.read) {
        map.prefetch(rows[cursor.inserted + kMapDistance]);
      }
      const std::int64_t node = rows[cursor.inserted];
      const std::uint32_t position = map.find_or_insert(node, next);
      rows[cursor.inserted] = position;
      if constexpr (kDisjoint) {
        const std::int64_t tree = trees_[out_.cols[cursor.inserted]];
        std::uint32_t& nodes_of_tree = source_.nodes_of_tree[static_cast<std::size_t>(tree)];
        node_data[next] = node - tree * source_.nodes_per_tree;
        source_.out->trees.data()[next] = tree;
        source_.numbers.data()[next] = nodes_of_tree;
        nodes_of_tree += position == next ? 1U : 0U;
      } else {
        node_data[next] = node;
      }
      next += position == next ? 1U : 0U;
    }
    nodes.resize(next);
    if constexpr (kDisjoint) {
      source_.out->trees.resize(next);
      source_.numbers.resize(next);
    }
  }

  const Relation& relation_;
  const Adjacency& adjacency_;
  const Index* indices_ = nullptr;
  std::uint32_t relation_number_;
  std::uint32_t hop_;
  std::int64_t wanted_;
  bool replace_;
  bool take_last_;
  const std::int64_t* tree_times_;
  PhiloxKey key_;
  TypeState& source_;
  const TypeState& target_;
  const std::int64_t* frontier_;
  const std::int64_t* trees_ = nullptr;  // of the nodes of the target type
  std::int64_t frontier_size_;
  std::int64_t first_target_;
  int threads_;
  SampledEdges& out_;
  PooledArray<EdgeSpan> spans_;
  std::vector<std::int64_t> chunk_offsets_;
};

template <typename Index, bool kLive>
void sample_hop_as(const NeighborRequest& request, int relation, int hop, TypeState& source, const TypeState& target,
                   SampledEdges& out) {
  if (request.disjoint) {
    RelationHop<Index, kLive, true>(request, relation, hop, source, target, out).run();
  } else {
    RelationHop<Index, kLive, false>(request, relation, hop, source, target, out).run();
  }
}

void sample_hop(const NeighborRequest& request, int relation, int hop, TypeState& source, const TypeState& target,
                SampledEdges& out) {
  const Adjacency& adjacency = request.relations[static_cast<std::size_t>(relation)].adjacency;
  const bool live = adjacency.overlay != nullptr;
  if (adjacency.wide_indices != nullptr) {
    live ? sample_hop_as<std::int64_t, true>(request, relation, hop, source, target, out)
         : sample_hop_as<std::int64_t, false>(request, relation, hop, source, target, out);
  } else {
    live ? sample_hop_as<std::int32_t, true>(request, relation, hop, source, target, out)
         : sample_hop_as<std::int32_t, false>(request, relation, hop, source, target, out);
  }
}

// Reads a value of each sampled edge, as long as edge_ids are positions.
template <typename Value>
void read_column(const EdgeColumn<Value>& column, const PooledArray<std::int64_t>& positions, int threads,
                 PooledArray<Value>& out) {
  if (!column.is_wanted) {
    return;
  }
  const std::int64_t edges = positions.size();
  const auto in_base = static_cast<std::int64_t>(column.base.size());
  const auto place = [&](std::int64_t i) {
    const std::int64_t position = positions[i];
    return position < in_base ? column.base.data() + position : column.overlay.data() + (position - in_base);
  };
  out.resize(edges);
  parallel_for(edges >= kParallelEdges ? threads : 1, (edges + kChunkEdges - 1) / kChunkEdges, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkEdges, edges);
    for (std::int64_t i = chunk * kChunkEdges; i < end; ++i) {
      if (i + kIndicesDistance < end) {
        prefetch(place(i + kIndicesDistance));
      }
      out[i] = *place(i);
    }
  });
}

// Positions become edge ids.
void name_edges(const Adjacency& adjacency, SampledEdges& edges) {
  if (adjacency.overlay == nullptr) {
    return;
  }
  for (std::int64_t i = 0; i < edges.edge_ids.size(); ++i) {
    edges.edge_ids[i] = edge_id_at(adjacency, edges.edge_ids[i]);
  }
}

void check_weights(const Relation& relation) {
  const Adjacency& adjacency = relation.adjacency;
  const auto fit = [&](const AliasTables* tables, std::int64_t edges) {
    if (tables->num_edges() != edges) {
      throw Error(ErrorKind::kUsage,
                  "expected a weight for each of " + std::to_string(edges) + " edges, received " +
                      std::to_string(tables->num_edges()),
                  adjacency.name);
    }
  };
  if (relation.times != nullptr &&
      (relation.weights != nullptr || (adjacency.overlay != nullptr && relation.overlay_times == nullptr) ||
       relation.times->num_edges() != adjacency.num_edges ||
       (adjacency.overlay != nullptr && relation.overlay_times->num_edges() != adjacency.overlay->num_edges()))) {
    throw Error(ErrorKind::kUsage, "expected a timestamp for each edge of the base and its changes, and no weights",
                adjacency.name);
  }
  if (relation.weights == nullptr) {
    return;
  }
  fit(relation.weights, adjacency.num_edges);
  if (adjacency.overlay != nullptr) {
    if (relation.overlay_weights == nullptr) {
      throw Error(ErrorKind::kUsage, "the edges of the base have weights, those of its changes have none",
                  adjacency.name);
    }
    fit(relation.overlay_weights, adjacency.overlay->num_edges());
  }
}

template <typename Value>
void check_column(const EdgeColumn<Value>& column, const Adjacency& adjacency, const char* name) {
  const std::int64_t overlay_edges = adjacency.overlay == nullptr ? 0 : adjacency.overlay->num_edges();
  if (column.is_wanted && (static_cast<std::int64_t>(column.base.size()) != adjacency.num_edges ||
                           static_cast<std::int64_t>(column.overlay.size()) != overlay_edges)) {
    throw Error(ErrorKind::kUsage,
                std::string(name) + " must have an entry for each of " + std::to_string(adjacency.num_edges) + " and " +
                    std::to_string(overlay_edges) + " edges, received " + std::to_string(column.base.size()) + " and " +
                    std::to_string(column.overlay.size()),
                adjacency.name);
  }
}

void check(const NeighborRequest& request) {
  std::size_t trees = 0;
  for (const auto& seeds : request.seeds) {
    trees += seeds.size();
  }
  for (const Relation& relation : request.relations) {
    const std::int64_t nodes = request.num_nodes[static_cast<std::size_t>(relation.target_type)];
    if (relation.adjacency.num_rows != nodes) {
      throw Error(ErrorKind::kData,
                  "indptr must have one entry for each target node and one more: " + std::to_string(nodes + 1) +
                      ", received " + std::to_string(relation.adjacency.num_rows + 1),
                  relation.adjacency.name);
    }
    check_weights(relation);
    if (relation.times != nullptr && (!request.disjoint || request.tree_times.size() != trees)) {
      throw Error(ErrorKind::kUsage, "expected disjoint trees with a time for each, received " + std::to_string(trees) +
                                         " seeds and " + std::to_string(request.tree_times.size()) + " times");
    }
    check_column(relation.weight, relation.adjacency, "weight");
    check_column(relation.timestamp, relation.adjacency, "timestamp");
  }
}

}  // namespace

NeighborSample sample_neighbors(const NeighborRequest& request) {
  check(request);
  NeighborSample sample;
  sample.types.resize(request.num_nodes.size());
  sample.relations.resize(request.relations.size());
  std::int64_t trees = 0;
  for (const auto& seeds : request.seeds) {
    trees += static_cast<std::int64_t>(seeds.size());
  }
  check_batch_size(trees);
  std::int64_t first_tree = 0;
  std::vector<TypeState> types;
  types.reserve(request.num_nodes.size());
  for (std::size_t type = 0; type < request.num_nodes.size(); ++type) {
    const std::int64_t num_nodes = request.num_nodes[type];
    types.push_back({borrow_map(request.disjoint ? -1 : num_nodes), &sample.types[type], num_nodes});
    if (request.disjoint) {
      start_trees(types.back(), first_tree, trees);
      first_tree += static_cast<std::int64_t>(request.seeds[type].size());
    }
    insert_seeds(types.back(), request.seeds[type], request.disjoint);
  }
  for (int hop = 0; hop < request.hops; ++hop) {
    for (std::size_t relation = 0; relation < request.relations.size(); ++relation) {
      const Relation& edges = request.relations[relation];
      TypeState& source = types[static_cast<std::size_t>(edges.source_type)];
      const TypeState& target = types[static_cast<std::size_t>(edges.target_type)];
      sample_hop(request, static_cast<int>(relation), hop, source, target, sample.relations[relation]);
    }
    for (TypeState& type : types) {
      type.frontier_begin = type.frontier_end;
      type.frontier_end = type.out->nodes.size();
      type.out->nodes_per_hop.push_back(type.frontier_end - type.frontier_begin);
    }
  }
  for (std::size_t relation = 0; relation < request.relations.size(); ++relation) {
    const Relation& given = request.relations[relation];
    SampledEdges& edges = sample.relations[relation];
    read_column(given.weight, edges.edge_ids, request.threads, edges.weight);
    read_column(given.timestamp, edges.edge_ids, request.threads, edges.timestamp);
    name_edges(given.adjacency, edges);
  }
  return sample;
}

}  // namespace graphbox
