#include "sample/neighbor_nodes.h"

#include <algorithm>
#include <string>

#include "errors/error.h"

namespace graphbox {
namespace {

AnyMap borrow_map(std::int64_t num_nodes) {
  if (num_nodes >= 0 && num_nodes <= kLargestDirectMap) {
    return BorrowedMap<DirectNodeMap>(num_nodes);
  }
  return BorrowedMap<HashNodeMap>(num_nodes);
}

// Gives a type room for `trees` trees.
void start_trees(BatchNodes& type, std::int64_t first_tree, std::int64_t trees) {
  type.first_tree = first_tree;
  type.nodes_per_tree = count_nodes_per_tree(type.num_nodes, trees);
  type.nodes_of_tree.assign(static_cast<std::size_t>(trees), 0);
}

// The seeds of a disjoint sample: each the first node of its own tree.
void plant_seeds(BatchNodes& type) {
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

void insert_seeds(BatchNodes& type, std::span<const std::int64_t> seeds, bool disjoint) {
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

}  // namespace

std::int64_t count_nodes_per_tree(std::int64_t num_nodes, std::int64_t trees) {
  const std::int64_t nodes = num_nodes >= 0 ? num_nodes : INT64_MAX / std::max<std::int64_t>(trees, 1);
  if (trees > 0 && nodes > INT64_MAX / trees) {
    throw Error(ErrorKind::kDoesNotFit,
                "disjoint samples need seeds times nodes below 2^63, received " + std::to_string(trees) +
                    " seeds and " + std::to_string(num_nodes) + " nodes",
                {}, "ask for fewer seeds");
  }
  return nodes;
}

void check_batch_size(std::int64_t nodes) {
  if (nodes > std::int64_t{UINT32_MAX}) {
    throw Error(ErrorKind::kDoesNotFit,
                "a batch can hold at most 2^32 - 1 nodes of a type, this one may reach " + std::to_string(nodes), {},
                "ask for fewer seeds or fewer neighbours");
  }
}

std::vector<BatchNodes> start_batch(const NeighborRequest& request, std::vector<SampledNodes>& out) {
  std::int64_t trees = 0;
  for (const auto& seeds : request.seeds) {
    trees += static_cast<std::int64_t>(seeds.size());
  }
  check_batch_size(trees);
  std::int64_t first_tree = 0;
  std::vector<BatchNodes> types;
  types.reserve(request.num_nodes.size());
  for (std::size_t type = 0; type < request.num_nodes.size(); ++type) {
    const std::int64_t num_nodes = request.num_nodes[type];
    types.push_back({borrow_map(request.disjoint ? -1 : num_nodes), &out[type], num_nodes});
    if (request.disjoint) {
      start_trees(types.back(), first_tree, trees);
      first_tree += static_cast<std::int64_t>(request.seeds[type].size());
    }
    insert_seeds(types.back(), request.seeds[type], request.disjoint);
  }
  return types;
}

}  // namespace graphbox
