// Weighted drawing for Python.
#include "sample/negative.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bind/arrays.h"
#include "bind/nouns.h"

namespace graphbox::bind {

void add_negative(nb::module_& module) {
  nb::class_<AliasTable>(module, "AliasTable", "Draws items with probabilities proportional to their weights.")
      .def(
          "__init__",
          [](AliasTable* self, InputArray<double> weights) {
            const nb::gil_scoped_release release;
            new (self) AliasTable(view(weights));
          },
          nb::arg("weights").noconvert())
      .def("__len__", &AliasTable::size)
      .def_prop_ro("nbytes", &AliasTable::bytes, "Memory of the table in bytes.")
      .def(
          "sample",
          [](const AliasTable& self, OutputArray<std::int64_t> out, std::uint64_t seed, std::uint32_t epoch,
             std::uint64_t batch, int threads) {
            const nb::gil_scoped_release release;
            self.sample(derive_key(Stream::kNegative, seed, epoch, batch), out.data(),
                        static_cast<std::int64_t>(out.shape(0)), threads);
          },
          nb::arg("out").noconvert(), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"), nb::arg("threads"),
          "Fill the int64 array `out` with drawn items.");
}

}  // namespace graphbox::bind
