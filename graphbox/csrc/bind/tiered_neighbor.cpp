// Neighbour sampling of passes for Python.
#include "bind/released_gil.h"
#include "sample/tiered_neighbor.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/relation.h"

namespace graphbox::bind {
namespace {

using Relations = std::vector<std::tuple<int, int, std::vector<std::int64_t>, std::string>>;
using Seeds = std::vector<InputArray<std::int64_t>>;
// Relation number, targets, sources, groups of trees and the group of each tree.
using Excluded = std::tuple<int, InputArray<std::int64_t>, InputArray<std::int64_t>, InputArray<std::int64_t>,
                            InputArray<std::int64_t>>;
// Epoch, number, seeds of each node type, times of trees, edges that must not be sampled.
using Batches = std::vector<std::tuple<std::uint32_t, std::uint64_t, Seeds, std::optional<InputArray<std::int64_t>>,
                                       std::vector<Excluded>>>;
using NodesResult = std::tuple<NumpyArray<std::int64_t>, std::vector<std::int64_t>, NumpyArray<std::int64_t>>;
using EdgesResult = std::tuple<NumpyArray<std::int64_t>, NumpyArray<std::int64_t>, NumpyArray<std::int64_t>,
                               std::vector<std::int64_t>>;

void check_request(const PassRequest& request) {
  const std::size_t types = request.num_nodes.size();
  bool sound = request.hops >= 0 && request.hops < 256 && request.relations.size() < 65536;
  for (const PassRelation& relation : request.relations) {
    sound = sound && relation.source_type >= 0 && static_cast<std::size_t>(relation.source_type) < types &&
            relation.target_type >= 0 && static_cast<std::size_t>(relation.target_type) < types &&
            relation.num_neighbors.size() == static_cast<std::size_t>(request.hops);
    for (const std::int64_t wanted : relation.num_neighbors) {
      sound = sound && wanted >= -1 && wanted <= INT32_MAX;
    }
  }
  for (const std::int64_t nodes : request.num_nodes) {
    sound = sound && nodes >= 0;
  }
  if (!sound) {
    throw Error(ErrorKind::kUsage,
                "expected up to 255 hops, up to 65,535 relations between known types, and for each of them a number "
                "of neighbours from -1 to 2^31 - 1 for each hop");
  }
}

std::vector<std::int64_t> copy(const InputArray<std::int64_t>& array) {
  const auto values = view(array);
  return {values.begin(), values.end()};
}

void construct(NeighborPass* self, const Relations& relations, std::vector<std::int64_t> num_nodes,
               const Batches& batches, int hops, bool replace, bool disjoint, bool take_last, std::uint64_t seed,
               int threads) {
  PassRequest request;
  for (const auto& [source_type, target_type, num_neighbors, name] : relations) {
    request.relations.push_back({source_type, target_type, num_neighbors, name});
  }
  request.num_nodes = std::move(num_nodes);
  request.hops = hops;
  request.threads = threads;
  check_request(request);
  for (const auto& [epoch, number, seeds, times, excluded] : batches) {
    if (seeds.size() != request.num_nodes.size()) {
      throw Error(ErrorKind::kUsage, "expected seeds for each node type of each batch");
    }
    PassBatch& batch = request.batches.emplace_back();
    batch.request.replace = replace;
    batch.request.disjoint = disjoint;
    batch.request.take_last = take_last;
    batch.request.key = derive_key(Stream::kNeighbor, seed, epoch, number);
    for (const auto& array : seeds) {
      batch.request.seeds.push_back(view(array));
    }
    if (times) {
      batch.request.tree_times = copy(*times);
    }
    for (const auto& [relation, rows, sources, groups, group_of_tree] : excluded) {
      if (relation < 0 || static_cast<std::size_t>(relation) >= request.relations.size()) {
        throw Error(ErrorKind::kUsage, "expected one of " + std::to_string(request.relations.size()) +
                                           " relations, received number " + std::to_string(relation),
                    "excluded");
      }
      batch.excluded.push_back({relation, copy(rows), copy(sources), copy(groups), copy(group_of_tree)});
    }
  }
  const ReleasedGil release;
  new (self) NeighborPass(std::move(request));
}

// Memory of the pass, which lives as long as the array does.
nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig> lent(std::span<const std::int64_t> values,
                                                                          nb::handle owner) {
  static const std::int64_t none = 0;  // NumPy wants an address even where there are no elements
  const std::size_t shape[1] = {values.size()};
  return {values.empty() ? &none : values.data(), 1, shape, owner};
}

// Gives an array to Python that owns its memory, alone or with the pass.
template <typename Value, typename Owner>
nb::ndarray<nb::numpy, Value, nb::ndim<1>, nb::c_contig> given(Owner owner, Value* data, std::int64_t size) {
  static std::int64_t none = 0;  // NumPy wants an address even where there are no elements
  auto* kept = new Owner(std::move(owner));
  const nb::capsule capsule(kept, [](void* pointer) noexcept { delete static_cast<Owner*>(pointer); });
  const std::size_t shape[1] = {static_cast<std::size_t>(size)};
  return {size > 0 ? data : &none, 1, shape, capsule};
}

NumpyArray<std::int64_t> frontier(const NeighborPass& self, int relation) {
  FixedArray<std::int64_t> nodes;
  {
    const ReleasedGil release;
    nodes = self.frontier(relation);
  }
  std::int64_t* const data = nodes.data();
  const std::int64_t size = nodes.size();
  return given<std::int64_t>(std::move(nodes), data, size);
}

auto shared(Positions positions) {
  const std::int64_t* const data = positions->data();
  const std::int64_t size = positions->size();
  return given<const std::int64_t>(std::move(positions), data, size);
}

std::pair<std::vector<NodesResult>, std::vector<EdgesResult>> batch_of(const NeighborPass& self, std::int64_t batch) {
  NeighborSample sample;
  {
    const ReleasedGil release;
    sample = self.batch(batch);
  }
  std::pair<std::vector<NodesResult>, std::vector<EdgesResult>> result;
  for (SampledNodes& type : sample.types) {
    result.first.emplace_back(to_numpy(std::move(type.nodes)), std::move(type.nodes_per_hop),
                              to_numpy(std::move(type.trees)));
  }
  for (SampledEdges& relation : sample.relations) {
    result.second.emplace_back(to_numpy(std::move(relation.rows)), to_numpy(std::move(relation.cols)),
                               to_numpy(std::move(relation.edge_ids)), std::move(relation.edges_per_hop));
  }
  return result;
}

}  // namespace

void add_tiered_neighbor(nb::module_& module) {
  nb::class_<NeighborPass>(module, "NeighborPass",
                           "Samples neighbours for a pass of batches, hop by hop, asking for what it needs to read.")
      .def("__init__", &construct, nb::arg("relations"), nb::arg("num_nodes"), nb::arg("batches").noconvert(),
           nb::arg("hops"), nb::arg("replace"), nb::arg("disjoint"), nb::arg("take_last"), nb::arg("seed"),
           nb::arg("threads"),
           "Relations as (source type, target type, neighbours per hop, name); batches as (epoch, batch, the seeds of\n"
           "each node type, times of trees or None, edges to exclude as (relation, targets, sources, groups, group of\n"
           "each tree)).")
      .def("frontier", &frontier, nb::arg("relation"), "The nodes to sample neighbours of, batch after batch.")
      .def(
          "draw_in",
          [](NeighborPass& self, int relation, const RelationArrays& lists) {
            const ReleasedGil release;
            self.draw_in(relation, lists.relation);
          },
          nb::arg("relation"), nb::arg("lists"),
          "Choose edges of those nodes of the frontier that the overlay has lists of, whose edge ids are positions.")
      .def(
          "draw",
          [](NeighborPass& self, int relation, const InputArray<std::int64_t>& bounds) {
            Positions positions;
            {
              const ReleasedGil release;
              positions = self.draw(relation, view(bounds));
            }
            return shared(std::move(positions));
          },
          nb::arg("relation"), nb::arg("bounds").noconvert(),
          "Choose edges between the bounds int64[2 n] of each node of the frontier that is left; returns their\n"
          "positions.")
      .def(
          "positions", [](const NeighborPass& self, int relation) { return shared(self.positions(relation)); },
          nb::arg("relation"), "The positions of all edges that were chosen at this hop.")
      .def(
          "add",
          [](NeighborPass& self, int relation, const AnyInputArray& neighbors) {
            if (neighbors.dtype() == nb::dtype<std::int32_t>()) {
              self.add(relation, {static_cast<const std::int32_t*>(neighbors.data()), neighbors.shape(0)}, {});
            } else if (neighbors.dtype() == nb::dtype<std::int64_t>()) {
              self.add(relation, {}, {static_cast<const std::int64_t*>(neighbors.data()), neighbors.shape(0)});
            } else {
              throw Error(ErrorKind::kUsage, "neighbours must be int32 or int64");
            }
          },
          nb::arg("relation"), nb::arg("neighbors"),
          "The neighbour at each of the positions that were drawn.")
      .def(
          "end_hop",
          [](NeighborPass& self) {
            const ReleasedGil release;
            self.end_hop();
          },
          "Number the neighbours: they are the next frontier.")
      .def(
          "nodes",
          [](nb::handle self, std::int64_t batch, int type) {
            return lent(nb::cast<const NeighborPass&>(self).nodes(batch, type), self);
          },
          nb::arg("batch"), nb::arg("type"), "The nodes of a batch.")
      .def("batch", &batch_of, nb::arg("batch"),
           "(nodes, nodes per hop, trees) for each node type and (rows, cols, positions, edges per hop) for each relation.")
      .def("first_edges", &NeighborPass::first_edges, nb::arg("hop"), nb::arg("relation"),
           "Where the edges of each batch begin among those of a hop, and the end.")
      .def_prop_ro("bytes", &NeighborPass::bytes);
}

}  // namespace graphbox::bind
