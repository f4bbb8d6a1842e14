// New lists of changed rows for Python.
#include "sample/overlay.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <span>
#include <utility>

#include "bind/arrays.h"
#include "bind/nouns.h"

namespace graphbox::bind {
namespace {

Overlay make_overlay(const InputArray<std::int64_t>& rows, const InputArray<std::int64_t>& indptr,
                     const AnyInputArray& indices, const InputArray<std::int64_t>& edge_ids, std::int64_t num_rows) {
  std::span<const std::int32_t> narrow;
  std::span<const std::int64_t> wide;
  if (indices.dtype() == nb::dtype<std::int32_t>()) {
    narrow = {static_cast<const std::int32_t*>(indices.data()), indices.shape(0)};
  } else if (indices.dtype() == nb::dtype<std::int64_t>()) {
    wide = {static_cast<const std::int64_t*>(indices.data()), indices.shape(0)};
  } else {
    throw Error(ErrorKind::kUsage, "indices must be int32 or int64", "overlay");
  }
  if (indptr.shape(0) == 0 || num_rows < 0) {
    throw Error(ErrorKind::kUsage, "expected at least one entry of indptr and no negative number of rows", "overlay");
  }
  return Overlay(view(rows), view(indptr), narrow, wide, view(edge_ids), num_rows);
}

}  // namespace

void add_overlay(nb::module_& module) {
  nb::class_<OverlayArrays>(module, "Overlay",
                            "New lists of some rows of an adjacency: rows[i] has indices[indptr[i]:indptr[i + 1]].")
      .def(
          "__init__",
          [](OverlayArrays* self, InputArray<std::int64_t> rows, InputArray<std::int64_t> indptr, AnyInputArray indices,
             InputArray<std::int64_t> edge_ids, std::int64_t num_rows) {
            Overlay overlay = make_overlay(rows, indptr, indices, edge_ids, num_rows);
            new (self) OverlayArrays{std::move(rows), std::move(indptr), std::move(indices), std::move(edge_ids),
                                     std::move(overlay)};
          },
          nb::arg("rows").noconvert(), nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("edge_ids").noconvert(), nb::arg("num_rows"))
      .def_prop_ro(
          "indices",
          [](const OverlayArrays& self) {
            return nb::ndarray<nb::numpy, nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>(self.indices);
          },
          "The neighbours in the new lists, as they were given.");
}

}  // namespace graphbox::bind
