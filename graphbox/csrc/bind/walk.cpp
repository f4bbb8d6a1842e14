// Walks, the skip-gram pairs and the most visited nodes of walks for Python.
#include "bind/walk.h"
#include "bind/released_gil.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "sample/node2vec.h"
#include "sample/pairs.h"
#include "sample/ppr.h"

namespace graphbox::bind {
namespace {

// Keeps the arrays of a step alive.
struct StepArrays {
  InputArray<std::int64_t> indptr;
  AnyInputArray indices;
  WalkStep step;
};

// A table must have an entry for each edge.
template <typename Tables>
void check_tables(const Adjacency& edges, const Tables* base, const Tables* overlay) {
  if (base == nullptr) {
    return;
  }
  const std::int64_t in_overlay = edges.overlay != nullptr ? edges.overlay->num_edges() : 0;
  if (base->num_edges() != edges.num_edges || (overlay != nullptr ? overlay->num_edges() : 0) != in_overlay) {
    throw Error(ErrorKind::kUsage,
                "expected a weight or timestamp for each of " + std::to_string(edges.num_edges) + " edges and " +
                    std::to_string(in_overlay) + " changed ones, received " + std::to_string(base->num_edges()) +
                    " and " + std::to_string(overlay != nullptr ? overlay->num_edges() : 0),
                edges.name);
  }
}

struct PlanArguments {
  std::int64_t length;
  double p;
  double q;
  double restart_probability;
};

void check_arguments(const std::vector<std::vector<const StepArrays*>>& paths, const PlanArguments& arguments) {
  for (const auto& path : paths) {
    refuse_none(path, "paths");
  }
  const bool sound =
      !paths.empty() && std::none_of(paths.begin(), paths.end(), [](auto& path) { return path.empty(); });
  if (!sound || arguments.length < 0 || arguments.length > INT32_MAX) {
    throw Error(ErrorKind::kUsage, "a walk needs at least one adjacency and a length from 0 to 2^31 - 1, received " +
                                       std::to_string(arguments.length));
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
  const bool plain = arguments.p == 1 && arguments.q == 1 && arguments.restart_probability == 0;
  if (!plain && (paths.size() > 1 || paths.front().size() > 1)) {
    throw Error(ErrorKind::kUsage, "p, q and restarts need one adjacency");
  }
}

}  // namespace

WalkRequest with_walkers(const PlanArrays& plan, const WalkerArrays& walkers, const DrawKey& key, int threads) {
  WalkRequest request = plan.request;
  const auto view_of = [&](const OptionalArray& array, const char* name) -> std::span<const std::int64_t> {
    if (!array) {
      return {};
    }
    if (array->shape(0) != walkers.start.shape(0)) {
      throw Error(ErrorKind::kUsage,
                  "expected one for each of " + std::to_string(walkers.start.shape(0)) + " walkers, received " +
                      std::to_string(array->shape(0)),
                  name);
    }
    return view(*array);
  };
  request.start = view(walkers.start);
  request.second = view_of(walkers.second, "second");
  request.path_of = view_of(walkers.path_of, "metapath_of");
  request.times = view_of(walkers.times, "start_time");
  if (request.path_of.empty() != (request.paths.size() == 1) && !request.start.empty()) {
    throw Error(ErrorKind::kUsage, "several paths, and only several, need the one of each walker", "metapath_of");
  }
  if (!request.second.empty() && request.length == 0) {
    throw Error(ErrorKind::kUsage, "walks that are told where to go first need at least one step", "second");
  }
  const auto [seed, epoch, batch] = key;
  request.key = derive_key(Stream::kWalk, seed, epoch, batch);
  request.first_position = walkers.first_position;
  request.threads = threads;
  return request;
}

namespace {

NumpyArray<std::int64_t, 2> walk(const PlanArrays& plan, const WalkerArrays& walkers, const DrawKey& key, int threads) {
  const WalkRequest request = with_walkers(plan, walkers, key, threads);
  const std::int64_t width = request.length + 1;
  PooledArray<std::int64_t> walks;
  {
    const ReleasedGil release;
    walks.resize(static_cast<std::int64_t>(request.start.size()) * width);
    random_walks(request, walks.data());
  }
  const std::size_t shape[2] = {request.start.size(), static_cast<std::size_t>(width)};
  return to_numpy<std::int64_t, 2>(std::move(walks), shape);
}

std::int64_t most_parallel(const StepArrays& step, int threads) {
  const ReleasedGil release;
  return most_parallel_edges(step.step.edges, threads);
}

const std::int64_t* checked_columns(const PerColumn& columns, std::size_t paths, std::int64_t width, const char* name) {
  if (!columns) {
    return nullptr;
  }
  if (columns->shape(0) != paths || static_cast<std::int64_t>(columns->shape(1)) != width) {
    throw Error(ErrorKind::kUsage,
                std::string(name) + " must have one entry for each column of walks: " + std::to_string(width) +
                    ", received " + std::to_string(columns->shape(1)),
                name);
  }
  return columns->data();
}

}  // namespace

SkipGramRequest skip_gram_request(const PairTuple& arguments, std::size_t paths, std::int64_t width, const DrawKey& key,
                                  int threads) {
  const auto& [window, column_offsets, dynamic_window, keep] = arguments;
  if (window < 1 || window > INT32_MAX) {
    throw Error(ErrorKind::kUsage, "window must be 1 or more, received " + std::to_string(window), "window");
  }
  SkipGramRequest request;
  request.width = width;
  request.window = window;
  request.column_offsets = checked_columns(column_offsets, paths, width, "column_offsets");
  request.dynamic_window = dynamic_window;
  request.keep = keep ? keep->data() : nullptr;
  request.num_keep = keep ? static_cast<std::int64_t>(keep->shape(0)) : 0;
  const auto [seed, epoch, batch] = key;
  request.key = derive_key(Stream::kWindow, seed, epoch, batch);
  request.threads = threads;
  return request;
}

namespace {

// Of walks that are given, not made.
SkipGramRequest given_walks_request(const InputArray<std::int64_t, 2>& walks, const PairTuple& arguments,
                                    const DrawKey& key, int threads) {
  SkipGramRequest request = skip_gram_request(arguments, 1, static_cast<std::int64_t>(walks.shape(1)), key, threads);
  request.walks = walks.data();
  request.num_walks = static_cast<std::int64_t>(walks.shape(0));
  return request;
}

using Pairs = std::pair<NumpyArray<std::int64_t>, NumpyArray<std::int64_t>>;

// The pairs, while they are made.
struct PairArrays {
  PooledArray<std::int64_t> centers;
  PooledArray<std::int64_t> contexts;

  void fill(const SkipGramRequest& request) {
    const SkipGramPairs pairs(request);
    centers.resize(pairs.count());
    contexts.resize(pairs.count());
    pairs.write({centers.data(), contexts.data()});
  }

  Pairs to_python() { return {to_numpy(std::move(centers)), to_numpy(std::move(contexts))}; }
};

Pairs skip_gram_pairs(InputArray<std::int64_t, 2> walks, const PairTuple& arguments, const DrawKey& key, int threads) {
  const SkipGramRequest request = given_walks_request(walks, arguments, key, threads);
  PairArrays pairs;
  {
    const ReleasedGil release;
    pairs.fill(request);
  }
  return pairs.to_python();
}

Pairs walk_pairs(const PlanArrays& plan, const WalkerArrays& walkers, const PairTuple& arguments, const DrawKey& key,
                 int threads) {
  const WalkRequest request = with_walkers(plan, walkers, key, threads);
  const std::int64_t width = request.length + 1;
  SkipGramRequest pair_request = skip_gram_request(arguments, request.paths.size(), width, key, threads);
  pair_request.num_walks = static_cast<std::int64_t>(request.start.size());
  pair_request.path_of = request.path_of.empty() ? nullptr : request.path_of.data();
  pair_request.first_position = request.first_position;
  PairArrays pairs;
  {
    const ReleasedGil release;
    PooledArray<std::int64_t> walks(pair_request.num_walks * width);
    random_walks(request, walks.data());
    pair_request.walks = walks.data();
    pairs.fill(pair_request);
  }
  return pairs.to_python();
}

using Visited = std::pair<NumpyArray<std::int64_t, 2>, NumpyArray<std::int64_t, 2>>;

Visited ppr(const std::vector<const StepArrays*>& round, InputArray<std::int64_t> nodes,
            const std::tuple<std::int64_t, std::int64_t, std::int64_t>& walks_rounds_neighbors,
            double restart_probability, const DrawKey& key, int threads) {
  refuse_none(round, "round");
  PprRequest request;
  for (const StepArrays* step : round) {
    request.round.push_back(step->step);
  }
  request.nodes = view(nodes);
  std::tie(request.num_walks, request.num_rounds, request.num_neighbors) = walks_rounds_neighbors;
  constexpr std::int64_t kMost = 1 << 24;
  const auto in_range = [](std::int64_t value) { return value >= 1 && value <= kMost; };
  if (round.empty() || !in_range(request.num_walks) || !in_range(request.num_rounds) ||
      !in_range(request.num_neighbors) || request.num_walks * request.num_rounds > kMost ||
      !(restart_probability >= 0 && restart_probability < 1)) {
    throw Error(ErrorKind::kUsage,
                "expected steps, a restart probability below 1, and 1 to 2^24 walks times their length and neighbours");
  }
  request.restart_probability = restart_probability;
  const auto [seed, epoch, batch] = key;
  request.key = derive_key(Stream::kWalk, seed, epoch, batch);
  request.threads = threads;
  PooledArray<std::int64_t> neighbors;
  PooledArray<std::int64_t> visits;
  {
    const ReleasedGil release;
    neighbors.resize(static_cast<std::int64_t>(request.nodes.size()) * request.num_neighbors);
    visits.resize(neighbors.size());
    ppr_neighbors(request, neighbors.data(), visits.data());
  }
  const std::size_t shape[2] = {request.nodes.size(), static_cast<std::size_t>(request.num_neighbors)};
  return {to_numpy<std::int64_t, 2>(std::move(neighbors), shape), to_numpy<std::int64_t, 2>(std::move(visits), shape)};
}

void add_plan(nb::module_& module) {
  nb::class_<StepArrays>(module, "WalkStep",
                         "Where walkers can go at one step: arrays, name for messages, alias tables or orders by time.")
      .def(
          "__init__",
          [](StepArrays* self, InputArray<std::int64_t> indptr, AnyInputArray indices, std::string name,
             const OverlayArrays* overlay, const AliasTables* weights, const AliasTables* overlay_weights,
             const TimeOrder* times, const TimeOrder* overlay_times) {
            WalkStep step;
            step.edges = to_adjacency(indptr, indices, std::move(name), overlay);
            check_tables(step.edges, weights, overlay_weights);
            check_tables(step.edges, times, overlay_times);
            step.weights = weights;
            step.overlay_weights = overlay_weights;
            step.times = times;
            step.overlay_times = overlay_times;
            new (self) StepArrays{std::move(indptr), std::move(indices), std::move(step)};
          },
          nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("name"),
          nb::arg("overlay").none() = nb::none(), nb::arg("weights").none() = nb::none(),
          nb::arg("overlay_weights").none() = nb::none(), nb::arg("times").none() = nb::none(),
          nb::arg("overlay_times").none() = nb::none(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(),
          nb::keep_alive<1, 7>(), nb::keep_alive<1, 8>(), nb::keep_alive<1, 9>());
  nb::class_<PlanArrays>(module, "WalkPlan", "Plan of walks: the steps of each path, cycled, and the rule of choice.")
      .def(
          "__init__",
          [](PlanArrays* self, const std::vector<std::vector<const StepArrays*>>& paths, std::int64_t length, double p,
             double q, double restart_probability, std::int64_t most_parallel, bool strictly_later,
             std::optional<std::int64_t> time_window, bool linear) {
            check_arguments(paths, {length, p, q, restart_probability});
            WalkRequest request;
            for (const auto& path : paths) {
              auto& steps = request.paths.emplace_back();
              for (const StepArrays* step : path) {
                steps.push_back(step->step);
              }
            }
            request.length = length;
            request.p = p;
            request.q = q;
            request.restart_probability = restart_probability;
            request.most_parallel = most_parallel;
            request.time_rule = {strictly_later, time_window.value_or(TimeRule::kNoWindow),
                                 linear ? TimeChoice::kLinear : TimeChoice::kUniform};
            new (self) PlanArrays{std::move(request)};
          },
          nb::arg("paths"), nb::arg("length"), nb::arg("p") = 1.0, nb::arg("q") = 1.0,
          nb::arg("restart_probability") = 0.0, nb::arg("most_parallel") = 1, nb::arg("strictly_later") = false,
          nb::arg("time_window").none() = nb::none(), nb::arg("linear") = false, nb::keep_alive<1, 2>());
  nb::class_<WalkerArrays>(module, "Walkers", "Where walkers start; where they go first, along which path, from when.")
      .def(
          "__init__",
          [](WalkerArrays* self, InputArray<std::int64_t> start, OptionalArray second, OptionalArray path_of,
             OptionalArray times, std::int64_t first_position) {
            new (self)
                WalkerArrays{std::move(start), std::move(second), std::move(path_of), std::move(times), first_position};
          },
          nb::arg("start").noconvert(), nb::arg("second").noconvert().none() = nb::none(),
          nb::arg("path_of").noconvert().none() = nb::none(), nb::arg("times").noconvert().none() = nb::none(),
          nb::arg("first_position") = 0);
}

}  // namespace

void add_walk(nb::module_& module) {
  add_plan(module);
  module.def("random_walks", &walk, nb::arg("plan"), nb::arg("walkers"), nb::arg("key"), nb::arg("threads"),
             "Walk, with draws of (seed, epoch, batch): int64[n, length + 1], -1 after a dead end.");
  module.def("most_parallel_edges", &most_parallel, nb::arg("step"), nb::arg("threads"),
             "The most edges from one node to another; an error where a list does not ascend.");
  module.def("skip_gram_pairs", &skip_gram_pairs, nb::arg("walks").noconvert(), nb::arg("arguments").noconvert(),
             nb::arg("key"), nb::arg("threads"),
             "All (centre, context) pairs, two int64[pairs]. Arguments are the window, offsets of columns\n"
             "[paths, width] or None, whether windows are drawn, and shares to keep or None.");
  module.def("walk_pairs", &walk_pairs, nb::arg("plan"), nb::arg("walkers"), nb::arg("arguments").noconvert(),
             nb::arg("key"), nb::arg("threads"),
             "The pairs of random_walks(), which are held only meanwhile.");
  module.def("ppr_neighbors", &ppr, nb::arg("round"), nb::arg("nodes").noconvert(), nb::arg("walks_rounds_neighbors"),
             nb::arg("restart_probability"), nb::arg("key"), nb::arg("threads"),
             "The nodes that walks from each node visit most, -1 where there are no more, and how often: two int64[n, "
             "neighbours].");
}

}  // namespace graphbox::bind
