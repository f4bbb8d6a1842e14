// The nodes of one type while a batch of sampled neighbours grows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "memory/buffer.h"
#include "sample/neighbor.h"
#include "sample/node_map.h"

namespace graphbox {

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

struct BatchNodes {
  AnyMap map;
  SampledNodes* out;
  std::int64_t num_nodes;  // of the type, -1: unknown
  // The nodes that the hop before added.
  std::int64_t frontier_begin = 0;
  std::int64_t frontier_end = 0;
  // Of disjoint samples: a node of a tree is tree * nodes_per_tree + node in the map.
  std::int64_t first_tree = 0;  // of the seeds
  std::int64_t nodes_per_tree = 0;
  PooledArray<std::uint32_t> numbers{};       // of each node within its tree and type
  std::vector<std::uint32_t> nodes_of_tree{};  // how many nodes of this type each tree has
};

// The nodes of each type of the request with its seeds in them; `out` has an entry for each type.
std::vector<BatchNodes> start_batch(const NeighborRequest& request, std::vector<SampledNodes>& out);

// Number of map entries that each of `trees` trees needs for nodes of a type; throws where there are too few for all.
std::int64_t count_nodes_per_tree(std::int64_t num_nodes, std::int64_t trees);

// Throws when a batch may not number `nodes` nodes of a type.
void check_batch_size(std::int64_t nodes);

}  // namespace graphbox
