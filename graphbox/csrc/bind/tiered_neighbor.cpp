// Neighbour sampling of passes for Python.
#include "sample/tiered_neighbor.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bind/arrays.h"
#include "bind/nouns.h"

namespace graphbox::bind {
namespace {

using Relations = std::vector<std::tuple<int, int, std::vector<std::int64_t>, std::string>>;
using Seeds = std::vector<std::vector<InputArray<std::int64_t>>>;
using NodesResult = std::pair<NumpyArray<std::int64_t>, std::vector<std::int64_t>>;
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

void construct(NeighborPass* self, const Relations& relations, std::vector<std::int64_t> num_nodes, const Seeds& seeds,
               int hops, bool replace, std::uint64_t seed,
               const std::vector<std::pair<std::uint32_t, std::uint64_t>>& batches, int threads) {
  PassRequest request;
  for (const auto& [source_type, target_type, num_neighbors, name] : relations) {
    request.relations.push_back({source_type, target_type, num_neighbors, name});
  }
  request.num_nodes = std::move(num_nodes);
  request.hops = hops;
  request.replace = replace;
  request.threads = threads;
  for (const auto& [epoch, batch] : batches) {
    request.keys.push_back(derive_key(Stream::kNeighbor, seed, epoch, batch));
  }
  check_request(request);
  std::vector<std::vector<std::span<const std::int64_t>>> views;
  for (const auto& batch : seeds) {
    if (batch.size() != request.num_nodes.size()) {
      throw Error(ErrorKind::kUsage, "expected seeds for each node type of each batch");
    }
    auto& types = views.emplace_back();
    for (const auto& array : batch) {
      types.push_back(view(array));
    }
  }
  const nb::gil_scoped_release release;
  new (self) NeighborPass(std::move(request), views);
}

// Memory of the pass, which lives as long as the array does.
nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig> lent(std::span<const std::int64_t> values,
                                                                          nb::handle owner) {
  static const std::int64_t none = 0;  // NumPy wants an address even where there are no elements
  const std::size_t shape[1] = {values.size()};
  return {values.empty() ? &none : values.data(), 1, shape, owner};
}

NumpyArray<std::int64_t> frontier(const NeighborPass& self, int relation) {
  FixedArray<std::int64_t> nodes;
  {
    const nb::gil_scoped_release release;
    nodes = self.frontier(relation);
  }
  auto* owner = new FixedArray<std::int64_t>(std::move(nodes));
  const nb::capsule capsule(owner, [](void* pointer) noexcept { delete static_cast<FixedArray<std::int64_t>*>(pointer); });
  static std::int64_t none = 0;
  const std::size_t shape[1] = {static_cast<std::size_t>(owner->size())};
  return {owner->size() > 0 ? owner->data() : &none, 1, shape, capsule};
}

std::pair<std::vector<NodesResult>, std::vector<EdgesResult>> batch_of(const NeighborPass& self, std::int64_t batch) {
  NeighborSample sample;
  {
    const nb::gil_scoped_release release;
    sample = self.batch(batch);
  }
  std::pair<std::vector<NodesResult>, std::vector<EdgesResult>> result;
  for (SampledNodes& type : sample.types) {
    result.first.emplace_back(to_numpy(std::move(type.nodes)), std::move(type.nodes_per_hop));
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
      .def("__init__", &construct, nb::arg("relations"), nb::arg("num_nodes"), nb::arg("seeds").noconvert(),
           nb::arg("hops"), nb::arg("replace"), nb::arg("seed"), nb::arg("batches"), nb::arg("threads"),
           "Relations as (source type, target type, neighbours per hop, name), batches as (epoch, batch), and for\n"
           "each batch the seeds of each node type.")
      .def("frontier", &frontier, nb::arg("relation"), "The nodes to sample neighbours of, batch after batch.")
      .def(
          "draw",
          [](nb::handle self, int relation, const InputArray<std::int64_t>& bounds) {
            NeighborPass& pass = nb::cast<NeighborPass&>(self);
            std::span<const std::int64_t> positions;
            {
              const nb::gil_scoped_release release;
              positions = pass.draw(relation, view(bounds));
            }
            return lent(positions, self);
          },
          nb::arg("relation"), nb::arg("bounds").noconvert(),
          "Choose edges between the bounds int64[2 n] of each node of the frontier; returns their positions.")
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
            const nb::gil_scoped_release release;
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
           "(nodes, nodes per hop) for each node type and (rows, cols, positions, edges per hop) for each relation.")
      .def("first_edges", &NeighborPass::first_edges, nb::arg("hop"), nb::arg("relation"),
           "Where the edges of each batch begin among those that draw() gave at a hop, and the end.")
      .def_prop_ro("bytes", &NeighborPass::bytes);
}

}  // namespace graphbox::bind
