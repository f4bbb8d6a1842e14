// Neighbour sampling over adjacency that is not in memory: for a whole pass of batches at once, hop by hop, so that
// what a hop needs is known before it is read. What is drawn is what sample_neighbors() draws, bit by bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/fixed_array.h"
#include "sample/neighbor.h"
#include "sample/pass_choice.h"

namespace graphbox {

struct PassRequest {
  std::vector<PassRelation> relations;
  std::vector<std::int64_t> num_nodes;  // for each node type
  int hops = 0;
  std::vector<PassBatch> batches;  // all disjoint, or none; the pass keeps no reference to their seeds
  int threads = 1;
};

// At each hop, for each relation: frontier(), draw_in() as often as wanted, draw(), add(); then end_hop().
class NeighborPass {
 public:
  explicit NeighborPass(PassRequest request);
  NeighborPass(const NeighborPass&) = delete;
  NeighborPass& operator=(const NeighborPass&) = delete;

  int hop() const { return hop_; }
  std::int64_t batches() const { return static_cast<std::int64_t>(request_.batches.size()); }

  // The nodes whose neighbours the relation samples at this hop, batch after batch.
  FixedArray<std::int64_t> frontier(int relation) const;
  // Chooses among the edges of those nodes of the frontier that `lists` has new lists of, by whatever it has besides. It
  // has nothing else; the ids of its edges are positions.
  void draw_in(int relation, const Relation& lists);
  // Chooses among the edges of the nodes that are left, every edge alike, once a hop: those of the i-th are bounds[2 i]
  // to bounds[2 i + 1] - 1. Returns the positions of the chosen ones.
  Positions draw(int relation, std::span<const std::int64_t> bounds);
  // The neighbour at each of these positions. Exactly one of the two is given. Copied.
  void add(int relation, std::span<const std::int32_t> narrow, std::span<const std::int64_t> wide);
  // The positions of all edges that the relation has sampled at this hop, once their neighbours are added.
  Positions positions(int relation) const;
  // Numbers the neighbours of all relations, which are then the next frontier.
  void end_hop();

  // Once all hops are done: the nodes of one batch, and its edges, whose ids are positions.
  std::span<const std::int64_t> nodes(std::int64_t batch, int type) const;
  NeighborSample batch(std::int64_t batch) const;
  // Where the edges of each batch begin among those of a relation at a hop, and the end.
  const std::vector<std::int64_t>& first_edges(int hop, int relation) const;
  std::uint64_t bytes() const;

 private:
  // Edges that one relation sampled at one hop.
  struct Drawn {
    std::unique_ptr<PassChoice> choice;  // until the neighbours are added
    PassEdges edges;                     // afterwards; its neighbours until the hop ends, where they do not fit into ...
    FixedArray<std::uint32_t> rows;      // of each neighbour among the nodes of its batch; until the hop ends the node
    bool is_added = false;
  };

  // The nodes of one type in one batch.
  struct Nodes {
    std::vector<std::int64_t> nodes;
    std::vector<std::int64_t> trees;     // of disjoint samples the tree of each, else empty, as ...
    std::vector<std::uint32_t> numbers;  // ... the number of each within its tree
    std::vector<std::int64_t> ends;      // after the seeds, and after each hop

    std::int64_t frontier_begin() const { return ends.size() > 1 ? ends[ends.size() - 2] : 0; }
    std::int64_t frontier_size() const { return ends.back() - frontier_begin(); }
    PassFrontier frontier() const;
  };

  std::size_t place(std::int64_t batch, int type) const {
    return static_cast<std::size_t>(batch) * types() + static_cast<std::size_t>(type);
  }
  Nodes& of(std::int64_t batch, int type) { return nodes_[place(batch, type)]; }
  const Nodes& of(std::int64_t batch, int type) const { return nodes_[place(batch, type)]; }
  std::size_t types() const { return request_.num_nodes.size(); }
  bool is_disjoint() const { return !request_.batches.empty() && request_.batches.front().request.disjoint; }
  void check_relation(int relation) const;
  void start_batch(PassBatch& batch);
  PassChoice& choice_of(int relation);
  void number_batch(std::int64_t batch);
  template <typename Map>
  void number_type(std::int64_t batch, int type, std::int64_t found, Map& map);
  template <typename Map, typename Index>
  std::uint32_t number(const PassRelation& relation, const Index* neighbors, std::int64_t count, Map& map,
                       std::uint32_t next, std::uint32_t* rows, std::int64_t* nodes) const;
  void number_trees(std::int64_t batch, int type, std::int64_t found);

  PassRequest request_;
  std::vector<std::int64_t> trees_;        // of each batch, how many it has
  std::vector<Nodes> nodes_;               // of each type of each batch
  std::vector<std::vector<Drawn>> drawn_;  // of each relation of each hop
  int hop_ = 0;
};

}  // namespace graphbox
