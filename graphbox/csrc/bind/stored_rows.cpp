// Rows of served tables for Python.
#include "rows/stored_rows.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "rows/best_rows.h"

namespace graphbox::bind {
namespace {

// Rows whose last dimension is contiguous: a part of the columns of a wider array will do.
using OutputRows = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

// The arrays live as long as this.
class RowArrays {
 public:
  explicit RowArrays(InputArray<float, 2> values)
      : RowArrays(RowEncoding::kFloat32, nb::ndarray<nb::ro>(values), nb::ndarray<nb::ro>()) {}
  explicit RowArrays(InputArray<std::uint16_t, 2> halves)
      : RowArrays(RowEncoding::kFloat16, nb::ndarray<nb::ro>(halves), nb::ndarray<nb::ro>()) {}
  RowArrays(InputArray<std::uint8_t, 2> codes, InputArray<std::uint16_t, 2> scale_bias)
      : RowArrays(RowEncoding::kInt8, nb::ndarray<nb::ro>(codes), nb::ndarray<nb::ro>(scale_bias)) {
    if (scale_bias.shape(0) != codes.shape(0) || scale_bias.shape(1) != 2) {
      throw Error(ErrorKind::kUsage,
                  "expected scale_bias of shape (" + std::to_string(codes.shape(0)) + ", 2), received (" +
                      std::to_string(scale_bias.shape(0)) + ", " + std::to_string(scale_bias.shape(1)) + ")",
                  "scale_bias");
    }
  }

  const StoredRows& stored() const { return stored_; }

 private:
  RowArrays(RowEncoding encoding, nb::ndarray<nb::ro> values, nb::ndarray<nb::ro> scale_bias)
      : values_(std::move(values)), scale_bias_(std::move(scale_bias)) {
    stored_ = {encoding, values_.data(),
               scale_bias_.is_valid() ? static_cast<const std::uint16_t*>(scale_bias_.data()) : nullptr,
               static_cast<std::int64_t>(values_.shape(0)), values_.shape(1)};
  }

  nb::ndarray<nb::ro> values_;
  nb::ndarray<nb::ro> scale_bias_;
  StoredRows stored_{};
};

void check_shape(const char* name, std::size_t rows, std::size_t columns, std::size_t count, std::size_t dim) {
  if (rows != count || columns != dim) {
    throw Error(ErrorKind::kUsage,
                std::string("expected ") + name + " of shape (" + std::to_string(count) + ", " + std::to_string(dim) +
                    "), received (" + std::to_string(rows) + ", " + std::to_string(columns) + ")",
                name);
  }
}

std::int64_t take(const RowArrays& self, InputArray<std::int64_t> index, OutputRows out,
                  std::optional<InputArray<float>> default_row) {
  const StoredRows& stored = self.stored();
  check_shape("out", out.shape(0), out.shape(1), index.shape(0), stored.dim);
  // Strides of arrays without elements mean nothing.
  const bool is_empty = out.shape(0) == 0 || stored.dim == 0;
  const bool has_contiguous_rows = (stored.dim <= 1 || out.stride(1) == 1) &&
                                   (out.shape(0) <= 1 || out.stride(0) >= static_cast<std::int64_t>(stored.dim));
  if (!is_empty && !has_contiguous_rows) {
    throw Error(ErrorKind::kUsage, "expected out with contiguous rows that do not overlap, received others", "out");
  }
  if (default_row && default_row->shape(0) != stored.dim) {
    throw Error(ErrorKind::kUsage,
                "expected a default row of " + std::to_string(stored.dim) + " numbers, received " +
                    std::to_string(default_row->shape(0)),
                "default_row");
  }
  const ReleasedGil release;
  const std::int64_t outside = first_outside(view(index), default_row ? -1 : 0, stored.rows);
  const std::size_t stride = out.shape(0) > 1 ? static_cast<std::size_t>(out.stride(0)) : stored.dim;
  if (outside < 0 && default_row) {
    take_rows_or_default(stored, {view(index), default_row->data()}, out.data(), stride);
  } else if (outside < 0) {
    take_rows(stored, view(index), out.data(), stride);
  }
  return outside;
}

void block(const RowArrays& self, std::int64_t start, OutputArray<float, 2> out) {
  const StoredRows& stored = self.stored();
  const auto count = static_cast<std::int64_t>(out.shape(0));
  check_shape("out", out.shape(0), out.shape(1), out.shape(0), stored.dim);
  if (start < 0 || start > stored.rows || count > stored.rows - start) {
    throw Error(ErrorKind::kUsage,
                "expected a block of rows in [0, " + std::to_string(stored.rows) + "), received " +
                    std::to_string(count) + " rows from " + std::to_string(start),
                "start");
  }
  const ReleasedGil release;
  decode_block(stored, start, count, out.data(), stored.dim);
}

std::int64_t sums(const RowArrays& self, InputArray<std::int64_t> index, InputArray<std::int64_t> offsets,
                  InputArray<float> weights, OutputArray<float, 2> out) {
  const StoredRows& stored = self.stored();
  const std::span<const std::int64_t> bags = view(offsets);
  if (bags.empty() || bags.front() != 0 || bags.back() != static_cast<std::int64_t>(index.shape(0)) ||
      !std::is_sorted(bags.begin(), bags.end())) {
    throw Error(ErrorKind::kUsage,
                "offsets must begin with 0, ascend, and end with " + std::to_string(index.shape(0)), "offsets");
  }
  if (weights.shape(0) != index.shape(0)) {
    throw Error(ErrorKind::kUsage,
                "expected " + std::to_string(index.shape(0)) + " weights, received " + std::to_string(weights.shape(0)),
                "weights");
  }
  check_shape("out", out.shape(0), out.shape(1), bags.size() - 1, stored.dim);
  const ReleasedGil release;
  const std::int64_t outside = first_outside(view(index), -1, stored.rows);
  if (outside < 0) {
    sum_rows(stored, {index.data(), weights.data(), bags}, out.data());
  }
  return outside;
}

void best(const RowArrays& self, InputArray<float, 2> queries, std::optional<InputArray<float>> lengths,
          OutputArray<std::int64_t, 2> index, OutputArray<float, 2> scores) {
  const StoredRows& stored = self.stored();
  check_shape("queries", queries.shape(0), queries.shape(1), queries.shape(0), stored.dim);
  check_shape("scores", scores.shape(0), scores.shape(1), queries.shape(0), index.shape(1));
  check_shape("index", index.shape(0), index.shape(1), queries.shape(0), index.shape(1));
  const auto k = static_cast<std::int64_t>(index.shape(1));
  if (k > stored.rows) {
    throw Error(ErrorKind::kUsage,
                "expected at most all " + std::to_string(stored.rows) + " rows for each query, received " +
                    std::to_string(k),
                "index");
  }
  if (lengths && static_cast<std::int64_t>(lengths->shape(0)) != stored.rows) {
    throw Error(ErrorKind::kUsage,
                "expected " + std::to_string(stored.rows) + " lengths, received " + std::to_string(lengths->shape(0)),
                "lengths");
  }
  const ReleasedGil release;
  best_rows(stored,
            {queries.data(), static_cast<std::int64_t>(queries.shape(0)), lengths ? lengths->data() : nullptr}, k,
            index.data(), scores.data());
}

}  // namespace

void add_stored_rows(nb::module_& module) {
  nb::class_<RowArrays>(module, "StoredRows", "Rows of a served table, decoded to float32 as they are read.")
      .def(nb::init<InputArray<float, 2>>(), nb::arg("values").noconvert(), "float32[n, dim].")
      .def(nb::init<InputArray<std::uint16_t, 2>>(), nb::arg("halves").noconvert(), "Bits of float16[n, dim].")
      .def(nb::init<InputArray<std::uint8_t, 2>, InputArray<std::uint16_t, 2>>(), nb::arg("codes").noconvert(),
           nb::arg("scale_bias").noconvert(), "Codes uint8[n, dim]; scale and bias of each row, bits of float16[n, 2].")
      .def("take", &take, nb::arg("index").noconvert(), nb::arg("out").noconvert(),
           nb::arg("default_row").noconvert().none() = nb::none(),
           "Rows into float32[n, dim]; an index of -1 gives `default_row`, float32[dim], where there is one.\n"
           "Returns -1, or the position of the first index outside: nothing is read then.")
      .def("block", &block, nb::arg("start"), nb::arg("out").noconvert(), "The rows from `start` on into out.")
      .def("sums", &sums, nb::arg("index").noconvert(), nb::arg("offsets").noconvert(), nb::arg("weights").noconvert(),
           nb::arg("out").noconvert(),
           "Weighted sums of the rows of bags into float32[bags, dim]; an index of -1 adds nothing. Returns as take().")
      .def("best", &best, nb::arg("queries").noconvert(), nb::arg("lengths").noconvert().none(),
           nb::arg("index").noconvert(), nb::arg("scores").noconvert(),
           "The rows of the largest products with each query, divided by the rows' lengths, into int64[n, k] and\n"
           "float32[n, k], largest first; ties go to the lower row.");
}

}  // namespace graphbox::bind
