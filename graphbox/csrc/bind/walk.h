// Arguments of walks, as Python passes them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "bind/arrays.h"
#include "sample/walk.h"
#include "sample/walk_windows.h"

namespace graphbox::bind {

using OptionalArray = std::optional<InputArray<std::int64_t>>;
using DrawKey = std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>;  // seed, epoch, batch

// Arguments of a walk, without its walkers.
struct PlanArrays {
  WalkRequest request;
};

// Walkers: the start of each, and optionally its first step, its path and its start time.
struct WalkerArrays {
  InputArray<std::int64_t> start;
  OptionalArray second;
  OptionalArray path_of;
  OptionalArray times;
  std::int64_t first_position;
};

WalkRequest with_walkers(const PlanArrays& plan, const WalkerArrays& walkers, const DrawKey& key, int threads);

// Arguments for making pairs of walks: the window, offsets of the columns of each path, whether windows are drawn, and
// the share of each key to keep.
using PerColumn = std::optional<InputArray<std::int64_t, 2>>;
using PairTuple = std::tuple<std::int64_t, PerColumn, bool, std::optional<InputArray<double>>>;

SkipGramRequest skip_gram_request(const PairTuple& arguments, std::size_t paths, std::int64_t width, const DrawKey& key,
                                  int threads);

}  // namespace graphbox::bind
