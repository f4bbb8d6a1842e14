// Walks and skip-gram pairs for Python.
#include "sample/walk.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "sample/node2vec.h"
#include "sample/pairs.h"

namespace graphbox::bind {
namespace {

using Step = std::tuple<InputArray<std::int64_t>, AnyInputArray, std::string, std::optional<const OverlayArrays*>>;

struct WalkArguments {
  double p;
  double q;
  double restart_probability;
};

void check_arguments(const WalkArguments& arguments, std::size_t steps, std::int64_t length) {
  if (steps == 0 || length < 0 || length > INT32_MAX) {
    throw Error(ErrorKind::kUsage, "a walk needs at least one adjacency and a length from 0 to 2^31 - 1, received " +
                                       std::to_string(steps) + " and " + std::to_string(length));
  }
  const auto in_range = [](double value) { return value >= 1e-30 && value <= 1e30; };
  if (!in_range(arguments.p) || !in_range(arguments.q)) {
    throw Error(ErrorKind::kUsage, "p and q must be from 1e-30 to 1e30, received " + std::to_string(arguments.p) +
                                       " and " + std::to_string(arguments.q));
  }
  if (!(arguments.restart_probability >= 0 && arguments.restart_probability < 1)) {
    throw Error(ErrorKind::kUsage,
                "a restart probability must be at least 0 and below 1, received " +
                    std::to_string(arguments.restart_probability),
                "restart_probability");
  }
  if (steps > 1 && (arguments.p != 1 || arguments.q != 1 || arguments.restart_probability > 0)) {
    throw Error(ErrorKind::kUsage, "p, q and restarts need one adjacency, received " + std::to_string(steps));
  }
}

WalkRequest walk_request(const std::vector<Step>& steps, const InputArray<std::int64_t>& start, std::int64_t length,
                         const std::tuple<double, double, double>& p_q_restart, std::int64_t most_parallel,
                         std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch, int threads) {
  const auto [p, q, restart_probability] = p_q_restart;
  check_arguments({p, q, restart_probability}, steps.size(), length);
  WalkRequest request;
  for (const auto& [indptr, indices, name, overlay] : steps) {
    request.steps.push_back(to_adjacency(indptr, indices, name, overlay.value_or(nullptr)));
  }
  request.start = view(start);
  request.length = length;
  request.key = derive_key(Stream::kWalk, seed, epoch, batch);
  request.threads = threads;
  request.p = p;
  request.q = q;
  request.restart_probability = restart_probability;
  request.most_parallel = most_parallel;
  return request;
}

NumpyArray<std::int64_t, 2> walk(const std::vector<Step>& steps, InputArray<std::int64_t> start, std::int64_t length,
                                 const std::tuple<double, double, double>& p_q_restart, std::int64_t most_parallel,
                                 std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch, int threads) {
  const WalkRequest request =
      walk_request(steps, start, length, p_q_restart, most_parallel, seed, epoch, batch, threads);
  PooledArray<std::int64_t> walks;
  {
    const nb::gil_scoped_release release;
    walks.resize(static_cast<std::int64_t>(request.start.size()) * (length + 1));
    random_walks(request, walks.data());
  }
  const std::size_t shape[2] = {request.start.size(), static_cast<std::size_t>(length) + 1};
  return to_numpy<std::int64_t, 2>(std::move(walks), shape);
}

std::int64_t most_parallel(const Step& step, int threads) {
  const auto& [indptr, indices, name, overlay] = step;
  const Adjacency edges = to_adjacency(indptr, indices, name, overlay.value_or(nullptr));
  const nb::gil_scoped_release release;
  return most_parallel_edges(edges, threads);
}

// How pairs are made of walks.
struct PairArguments {
  std::int64_t window;
  const std::optional<InputArray<std::int64_t>>& column_offsets;
  bool dynamic_window;
  const std::optional<InputArray<double>>& keep;
};

SkipGramRequest skip_gram_request(const PairArguments& arguments, std::int64_t width, std::uint64_t seed,
                                  std::uint32_t epoch, std::uint64_t batch, int threads) {
  const auto& [window, column_offsets, dynamic_window, keep] = arguments;
  if (window < 1 || window > INT32_MAX) {
    throw Error(ErrorKind::kUsage, "window must be 1 or more, received " + std::to_string(window), "window");
  }
  if (column_offsets && static_cast<std::int64_t>(column_offsets->shape(0)) != width) {
    throw Error(ErrorKind::kUsage,
                "column_offsets must have one entry for each column of walks: " + std::to_string(width) +
                    ", received " + std::to_string(column_offsets->shape(0)),
                "column_offsets");
  }
  SkipGramRequest request;
  request.width = width;
  request.window = window;
  request.column_offsets = column_offsets ? column_offsets->data() : nullptr;
  request.dynamic_window = dynamic_window;
  request.keep = keep ? keep->data() : nullptr;
  request.num_keep = keep ? static_cast<std::int64_t>(keep->shape(0)) : 0;
  request.key = derive_key(Stream::kWindow, seed, epoch, batch);
  request.threads = threads;
  return request;
}

using Pairs = std::pair<NumpyArray<std::int64_t>, NumpyArray<std::int64_t>>;

Pairs skip_gram_pairs(InputArray<std::int64_t, 2> walks, std::int64_t window,
                      std::optional<InputArray<std::int64_t>> column_offsets, bool dynamic_window,
                      std::optional<InputArray<double>> keep, std::uint64_t seed, std::uint32_t epoch,
                      std::uint64_t batch, int threads) {
  SkipGramRequest request =
      skip_gram_request({window, column_offsets, dynamic_window, keep}, static_cast<std::int64_t>(walks.shape(1)), seed,
                        epoch, batch, threads);
  request.walks = walks.data();
  request.num_walks = static_cast<std::int64_t>(walks.shape(0));
  PooledArray<std::int64_t> centers;
  PooledArray<std::int64_t> contexts;
  {
    const nb::gil_scoped_release release;
    const SkipGramPairs pairs(request);
    centers.resize(pairs.count());
    contexts.resize(pairs.count());
    pairs.write(centers.data(), contexts.data());
  }
  return {to_numpy(std::move(centers)), to_numpy(std::move(contexts))};
}

std::int64_t skip_gram_pairs_into(InputArray<std::int64_t, 2> walks, std::int64_t window,
                                  std::optional<InputArray<std::int64_t>> column_offsets, bool dynamic_window,
                                  std::optional<InputArray<double>> keep, std::uint64_t seed, std::uint32_t epoch,
                                  std::uint64_t batch, int threads, OutputArray<std::int64_t> centers,
                                  OutputArray<std::int64_t> contexts) {
  SkipGramRequest request =
      skip_gram_request({window, column_offsets, dynamic_window, keep}, static_cast<std::int64_t>(walks.shape(1)), seed,
                        epoch, batch, threads);
  request.walks = walks.data();
  request.num_walks = static_cast<std::int64_t>(walks.shape(0));
  const nb::gil_scoped_release release;
  const SkipGramPairs pairs(request);
  const auto room = static_cast<std::int64_t>(std::min(centers.shape(0), contexts.shape(0)));
  if (pairs.count() > room) {
    throw Error(ErrorKind::kUsage,
                "out must have room for " + std::to_string(pairs.count()) + " pairs, received " + std::to_string(room),
                "out", "give fewer walks at a time or longer arrays");
  }
  pairs.write(centers.data(), contexts.data());
  return pairs.count();
}

Pairs walk_pairs(const std::vector<Step>& steps, InputArray<std::int64_t> start, std::int64_t first_position,
                 std::int64_t length, const std::tuple<double, double, double>& p_q_restart,
                 std::int64_t most_parallel, std::int64_t window,
                 std::optional<InputArray<std::int64_t>> column_offsets, bool dynamic_window,
                 std::optional<InputArray<double>> keep, std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch,
                 int threads) {
  WalkRequest request = walk_request(steps, start, length, p_q_restart, most_parallel, seed, epoch, batch, threads);
  request.first_position = first_position;
  SkipGramRequest pair_request = skip_gram_request({window, column_offsets, dynamic_window, keep}, length + 1, seed,
                                                   epoch, batch, threads);
  PooledArray<std::int64_t> centers;
  PooledArray<std::int64_t> contexts;
  {
    const nb::gil_scoped_release release;
    const auto walkers = static_cast<std::int64_t>(request.start.size());
    PooledArray<std::int64_t> walks(walkers * (length + 1));
    random_walks(request, walks.data());
    pair_request.walks = walks.data();
    pair_request.num_walks = walkers;
    pair_request.first_position = first_position;
    const SkipGramPairs pairs(pair_request);
    centers.resize(pairs.count());
    contexts.resize(pairs.count());
    pairs.write(centers.data(), contexts.data());
  }
  return {to_numpy(std::move(centers)), to_numpy(std::move(contexts))};
}

}  // namespace

void add_walk(nb::module_& module) {
  module.def("random_walks", &walk, nb::arg("steps").noconvert(), nb::arg("start").noconvert(), nb::arg("length"),
             nb::arg("p_q_restart"), nb::arg("most_parallel"), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"),
             nb::arg("threads"),
             "Walk along (indptr, indices, name, overlay or None) of each step, cycled: int64[n, length + 1], -1 "
             "after a dead end.");
  module.def("most_parallel_edges", &most_parallel, nb::arg("step").noconvert(), nb::arg("threads"),
             "The most edges from one node to another; an error where a list does not ascend.");
  module.def("skip_gram_pairs", &skip_gram_pairs, nb::arg("walks").noconvert(), nb::arg("window"),
             nb::arg("column_offsets").noconvert().none(), nb::arg("dynamic_window"),
             nb::arg("keep").noconvert().none(), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"),
             nb::arg("threads"), "All (centre, context) pairs within the window, two int64[pairs].");
  module.def("skip_gram_pairs_into", &skip_gram_pairs_into, nb::arg("walks").noconvert(), nb::arg("window"),
             nb::arg("column_offsets").noconvert().none(), nb::arg("dynamic_window"),
             nb::arg("keep").noconvert().none(), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"),
             nb::arg("threads"), nb::arg("centers").noconvert(), nb::arg("contexts").noconvert(),
             "The same into arrays of the caller; returns the number of pairs.");
  module.def("walk_pairs", &walk_pairs, nb::arg("steps").noconvert(), nb::arg("start").noconvert(),
             nb::arg("first_position"), nb::arg("length"), nb::arg("p_q_restart"), nb::arg("most_parallel"),
             nb::arg("window"), nb::arg("column_offsets").noconvert().none(), nb::arg("dynamic_window"),
             nb::arg("keep").noconvert().none(), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"),
             nb::arg("threads"), "The pairs of random_walks(), which are held only meanwhile.");
}

}  // namespace graphbox::bind
