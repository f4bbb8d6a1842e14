// Single steps of walkers, whose lists are read from disk, for Python.
#include "sample/walk_step.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "bind/walk.h"
#include "sample/node2vec.h"

namespace graphbox::bind {
namespace {

using Integers = InputArray<std::int64_t>;

StepRequest step_request(const WalkerDraws& draws, std::int64_t step, const Integers& numbers, int threads) {
  const auto walkers = view(numbers);
  const auto is_wrong = [&](std::int64_t number) { return number < 0 || number >= draws.num_walkers(); };
  if (step < 0 || step >= INT32_MAX || std::any_of(walkers.begin(), walkers.end(), is_wrong)) {
    throw Error(ErrorKind::kUsage,
                "expected a step, 0 or more, and walkers in [0, " + std::to_string(draws.num_walkers()) + ")", "numbers");
  }
  return {&draws, step, walkers, threads};
}

void check_length(std::size_t length, const StepRequest& request, const char* name) {
  if (length != request.numbers.size()) {
    throw Error(ErrorKind::kUsage,
                "expected one for each of " + std::to_string(request.numbers.size()) + " walkers, received " +
                    std::to_string(length),
                name);
  }
}

NumpyArray<std::int64_t> any_edges(const WalkerDraws& draws, std::int64_t step, const Integers& numbers,
                                   const InputArray<std::int64_t, 2>& bounds, int threads) {
  const StepRequest request = step_request(draws, step, numbers, threads);
  check_length(bounds.shape(1) == 2 ? bounds.shape(0) : 0, request, "bounds");
  PooledArray<std::int64_t> positions(std::ssize(request.numbers));
  {
    const ReleasedGil release;
    choose_any(request, bounds.data(), positions.data());
  }
  return to_numpy(std::move(positions));
}

NumpyArray<std::int64_t> weighted_edges(const WalkerDraws& draws, std::int64_t step, const Integers& numbers,
                                        const Integers& rows, const AliasTables& weights, int threads) {
  const StepRequest request = step_request(draws, step, numbers, threads);
  check_length(rows.shape(0), request, "rows");
  PooledArray<std::int64_t> positions(std::ssize(request.numbers));
  {
    const ReleasedGil release;
    choose_by_weight(request, view(rows), weights, positions.data());
  }
  return to_numpy(std::move(positions));
}

NumpyArray<std::int64_t> next_nodes(const WalkerDraws& draws, std::int64_t step, const Integers& numbers,
                                    const Integers& indptr, const AnyInputArray& indices, const AliasTables* weights,
                                    std::int64_t num_nodes, const std::tuple<Integers, Integers, Integers>& places,
                                    const std::tuple<double, double, std::int64_t>& p_q_parallel,
                                    const std::string& name, int threads) {
  const StepRequest request = step_request(draws, step, numbers, threads);
  const auto& [rows, previous, previous_rows] = places;
  for (const Integers* each : {&rows, &previous, &previous_rows}) {
    check_length(each->shape(0), request, "rows");
  }
  WalkStep lists;
  lists.edges = to_adjacency(indptr, indices, name);
  lists.weights = weights;
  if (weights != nullptr && weights->num_edges() != lists.edges.num_edges) {
    throw Error(ErrorKind::kUsage, "expected a weight for each edge", "weights");
  }
  const auto& [p, q, most_parallel] = p_q_parallel;
  if (!(p >= 1e-30 && p <= 1e30 && q >= 1e-30 && q <= 1e30) || most_parallel < 1) {
    throw Error(ErrorKind::kUsage, "expected p and q from 1e-30 to 1e30, and 1 parallel edge or more", "p");
  }
  const FetchedLists fetched = {&lists, num_nodes, view(rows), view(previous), view(previous_rows)};
  PooledArray<std::int64_t> next(std::ssize(request.numbers));
  {
    const ReleasedGil release;
    node2vec_step(request, fetched, p, q, most_parallel, next.data());
  }
  return to_numpy(std::move(next));
}

}  // namespace

void add_walk_step(nb::module_& module) {
  nb::class_<WalkerDraws>(module, "WalkerDraws",
                          "The draws of the walkers of batches: those of number i are offsets[i] to offsets[i + 1] - 1.")
      .def(
          "__init__",
          [](WalkerDraws* self, const DrawKey& key, const Integers& offsets, std::int64_t first_position) {
            const auto [seed, epoch, first_batch] = key;
            new (self) WalkerDraws(seed, epoch, first_batch, view(offsets), first_position);
          },
          nb::arg("key"), nb::arg("offsets").noconvert(), nb::arg("first_position") = 0);
  module.def("walk_any_edges", &any_edges, nb::arg("draws"), nb::arg("step"), nb::arg("numbers").noconvert(),
             nb::arg("bounds").noconvert(), nb::arg("threads"),
             "The position of the edge that each walker takes at a step, int64[n], -1 for none; bounds are int64[n, 2].");
  module.def("walk_weighted_edges", &weighted_edges, nb::arg("draws"), nb::arg("step"), nb::arg("numbers").noconvert(),
             nb::arg("rows").noconvert(), nb::arg("weights"), nb::arg("threads"),
             "The same in proportion to weights, of the rows of alias tables: positions in these.");
  module.def("walk_next_nodes", &next_nodes, nb::arg("draws"), nb::arg("step"), nb::arg("numbers").noconvert(),
             nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("weights").none(),
             nb::arg("num_nodes"), nb::arg("places").noconvert(), nb::arg("p_q_parallel"), nb::arg("name"),
             nb::arg("threads"),
             "The nodes that walkers which look back step to, int64[n], -1 for none. Places are the row of the node that\n"
             "each is at, the node before (-1: none) and its row.");
}

}  // namespace graphbox::bind
