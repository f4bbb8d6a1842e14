// The embedding table for Python.
#include "table/table.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <array>
#include <string_view>

#include "bind/arrays.h"
#include "bind/nouns.h"

namespace graphbox::bind {
namespace {

constexpr std::array<std::pair<const char*, Optimizer>, kOptimizers> kOptimizerNames = {{
    {"sgd", Optimizer::kSgd},
    {"adagrad", Optimizer::kAdagrad},
    {"rowwise_adagrad", Optimizer::kRowwiseAdagrad},
    {"adam", Optimizer::kAdam},
    {"rowwise_adam", Optimizer::kRowwiseAdam},
    {"ftrl", Optimizer::kFtrl},
}};

Optimizer optimizer_of(const std::string& name) {
  for (const auto& [known, optimizer] : kOptimizerNames) {
    if (name == known) {
      return optimizer;
    }
  }
  throw Error(ErrorKind::kUsage, "optimizer must be sgd, adagrad, rowwise_adagrad, adam, rowwise_adam or ftrl, received `" + name + "`",
              "optimizer");
}

const char* name_of(Optimizer optimizer) {
  for (const auto& [name, known] : kOptimizerNames) {
    if (optimizer == known) {
      return name;
    }
  }
  return "";
}

// Rows of the batch must match its keys.
template <typename Rows>
void check_rows(const char* name, const Rows& rows, std::size_t keys, std::uint64_t dim) {
  if (rows.shape(0) != keys || rows.shape(1) != dim) {
    throw Error(ErrorKind::kUsage,
                std::string(name) + " must have shape (" + std::to_string(keys) + ", " + std::to_string(dim) +
                    "), received (" + std::to_string(rows.shape(0)) + ", " + std::to_string(rows.shape(1)) + ")",
                name);
  }
}

std::int64_t count_of(const InputArray<std::int64_t>& keys) { return static_cast<std::int64_t>(keys.shape(0)); }

NumpyArray<float, 2> pull(Table& self, InputArray<std::int64_t> keys, bool create, int threads) {
  const std::uint64_t dim = self.config().dim;
  PooledArray<float> out(count_of(keys) * static_cast<std::int64_t>(dim));
  {
    const nb::gil_scoped_release release;
    self.pull(keys.data(), count_of(keys), out.data(), create, threads);
  }
  const std::size_t shape[2] = {keys.shape(0), static_cast<std::size_t>(dim)};
  return to_numpy<float, 2>(std::move(out), shape);
}

void pull_into(Table& self, InputArray<std::int64_t> keys, OutputArray<float, 2> out, bool create, int threads) {
  check_rows("out", out, keys.shape(0), self.config().dim);
  const nb::gil_scoped_release release;
  self.pull(keys.data(), count_of(keys), out.data(), create, threads);
}

PulledRows pull_rows(Table& self, InputArray<std::int64_t> keys, OutputArray<float, 2> out, int threads) {
  check_rows("out", out, keys.shape(0), self.config().dim);
  const nb::gil_scoped_release release;
  return self.pull_rows(keys.data(), count_of(keys), out.data(), threads);
}

void push_rows(Table& self, const PulledRows& rows, InputArray<float, 2> gradients, int threads) {
  check_rows("grads", gradients, static_cast<std::size_t>(rows.rows.size()), self.config().dim);
  const nb::gil_scoped_release release;
  self.push_rows(rows, gradients.data(), threads);
}

void push(Table& self, InputArray<std::int64_t> keys, InputArray<float, 2> gradients, int threads) {
  check_rows("grads", gradients, keys.shape(0), self.config().dim);
  const nb::gil_scoped_release release;
  self.push(keys.data(), gradients.data(), count_of(keys), threads);
}

NumpyArray<bool> contains(const Table& self, InputArray<std::int64_t> keys, int threads) {
  PooledArray<bool> out(count_of(keys));
  {
    const nb::gil_scoped_release release;
    self.contains(keys.data(), count_of(keys), out.data(), threads);
  }
  return to_numpy(std::move(out));
}

}  // namespace

void add_table(nb::module_& module) {
  nb::class_<OptimizerConfig>(module, "OptimizerConfig", "How gradients change rows.")
      .def(
          "__init__",
          [](OptimizerConfig* self, const std::string& name, float lr, float eps, float initial_accumulator,
             std::pair<float, float> betas, float beta, float l1, float l2, float weight_decay,
             bool decoupled_weight_decay, std::pair<float, float> bounds, bool mean_gradient) {
            new (self) OptimizerConfig{optimizer_of(name), lr,           eps,          initial_accumulator,
                                       betas.first,        betas.second, beta,         l1,
                                       l2,                 weight_decay, bounds.first, bounds.second,
                                       decoupled_weight_decay, mean_gradient};
          },
          nb::arg("name"), nb::kw_only(), nb::arg("lr"), nb::arg("eps"), nb::arg("initial_accumulator"),
          nb::arg("betas"), nb::arg("beta"), nb::arg("l1"), nb::arg("l2"), nb::arg("weight_decay"),
          nb::arg("decoupled_weight_decay"), nb::arg("bounds"), nb::arg("mean_gradient"));
  nb::class_<PulledRows>(module, "PulledRows", "Where the rows of some keys are.")
      .def("__len__", [](const PulledRows& self) { return self.rows.size(); });
  nb::class_<Table>(module, "Table", "Rows of float32 for any int64 keys, with optimizer state, in memory.")
      .def(
          "__init__",
          [](Table* self, std::uint64_t dim, const OptimizerConfig& optimizer, float init_scale, std::uint64_t seed,
             std::uint64_t memory_bytes) {
            new (self) Table({dim, optimizer, init_scale, seed, memory_bytes});
          },
          nb::arg("dim"), nb::arg("optimizer"), nb::arg("init_scale"), nb::arg("seed"), nb::arg("memory_bytes"))
      .def("pull", &pull, nb::arg("keys").noconvert(), nb::arg("create"), nb::arg("threads"),
           "Rows of the keys, float32[n, dim].")
      .def("pull_into", &pull_into, nb::arg("keys").noconvert(), nb::arg("out").noconvert(), nb::arg("create"),
           nb::arg("threads"), "The same into an array of the caller.")
      .def("pull_rows", &pull_rows, nb::arg("keys").noconvert(), nb::arg("out").noconvert(), nb::arg("threads"),
           "Pull into an array of the caller, and return where the rows are.")
      .def("push_rows", &push_rows, nb::arg("rows"), nb::arg("grads").noconvert(), nb::arg("threads"),
           "Push to rows that were pulled from this table.")
      .def("push", &push, nb::arg("keys").noconvert(), nb::arg("grads").noconvert(), nb::arg("threads"),
           "Apply gradients, float32[n, dim], those of equal keys summed.")
      .def("contains", &contains, nb::arg("keys").noconvert(), nb::arg("threads"),
           "Whether each key has a row, bool[n].")
      .def(
          "erase",
          [](Table& self, InputArray<std::int64_t> keys) {
            const nb::gil_scoped_release release;
            return self.erase(keys.data(), count_of(keys));
          },
          nb::arg("keys").noconvert(), "Forget keys; returns how many there were.")
      .def(
          "keys",
          [](const Table& self) {
            PooledArray<std::int64_t> keys;
            {
              const nb::gil_scoped_release release;
              keys = self.keys();
            }
            return to_numpy(std::move(keys));
          },
          "All keys, int64[len].")
      .def("__len__", &Table::rows, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("nbytes", &Table::bytes, nb::call_guard<nb::gil_scoped_release>(), "Memory in bytes.")
      .def_prop_ro("dim", [](const Table& self) { return self.config().dim; })
      .def_prop_ro("optimizer", [](const Table& self) { return name_of(self.config().optimizer.kind); })
      .def_prop_ro("init_scale", [](const Table& self) { return self.config().init_scale; })
      .def_prop_ro("seed", [](const Table& self) { return self.config().seed; })
      .def_prop_ro("memory_bytes", [](const Table& self) { return self.config().memory_bytes; })
      .def_prop_rw(
          "lr", [](const Table& self) { return self.config().optimizer.lr; }, [](Table& self, float lr) { self.set_lr(lr); })
      .def("save", &Table::save, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
           "Write the table to a file, durably and at once.")
      .def_static("load", &Table::load, nb::arg("path"), nb::arg("memory_bytes"),
                  nb::call_guard<nb::gil_scoped_release>(), "Read a table from a file, and check it.");
}

}  // namespace graphbox::bind
