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

namespace graphbox::bind {
namespace {

using Step = std::tuple<InputArray<std::int64_t>, AnyInputArray, std::string, std::optional<const OverlayArrays*>>;

NumpyArray<std::int64_t, 2> walk(const std::vector<Step>& steps, InputArray<std::int64_t> start, std::int64_t length,
                                 std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch, int threads) {
  if (steps.empty() || length < 0 || length > INT32_MAX) {
    throw Error(ErrorKind::kUsage, "a walk needs at least one adjacency and a length from 0 to 2^31 - 1, received " +
                                       std::to_string(steps.size()) + " and " + std::to_string(length));
  }
  WalkRequest request;
  for (const auto& [indptr, indices, name, overlay] : steps) {
    request.steps.push_back(to_adjacency(indptr, indices, name, overlay.value_or(nullptr)));
  }
  request.start = view(start);
  request.length = length;
  request.key = derive_key(Stream::kWalk, seed, epoch, batch);
  request.threads = threads;
  PooledArray<std::int64_t> walks;
  {
    const nb::gil_scoped_release release;
    walks.resize(static_cast<std::int64_t>(request.start.size()) * (length + 1));
    random_walks(request, walks.data());
  }
  const std::size_t shape[2] = {request.start.size(), static_cast<std::size_t>(length) + 1};
  return to_numpy<std::int64_t, 2>(std::move(walks), shape);
}

SkipGramRequest skip_gram_request(const InputArray<std::int64_t, 2>& walks, std::int64_t window,
                                  const std::optional<InputArray<std::int64_t>>& column_offsets, bool dynamic_window,
                                  std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch, int threads) {
  if (window < 1 || window > INT32_MAX) {
    throw Error(ErrorKind::kUsage, "window must be 1 or more, received " + std::to_string(window), "window");
  }
  if (column_offsets && column_offsets->shape(0) != walks.shape(1)) {
    throw Error(ErrorKind::kUsage,
                "column_offsets must have one entry for each column of walks: " + std::to_string(walks.shape(1)) +
                    ", received " + std::to_string(column_offsets->shape(0)),
                "column_offsets");
  }
  SkipGramRequest request;
  request.walks = walks.data();
  request.num_walks = static_cast<std::int64_t>(walks.shape(0));
  request.width = static_cast<std::int64_t>(walks.shape(1));
  request.window = window;
  request.column_offsets = column_offsets ? column_offsets->data() : nullptr;
  request.dynamic_window = dynamic_window;
  request.key = derive_key(Stream::kWindow, seed, epoch, batch);
  request.threads = threads;
  return request;
}

std::pair<NumpyArray<std::int64_t>, NumpyArray<std::int64_t>> skip_gram_pairs(
    InputArray<std::int64_t, 2> walks, std::int64_t window, std::optional<InputArray<std::int64_t>> column_offsets,
    bool dynamic_window, std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch, int threads) {
  const SkipGramRequest request =
      skip_gram_request(walks, window, column_offsets, dynamic_window, seed, epoch, batch, threads);
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
                                  std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch, int threads,
                                  OutputArray<std::int64_t> centers, OutputArray<std::int64_t> contexts) {
  const SkipGramRequest request =
      skip_gram_request(walks, window, column_offsets, dynamic_window, seed, epoch, batch, threads);
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

}  // namespace

void add_walk(nb::module_& module) {
  module.def("random_walks", &walk, nb::arg("steps").noconvert(), nb::arg("start").noconvert(), nb::arg("length"),
             nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"), nb::arg("threads"),
             "Walk along (indptr, indices, name, overlay or None) of each step, cycled: int64[n, length + 1], -1 after a dead end.");
  module.def("skip_gram_pairs", &skip_gram_pairs, nb::arg("walks").noconvert(), nb::arg("window"),
             nb::arg("column_offsets").noconvert().none(), nb::arg("dynamic_window"), nb::arg("seed"), nb::arg("epoch"),
             nb::arg("batch"), nb::arg("threads"), "All (centre, context) pairs within the window, two int64[pairs].");
  module.def("skip_gram_pairs_into", &skip_gram_pairs_into, nb::arg("walks").noconvert(), nb::arg("window"),
             nb::arg("column_offsets").noconvert().none(), nb::arg("dynamic_window"), nb::arg("seed"), nb::arg("epoch"),
             nb::arg("batch"), nb::arg("threads"), nb::arg("centers").noconvert(), nb::arg("contexts").noconvert(),
             "The same into arrays of the caller; returns the number of pairs.");
}

}  // namespace graphbox::bind
