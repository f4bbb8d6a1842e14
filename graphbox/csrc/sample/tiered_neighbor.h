// Neighbour sampling over adjacency that is not in memory: for a whole pass of batches at once, hop by hop, so that
// what a hop needs is known before it is read. What is drawn is what sample_neighbors() draws, bit by bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/buffer.h"
#include "random/philox.h"
#include "sample/neighbor.h"

namespace graphbox {

// An edge type: its rows are nodes of `target_type`, their neighbours nodes of `source_type`.
struct PassRelation {
  int source_type;
  int target_type;
  std::vector<std::int64_t> num_neighbors;  // for each hop, -1: all
  std::string name;                         // for messages
};

struct PassRequest {
  std::vector<PassRelation> relations;
  std::vector<std::int64_t> num_nodes;  // for each node type
  int hops = 0;
  bool replace = false;
  std::vector<PhiloxKey> keys;  // for each batch
  int threads = 1;
};

// Plain values in memory of just their size: a pass holds what it has sampled until its batches are used.
template <typename T>
class FixedArray {
 public:
  FixedArray() = default;
  explicit FixedArray(std::int64_t size) : buffer_(static_cast<std::size_t>(size) * sizeof(T)), size_(size) {}

  T* data() { return reinterpret_cast<T*>(buffer_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(buffer_.data()); }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return buffer_.bytes(); }
  T& operator[](std::int64_t index) { return data()[index]; }
  const T& operator[](std::int64_t index) const { return data()[index]; }

 private:
  Buffer buffer_;
  std::int64_t size_ = 0;
};

// At each hop, for each relation: frontier(), draw(), add(); then end_hop().
class NeighborPass {
 public:
  // `seeds`: for each batch those of each node type. Copied.
  NeighborPass(PassRequest request, const std::vector<std::vector<std::span<const std::int64_t>>>& seeds);
  NeighborPass(const NeighborPass&) = delete;
  NeighborPass& operator=(const NeighborPass&) = delete;

  int hop() const { return hop_; }
  std::int64_t batches() const { return static_cast<std::int64_t>(request_.keys.size()); }

  // The nodes whose neighbours the relation samples at this hop, batch after batch.
  FixedArray<std::int64_t> frontier(int relation) const;
  // Chooses among the edges of the frontier, once a hop: those of its node i are bounds[2 i] to bounds[2 i + 1] - 1. Returns the
  // positions of the chosen ones, valid as long as the pass.
  std::span<const std::int64_t> draw(int relation, std::span<const std::int64_t> bounds);
  // The neighbour at each of these positions. Exactly one of the two is given. Copied.
  void add(int relation, std::span<const std::int32_t> narrow, std::span<const std::int64_t> wide);
  // Numbers the neighbours of all relations, which are then the next frontier.
  void end_hop();

  // Once all hops are done: the nodes of one batch, and its edges, whose ids are positions.
  std::span<const std::int64_t> nodes(std::int64_t batch, int type) const;
  NeighborSample batch(std::int64_t batch) const;
  // Where the edges of each batch begin among those that draw() gave for a relation at a hop, and the end.
  const std::vector<std::int64_t>& first_edges(int hop, int relation) const;
  std::uint64_t bytes() const;

 private:
  // What one relation sampled at one hop, batch after batch.
  struct Drawn {
    FixedArray<std::uint32_t> counts;      // edges of each node of the frontier
    FixedArray<std::int64_t> positions;    // of the edges
    FixedArray<std::uint32_t> rows;        // of each neighbour among the nodes of its batch; until the hop ends the node
    FixedArray<std::int64_t> wide;         // nodes that do not fit there, until the hop ends
    std::vector<std::int64_t> first_node;  // of the frontier of each batch, and the end
    std::vector<std::int64_t> first_edge;  // of each batch, and the end
    bool is_added = false;
  };

  // The nodes of one type in one batch.
  struct Nodes {
    std::vector<std::int64_t> nodes;
    std::vector<std::int64_t> ends;  // after the seeds, and after each hop

    std::int64_t frontier_begin() const { return ends.size() > 1 ? ends[ends.size() - 2] : 0; }
    std::int64_t frontier_size() const { return ends.back() - frontier_begin(); }
  };

  std::size_t place(std::int64_t batch, int type) const {
    return static_cast<std::size_t>(batch) * types() + static_cast<std::size_t>(type);
  }
  Nodes& of(std::int64_t batch, int type) { return nodes_[place(batch, type)]; }
  const Nodes& of(std::int64_t batch, int type) const { return nodes_[place(batch, type)]; }
  std::size_t types() const { return request_.num_nodes.size(); }
  void check_relation(int relation) const;
  void count_edges(int relation, std::span<const std::int64_t> bounds, Drawn& drawn) const;
  void choose(int relation, std::int64_t batch, std::span<const std::int64_t> bounds, Drawn& drawn) const;
  void number_batch(std::int64_t batch);
  template <typename Map>
  void number_type(std::int64_t batch, int type, std::int64_t found, Map& map);
  template <typename Map, typename Index>
  std::uint32_t number(const PassRelation& relation, const Index* neighbors, std::int64_t count, Map& map,
                       std::uint32_t next, std::uint32_t* rows, std::int64_t* nodes) const;

  PassRequest request_;
  std::vector<Nodes> nodes_;                 // of each type of each batch
  std::vector<std::vector<Drawn>> drawn_;    // of each relation of each hop
  int hop_ = 0;
};

}  // namespace graphbox
