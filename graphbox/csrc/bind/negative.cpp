// Negatives for Python.
#include "bind/released_gil.h"
#include "sample/negative.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>
#include <tuple>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "sample/known_positives.h"

namespace graphbox::bind {
namespace {

using Rows = std::tuple<InputArray<std::int64_t>, AnyInputArray, std::string, std::optional<const OverlayArrays*>>;

std::optional<Adjacency> to_known(const std::optional<Rows>& rows) {
  if (!rows) {
    return std::nullopt;
  }
  const auto& [indptr, indices, name, overlay] = *rows;
  return to_adjacency(indptr, indices, name, overlay.value_or(nullptr));
}

NumpyArray<std::int64_t, 2> sample_for(const AliasTable& items, const std::optional<InputArray<double>>& weights,
                                       const std::optional<Rows>& known_positives,
                                       const InputArray<std::int64_t>& queries, std::int64_t num_negatives,
                                       bool exclude_query, bool allow_exhausted, std::uint64_t seed,
                                       std::uint32_t epoch, std::uint64_t batch, int threads) {
  if (num_negatives < 1 || num_negatives > INT32_MAX) {
    throw Error(ErrorKind::kUsage, "expected 1 to 2^31 - 1 negatives, received " + std::to_string(num_negatives),
                "num_negatives");
  }
  const std::optional<Adjacency> known = to_known(known_positives);
  NegativeRequest request;
  request.items = &items;
  if (weights) {
    request.weights = view(*weights);
  }
  request.known_positives = known ? &*known : nullptr;
  request.queries = view(queries);
  request.num_negatives = num_negatives;
  request.exclude_query = exclude_query;
  request.allow_exhausted = allow_exhausted;
  request.key = derive_key(Stream::kNegative, seed, epoch, batch);
  request.threads = threads;
  PooledArray<std::int64_t> drawn;
  {
    const ReleasedGil release;
    drawn.resize(static_cast<std::int64_t>(queries.shape(0)) * num_negatives);
    sample_negatives(request, drawn.data());
  }
  const std::size_t shape[2] = {queries.shape(0), static_cast<std::size_t>(num_negatives)};
  return to_numpy<std::int64_t, 2>(std::move(drawn), shape);
}

// An int64 for each row.
template <typename Count>
NumpyArray<std::int64_t> for_rows(const Rows& rows, Count count) {
  const auto& [indptr, indices, name, overlay] = rows;
  const Adjacency adjacency = to_adjacency(indptr, indices, name, overlay.value_or(nullptr));
  PooledArray<std::int64_t> counts;
  {
    const ReleasedGil release;
    counts.resize(adjacency.num_rows);
    count(adjacency, counts.data());
  }
  return to_numpy(std::move(counts));
}

NumpyArray<std::int64_t> degrees(const Rows& rows, int threads) {
  return for_rows(rows, [&](const Adjacency& adjacency, std::int64_t* out) { row_degrees(adjacency, out, threads); });
}

NumpyArray<std::int64_t> remaining(const Rows& rows, std::int64_t num_items, bool exclude_query, int threads) {
  return for_rows(rows, [&](const Adjacency& adjacency, std::int64_t* out) {
    count_remaining(adjacency, num_items, exclude_query, out, threads);
  });
}

}  // namespace

void add_negative(nb::module_& module) {
  nb::class_<AliasTable>(module, "AliasTable", "Draws items with probabilities proportional to their weights.")
      .def(
          "__init__",
          [](AliasTable* self, InputArray<double> weights) {
            const ReleasedGil release;
            new (self) AliasTable(view(weights));
          },
          nb::arg("weights").noconvert())
      .def_static(
          "uniform", [](std::int64_t num_items) { return AliasTable(num_items); }, nb::arg("num_items"),
          "Items that are equally likely; needs no memory.")
      .def("__len__", &AliasTable::size)
      .def_prop_ro("nbytes", &AliasTable::bytes, "Memory of the table in bytes.")
      .def_prop_ro(
          "entries",
          [](const AliasTable& self) {
            static_assert(sizeof(AliasTable::Entry) == 2 * sizeof(std::uint32_t));
            const auto entries = self.entries();
            const std::size_t shape[2] = {entries.size(), 2};
            return nb::ndarray<nb::numpy, const std::uint32_t, nb::ndim<2>, nb::c_contig>(
                reinterpret_cast<const std::uint32_t*>(entries.data()), 2, shape, nb::find(self));
          },
          "Threshold and alias of each item: uint32[items, 2], read only; empty where items are equally likely.")
      .def(
          "sample",
          [](const AliasTable& self, OutputArray<std::int64_t> out, std::uint64_t seed, std::uint32_t epoch,
             std::uint64_t batch, int threads) {
            const ReleasedGil release;
            self.sample(derive_key(Stream::kNegative, seed, epoch, batch), out.data(),
                        static_cast<std::int64_t>(out.shape(0)), threads);
          },
          nb::arg("out").noconvert(), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"), nb::arg("threads"),
          "Fill the int64 array `out` with drawn items.")
      .def("sample_for", &sample_for, nb::arg("weights").noconvert().none(),
           nb::arg("known_positives").noconvert().none(), nb::arg("queries").noconvert(), nb::arg("num_negatives"),
           nb::arg("exclude_query"), nb::arg("allow_exhausted"), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"),
           nb::arg("threads"),
           "Items that are none of each query's known positives: int64[queries, num_negatives]. `weights` are those\n"
           "of the table. `known_positives` is (indptr, indices, name, overlay or None), ascending.");
  module.def("row_degrees", &degrees, nb::arg("rows").noconvert(), nb::arg("threads"),
             "The number of edges of each row of (indptr, indices, name, overlay or None).");
  module.def("count_remaining", &remaining, nb::arg("known_positives").noconvert(), nb::arg("num_items"),
             nb::arg("exclude_query"), nb::arg("threads"),
             "Number of items that are no known positives of each row of (indptr, indices, name, overlay or None).");
}

}  // namespace graphbox::bind
