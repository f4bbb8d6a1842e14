#include "bind/bag.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "bind/arrays.h"
#include "bind/released_gil.h"
#include "table/ordered_sum.h"

namespace graphbox::bind {
namespace {

using Offsets = InputArray<std::int64_t>;
using Factors = std::optional<InputArray<float>>;

void check_offsets(const Offsets& offsets, std::int64_t keys) {
  const std::span<const std::int64_t> values = view(offsets);
  if (values.empty() || values.front() != 0 || values.back() != keys ||
      !std::is_sorted(values.begin(), values.end())) {
    throw Error(ErrorKind::kUsage,
                "offsets must begin with 0, never fall, and end with the number of keys, " + std::to_string(keys),
                "offsets");
  }
}

const float* factors(const Factors& array, std::size_t count, const char* name) {
  if (!array) {
    return nullptr;
  }
  if (array->shape(0) != count) {
    throw Error(ErrorKind::kUsage,
                "expected " + std::to_string(count) + " factors, received " + std::to_string(array->shape(0)), name);
  }
  return array->data();
}

Bags bags_of(const Offsets& offsets, const Factors& weights, const Factors& divisors, std::size_t keys) {
  check_offsets(offsets, static_cast<std::int64_t>(keys));
  const std::size_t count = offsets.shape(0) - 1;
  return {offsets.data(), static_cast<std::int64_t>(count), factors(weights, keys, "weights"),
          factors(divisors, count, "divisors")};
}

void check_rows(const char* name, std::size_t rows, std::size_t values, std::int64_t count, std::uint64_t dim) {
  if (rows != static_cast<std::size_t>(count) || values != dim) {
    throw Error(ErrorKind::kUsage,
                std::string(name) + " must have shape (" + std::to_string(count) + ", " + std::to_string(dim) +
                    "), received (" + std::to_string(rows) + ", " + std::to_string(values) + ")",
                name);
  }
}

PulledRows pull_bags(Table& self, InputArray<std::int64_t> keys, Offsets offsets, Factors weights, Factors divisors,
                     OutputArray<float, 2> out, bool create, int threads) {
  const Bags bags = bags_of(offsets, weights, divisors, keys.shape(0));
  check_rows("out", out.shape(0), out.shape(1), bags.count, self.config().dim);
  const ReleasedGil release;
  return self.pull_bags(keys.data(), static_cast<std::int64_t>(keys.shape(0)), bags, out.data(), create, threads);
}

void push_bags(Table& self, const PulledRows& rows, std::optional<Offsets> offsets, Factors weights, Factors divisors,
               InputArray<float, 2> gradients, int threads) {
  const std::int64_t keys = rows.rows.size();
  if (!offsets) {
    check_rows("grads", gradients.shape(0), gradients.shape(1), keys, self.config().dim);
    const ReleasedGil release;
    self.push_rows(rows, {gradients.data(), keys, keys}, threads);
    return;
  }
  const Bags bags = bags_of(*offsets, weights, divisors, static_cast<std::size_t>(keys));
  check_rows("grads", gradients.shape(0), gradients.shape(1), bags.count, self.config().dim);
  const ReleasedGil release;
  self.push_bags(rows, bags, gradients.data(), threads);
}

PulledRows joined(const std::vector<const PulledRows*>& parts) {
  refuse_none(parts, "parts");
  const ReleasedGil release;
  return PulledRows::joined(parts);
}

}  // namespace

void add_pulled_rows(nb::module_& module) {
  nb::class_<PulledRows>(module, "PulledRows", "Where the rows of some keys are.")
      .def("__len__", [](const PulledRows& self) { return self.rows.size(); })
      .def_static("joined", &joined, nb::arg("parts"), "Those of several pulls of one table, one after another.");
}

void add_bags(nb::module_& module, nb::class_<Table>& table) {
  module.attr("SUMMED_TOGETHER") = kSummedTogether;
  table
      .def("pull_bags", &pull_bags, nb::arg("keys").noconvert(), nb::arg("offsets").noconvert(),
           nb::arg("weights").noconvert().none(), nb::arg("divisors").noconvert().none(), nb::arg("out").noconvert(),
           nb::arg("create"), nb::arg("threads"),
           "Sums of rows into an array of the caller; returns where the rows are.")
      .def("push_bags", &push_bags, nb::arg("rows"), nb::arg("offsets").noconvert().none(),
           nb::arg("weights").noconvert().none(), nb::arg("divisors").noconvert().none(),
           nb::arg("grads").noconvert(), nb::arg("threads"),
           "Push gradients of sums, or of the rows themselves.")
      .def_prop_ro("changes", &Table::changes, nb::call_guard<ReleasedGil>(),
                   "Number of times that values of rows changed or rows lost their keys.");
}

}  // namespace graphbox::bind
