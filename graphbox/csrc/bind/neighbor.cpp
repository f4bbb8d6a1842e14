// Neighbour sampling for Python.
#include "bind/released_gil.h"
#include "sample/neighbor.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <tuple>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/relation.h"
#include "sample/excluded_edges.h"
#include "sample/neighbor_check.h"
#include "sample/relation_index.h"

namespace graphbox::bind {
namespace {

template <typename T>
using OptionalResult = std::optional<NumpyArray<T>>;
using NodesResult = std::tuple<NumpyArray<std::int64_t>, std::vector<std::int64_t>, OptionalResult<std::int64_t>>;
using EdgesResult =
    std::tuple<NumpyArray<std::int64_t>, NumpyArray<std::int64_t>, NumpyArray<std::int64_t>, std::vector<std::int64_t>,
               OptionalResult<float>, OptionalResult<std::int64_t>>;

template <typename T>
OptionalResult<T> to_numpy_if(bool is_wanted, PooledArray<T>&& array) {
  return is_wanted ? OptionalResult<T>(to_numpy(std::move(array))) : std::nullopt;
}

// Edges that must not be sampled: the number of their relation, targets, sources, groups of trees and the group of each
// tree (both empty: all trees), and whether the lists of the adjacency ascend.
using ExcludedArrays = std::tuple<std::size_t, InputArray<std::int64_t>, InputArray<std::int64_t>,
                                  InputArray<std::int64_t>, InputArray<std::int64_t>, bool>;

// An index and the numbers of the relations it is of.
using IndexedArrays = std::tuple<const RelationIndex*, std::vector<std::size_t>>;

std::vector<Adjacency> to_index(const std::vector<InputArray<std::int64_t>>& indptrs,
                                const std::vector<std::int64_t>& num_edges, const std::vector<std::string>& names) {
  bool sound = !indptrs.empty() && num_edges.size() == indptrs.size() && names.size() == indptrs.size();
  for (const InputArray<std::int64_t>& indptr : indptrs) {
    sound = sound && indptr.shape(0) > 0 && indptr.shape(0) == indptrs.front().shape(0);
  }
  if (!sound) {
    throw Error(ErrorKind::kUsage, "expected the indptr, number of edges and name of each relation, with as many rows");
  }
  std::vector<Adjacency> relations;
  for (std::size_t i = 0; i < indptrs.size(); ++i) {
    Adjacency& relation = relations.emplace_back();
    relation.indptr = indptrs[i].data();
    relation.num_rows = static_cast<std::int64_t>(indptrs[i].shape(0)) - 1;
    relation.num_edges = num_edges[i];
    relation.name = names[i];
  }
  return relations;
}

void check_types(const std::vector<const RelationArrays*>& relations, std::size_t types, std::size_t seeds, int hops) {
  refuse_none(relations, "relations");
  bool sound = seeds == types && hops >= 0 && hops < 256 && relations.size() < 65536;
  for (const RelationArrays* arrays : relations) {
    const Relation& relation = arrays->relation;
    sound = sound && relation.source_type >= 0 && static_cast<std::size_t>(relation.source_type) < types &&
            relation.target_type >= 0 && static_cast<std::size_t>(relation.target_type) < types &&
            relation.num_neighbors.size() == static_cast<std::size_t>(hops);
    for (const std::int64_t wanted : relation.num_neighbors) {
      sound = sound && wanted >= -1 && wanted <= INT32_MAX;
    }
  }
  if (!sound) {
    throw Error(ErrorKind::kUsage,
                "expected seeds for each node type, up to 255 hops, up to 65,535 relations between known types, "
                "and for each of them a number of neighbours from -1 to 2^31 - 1 for each hop");
  }
}

std::pair<std::vector<NodesResult>, std::vector<EdgesResult>> sample(
    const std::vector<const RelationArrays*>& relations, std::vector<std::int64_t> num_nodes,
    const std::vector<InputArray<std::int64_t>>& seeds, int hops, bool replace, std::uint64_t seed, std::uint32_t epoch,
    std::uint64_t batch, int threads, bool disjoint, std::optional<InputArray<std::int64_t>> tree_times, bool take_last,
    const std::vector<ExcludedArrays>& excluded, const std::vector<IndexedArrays>& indexed) {
  check_types(relations, num_nodes.size(), seeds.size(), hops);
  NeighborSample sampled;
  {
    NeighborRequest request;
    for (const RelationArrays* arrays : relations) {
      request.relations.push_back(arrays->relation);
    }
    for (const auto& [index, numbers] : indexed) {
      if (index == nullptr) {
        throw Error(ErrorKind::kUsage, "expected an index, received None", "indexed");
      }
      request.indexed.push_back({index, numbers});
    }
    request.num_nodes = std::move(num_nodes);
    for (const auto& array : seeds) {
      request.seeds.push_back(view(array));
    }
    request.hops = hops;
    request.replace = replace;
    request.key = derive_key(Stream::kNeighbor, seed, epoch, batch);
    request.threads = threads;
    request.disjoint = disjoint;
    request.take_last = take_last;
    if (tree_times) {
      const auto times = view(*tree_times);
      request.tree_times.assign(times.begin(), times.end());
    }
    const ReleasedGil release;
    std::vector<std::unique_ptr<ExcludedEdges>> kept;
    for (const auto& [number, rows, sources, groups, group_of_tree, ascending] : excluded) {
      if (static_cast<std::size_t>(number) >= request.relations.size()) {
        throw Error(ErrorKind::kUsage, "expected one of " + std::to_string(request.relations.size()) +
                                           " relations, received number " + std::to_string(number),
                    "excluded");
      }
      Relation& relation = request.relations[static_cast<std::size_t>(number)];
      const ExcludedPairs pairs{view(rows), view(sources), view(groups), view(group_of_tree), ascending};
      check_excluded(pairs, relation.adjacency.num_rows, count_seeds(request), relation.adjacency.name);
      kept.push_back(std::make_unique<ExcludedEdges>(relation.adjacency, pairs));
      relation.excluded = kept.back().get();
    }
    sampled = sample_neighbors(request);
  }
  std::pair<std::vector<NodesResult>, std::vector<EdgesResult>> result;
  for (SampledNodes& type : sampled.types) {
    result.first.emplace_back(to_numpy(std::move(type.nodes)), std::move(type.nodes_per_hop),
                              to_numpy_if(disjoint, std::move(type.trees)));
  }
  for (std::size_t i = 0; i < relations.size(); ++i) {
    const Relation& given = relations[i]->relation;
    SampledEdges& edges = sampled.relations[i];
    result.second.emplace_back(to_numpy(std::move(edges.rows)), to_numpy(std::move(edges.cols)),
                               to_numpy(std::move(edges.edge_ids)), std::move(edges.edges_per_hop),
                               to_numpy_if(given.weight.is_wanted, std::move(edges.weight)),
                               to_numpy_if(given.timestamp.is_wanted, std::move(edges.timestamp)));
  }
  return result;
}

}  // namespace

void add_neighbor(nb::module_& module) {
  // The tables refer to the arrays: their Python object keeps those alive.
  nb::class_<AliasTables>(module, "AliasTables",
                          "For each edge what weighted sampling needs: 8 bytes. The arrays must not be written to.")
      .def(
          "__init__",
          [](AliasTables* self, const InputArray<std::int64_t>& indptr, const InputArray<float>& weights,
             const std::string& name, int threads) {
            if (indptr.shape(0) == 0) {
              throw Error(ErrorKind::kData, "indptr must have at least one entry, received none", name);
            }
            const ReleasedGil release;
            new (self) AliasTables(view(indptr), view(weights), name, threads);
          },
          nb::arg("indptr").noconvert(), nb::arg("weights").noconvert(), nb::arg("name"), nb::arg("threads"),
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def_prop_ro("bytes", &AliasTables::bytes)
      .def_prop_ro(
          "entries",
          [](const AliasTables& self) {
            static_assert(sizeof(AliasEntry) == 2 * sizeof(std::uint32_t));
            const std::size_t shape[2] = {static_cast<std::size_t>(self.num_edges()), 2};
            return nb::ndarray<nb::numpy, const std::uint32_t, nb::ndim<2>, nb::c_contig>(
                reinterpret_cast<const std::uint32_t*>(self.entries()), 2, shape, nb::find(self));
          },
          "Threshold and alias of each edge: uint32[edges, 2], read only.");
  nb::class_<TimeOrder>(module, "TimeOrder", "The edges of each node by time: 12 bytes for each edge.")
      .def(
          "__init__",
          [](TimeOrder* self, const InputArray<std::int64_t>& indptr, const InputArray<std::int64_t>& timestamps,
             const std::string& name, int threads) {
            if (indptr.shape(0) == 0) {
              throw Error(ErrorKind::kData, "indptr must have at least one entry, received none", name);
            }
            const ReleasedGil release;
            new (self) TimeOrder(view(indptr), view(timestamps), name, threads);
          },
          nb::arg("indptr").noconvert(), nb::arg("timestamps").noconvert(), nb::arg("name"), nb::arg("threads"))
      .def_prop_ro("bytes", &TimeOrder::bytes)
      .def_prop_ro(
          "times",
          [](const TimeOrder& self) {
            const std::size_t shape[1] = {static_cast<std::size_t>(self.num_edges())};
            return nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>(self.times(), 1, shape,
                                                                                         nb::find(self));
          },
          "The times of all edges, those of each node in order: int64[edges], read only.")
      .def_prop_ro(
          "shifts",
          [](const TimeOrder& self) {
            const std::size_t shape[1] = {static_cast<std::size_t>(self.num_edges())};
            return nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<1>, nb::c_contig>(self.shifts(), 1, shape,
                                                                                         nb::find(self));
          },
          "From the place of each edge in the order to its position: int32[edges], read only.");
  nb::class_<WeightSums>(module, "WeightSums", "Sums of the weights of each node's edges by time: 8 bytes for each edge.")
      .def(
          "__init__",
          [](WeightSums* self, const TimeOrder& order, const InputArray<std::int64_t>& indptr,
             const InputArray<float>& weights, const std::string& name, int threads) {
            if (indptr.shape(0) == 0) {
              throw Error(ErrorKind::kData, "indptr must have at least one entry, received none", name);
            }
            const ReleasedGil release;
            new (self) WeightSums(order, view(indptr), view(weights), name, threads);
          },
          nb::arg("order"), nb::arg("indptr").noconvert(), nb::arg("weights").noconvert(), nb::arg("name"),
          nb::arg("threads"), nb::keep_alive<1, 4>())
      .def_prop_ro("bytes", &WeightSums::bytes)
      .def_prop_ro(
          "sums",
          [](const WeightSums& self) {
            const std::size_t shape[1] = {static_cast<std::size_t>(self.num_edges())};
            return nb::ndarray<nb::numpy, const double, nb::ndim<1>, nb::c_contig>(self.sums(), 1, shape,
                                                                                   nb::find(self));
          },
          "The sum of a node's weights up to and with each edge, by time: float64[edges], read only.");
  nb::class_<RelationIndex>(module, "RelationIndex",
                            "The lists of all nodes of a type in several relations that are not empty: 8 bytes for\n"
                            "each node, 16 for each list, refused where that is more than the indptr take.")
      .def(
          "__init__",
          [](RelationIndex* self, const std::vector<InputArray<std::int64_t>>& indptrs,
             const std::vector<std::int64_t>& num_edges, const std::vector<std::string>& names, int threads) {
            const std::vector<Adjacency> relations = to_index(indptrs, num_edges, names);
            const ReleasedGil release;
            new (self) RelationIndex(relations, threads);
          },
          nb::arg("indptrs").noconvert(), nb::arg("num_edges"), nb::arg("names"), nb::arg("threads"))
      .def_prop_ro("bytes", &RelationIndex::bytes);
  nb::class_<RelationArrays>(module, "Relation",
                             "An edge type to sample: arrays, node type numbers, neighbours per hop.")
      .def(
          "__init__",
          [](RelationArrays* self, InputArray<std::int64_t> indptr, AnyInputArray indices, int source_type,
             int target_type, std::vector<std::int64_t> num_neighbors, std::string name, const OverlayArrays* overlay,
             const AliasTables* weights, const AliasTables* overlay_weights) {
            Relation relation;
            relation.adjacency = to_adjacency(indptr, indices, std::move(name), overlay);
            relation.source_type = source_type;
            relation.target_type = target_type;
            relation.num_neighbors = std::move(num_neighbors);
            relation.weights = weights;
            relation.overlay_weights = overlay_weights;
            new (self) RelationArrays{std::move(indptr), std::move(indices), std::move(relation)};
          },
          nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("source_type"), nb::arg("target_type"),
          nb::arg("num_neighbors"), nb::arg("name"), nb::arg("overlay").none() = nb::none(),
          nb::arg("weights").none() = nb::none(), nb::arg("overlay_weights").none() = nb::none(),
          nb::keep_alive<1, 8>(), nb::keep_alive<1, 9>(), nb::keep_alive<1, 10>())
      .def(
          "sample_until",
          [](RelationArrays& self, const TimeOrder* base, const TimeOrder* overlay, const WeightSums* sums,
             const WeightSums* overlay_sums) {
            self.relation.times = base;
            self.relation.overlay_times = overlay;
            self.relation.weight_sums = sums;
            self.relation.overlay_weight_sums = overlay_sums;
          },
          nb::arg("base"), nb::arg("overlay").none(), nb::arg("weight_sums").none() = nb::none(),
          nb::arg("overlay_weight_sums").none() = nb::none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(),
          "Sample only edges that are not later than the time of their tree, by their weights where these are given.")
      .def(
          "give_weight",
          [](RelationArrays& self, const InputArray<float>& base, const InputArray<float>& overlay) {
            self.relation.weight = {view(base), view(overlay), true};
          },
          nb::arg("base").noconvert(), nb::arg("overlay").noconvert(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          "Give the weight of each sampled edge: of those of the base and of those of the overlay.")
      .def(
          "give_timestamp",
          [](RelationArrays& self, const InputArray<std::int64_t>& base, const InputArray<std::int64_t>& overlay) {
            self.relation.timestamp = {view(base), view(overlay), true};
          },
          nb::arg("base").noconvert(), nb::arg("overlay").noconvert(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          "Give the timestamp of each sampled edge: of those of the base and of those of the overlay.");
  module.def("sample_neighbors", &sample, nb::arg("relations"), nb::arg("num_nodes"), nb::arg("seeds").noconvert(),
             nb::arg("hops"), nb::arg("replace"), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"),
             nb::arg("threads"), nb::arg("disjoint") = false, nb::arg("tree_times").noconvert() = nb::none(),
             nb::arg("take_last") = false, nb::arg("excluded") = std::vector<ExcludedArrays>(),
             nb::arg("indexed") = std::vector<IndexedArrays>(),
             "Sample in-neighbours hop by hop.\n\n"
             "Returns (nodes, nodes per hop, trees, None unless disjoint) for each node type and (rows, cols, edge ids, edges per hop, weights,\n"
             "timestamps) for each relation, the last two None unless the relation gives them.\n"
             "-1 in num_nodes means unknown, for types that are only sources.");
}

}  // namespace graphbox::bind
