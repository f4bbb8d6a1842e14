// Rows of served tables for Python.
#include "rows/stored_rows.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "portability/instruction_set.h"
#include "rows/best_rows.h"
#include "rows/clustered_rows.h"
#include "rows/elementwise_rows.h"
#include "rows/residual_rows.h"
#include "rows/rotated_rows.h"
#include "rows/same_rows.h"
#include "rows/tiered_rows.h"

namespace graphbox::bind {
namespace {

// Rows whose last dimension is contiguous: a part of the columns of a wider array will do.
using OutputRows = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

// A table, and the arrays that it reads. Tiers are shared with the tables of which they are parts.
class RowArrays {
 public:
  RowArrays(std::shared_ptr<const StoredRows> stored, std::initializer_list<nb::ndarray<nb::ro>> arrays)
      : held_(std::make_shared<const Held>(Held{std::move(stored), arrays})) {}

  const StoredRows& stored() const { return *held_->stored; }
  std::shared_ptr<const StoredRows> shared() const { return {held_, held_->stored.get()}; }

 private:
  struct Held {
    std::shared_ptr<const StoredRows> stored;
    std::vector<nb::ndarray<nb::ro>> arrays;
  };

  std::shared_ptr<const Held> held_;
};

void check_shape(const char* name, std::size_t rows, std::size_t columns, std::size_t count, std::size_t dim) {
  if (rows != count || columns != dim) {
    throw Error(ErrorKind::kUsage,
                std::string("expected ") + name + " of shape (" + std::to_string(count) + ", " + std::to_string(dim) +
                    "), received (" + std::to_string(rows) + ", " + std::to_string(columns) + ")",
                name);
  }
}

RowArrays of_elements(ElementEncoding encoding, nb::ndarray<nb::ro> values, nb::ndarray<nb::ro> scale_bias = {}) {
  const auto* const factors =
      scale_bias.is_valid() ? static_cast<const std::uint16_t*>(scale_bias.data()) : nullptr;
  const ElementArrays arrays = {encoding, values.data(), factors, static_cast<std::int64_t>(values.shape(0)),
                                values.shape(1)};
  if (!scale_bias.is_valid()) {
    return {std::make_shared<const ElementwiseRows>(arrays), {values}};
  }
  return {std::make_shared<const ElementwiseRows>(arrays), {values, scale_bias}};
}

RowArrays of_float32(InputArray<float, 2> values) {
  return of_elements(ElementEncoding::kFloat32, nb::ndarray<nb::ro>(values));
}

RowArrays of_float16(InputArray<std::uint16_t, 2> halves) {
  return of_elements(ElementEncoding::kFloat16, nb::ndarray<nb::ro>(halves));
}

RowArrays of_int8(InputArray<std::uint8_t, 2> codes, InputArray<std::uint16_t, 2> scale_bias) {
  check_shape("scale_bias", scale_bias.shape(0), scale_bias.shape(1), codes.shape(0), 2);
  return of_elements(ElementEncoding::kInt8, nb::ndarray<nb::ro>(codes), nb::ndarray<nb::ro>(scale_bias));
}

RowArrays of_rotated(int bits, InputArray<std::uint8_t, 2> packed, InputArray<std::int8_t> signs) {
  const std::size_t dim = signs.shape(0);
  if (bits < 2 || bits > 4) {
    throw Error(ErrorKind::kUsage, "expected 2, 3 or 4 bits, received " + std::to_string(bits), "bits");
  }
  check_shape("packed", packed.shape(0), packed.shape(1), packed.shape(0), rotated_row_bytes(bits, dim));
  const std::span<const std::int8_t> each = view(signs);
  if (!std::all_of(each.begin(), each.end(), [](std::int8_t sign) { return sign == 1 || sign == -1; })) {
    throw Error(ErrorKind::kUsage, "expected signs of 1 and -1, received others", "signs");
  }
  return {std::make_shared<const RotatedRows>(RotatedArrays{
              bits, packed.data(), signs.data(), static_cast<std::int64_t>(packed.shape(0)), dim}),
          {nb::ndarray<nb::ro>(packed), nb::ndarray<nb::ro>(signs)}};
}

RowArrays of_same(InputArray<float> row, std::int64_t rows) {
  const std::span<const float> values = view(row);
  if (rows < 0 || !std::all_of(values.begin(), values.end(), [](float each) { return std::isfinite(each); })) {
    throw Error(ErrorKind::kUsage, "expected a finite row and at least 0 rows, received others", "row");
  }
  return {std::make_shared<const SameRows>(row.data(), rows, row.shape(0)), {nb::ndarray<nb::ro>(row)}};
}

RowArrays of_tiers(InputArray<std::uint8_t> is_hot, const RowArrays& hot, const RowArrays& cold) {
  check_shape("cold", 1, cold.stored().dim(), 1, hot.stored().dim());
  const std::int64_t rows = hot.stored().rows() + cold.stored().rows();
  const std::span<const std::uint8_t> bytes = view(is_hot);
  std::int64_t members = 0;
  for (const std::uint8_t byte : bytes) {
    members += std::popcount(byte);
  }
  const bool has_rest = rows % 8 != 0 && !bytes.empty() && bytes.back() >> (rows % 8) != 0;
  if (static_cast<std::int64_t>(bytes.size()) != (rows + 7) / 8 || members != hot.stored().rows() || has_rest) {
    throw Error(ErrorKind::kUsage,
                "expected is_hot with a bit for each of " + std::to_string(rows) + " rows, of which " +
                    std::to_string(hot.stored().rows()) + " are set, received " + std::to_string(bytes.size()) +
                    " bytes with " + std::to_string(members) + " bits set",
                "is_hot");
  }
  return {std::make_shared<const TieredRows>(bytes, hot.shared(), cold.shared()), {}};
}

RowArrays of_clusters(InputArray<std::uint8_t> clusters, InputArray<float, 2> centroids, const RowArrays& rest) {
  const std::size_t count = centroids.shape(0);
  check_shape("clusters", clusters.shape(0), centroids.shape(1), static_cast<std::size_t>(rest.stored().rows()),
              rest.stored().dim());
  const std::span<const std::uint8_t> each = view(clusters);
  if (!std::all_of(each.begin(), each.end(), [&](std::uint8_t cluster) { return cluster < count; })) {
    throw Error(ErrorKind::kUsage, "expected clusters below " + std::to_string(count) + ", received others",
                "clusters");
  }
  const std::shared_ptr<const StoredRows> shared = rest.shared();
  return {std::make_shared<const ClusteredRows>(ClusterArrays{clusters.data(), centroids.data(), count}, shared),
          {nb::ndarray<nb::ro>(clusters), nb::ndarray<nb::ro>(centroids)}};
}

RowArrays of_codebooks(InputArray<std::uint8_t, 2> codes, InputArray<float, 3> codebooks) {
  const std::size_t books = codes.shape(1);
  if (books == 0 || codebooks.shape(0) != books || codebooks.shape(1) != kCodebookRows) {
    throw Error(ErrorKind::kUsage,
                "expected codes (n, m) and codebooks (m, " + std::to_string(kCodebookRows) + ", dim), m at least 1, " +
                    "received (" + std::to_string(codes.shape(0)) + ", " + std::to_string(books) + ") and (" +
                    std::to_string(codebooks.shape(0)) + ", " + std::to_string(codebooks.shape(1)) + ", " +
                    std::to_string(codebooks.shape(2)) + ")",
                "codebooks");
  }
  return {std::make_shared<const ResidualRows>(ResidualArrays{codes.data(), codebooks.data(), books,
                                                              static_cast<std::int64_t>(codes.shape(0)),
                                                              codebooks.shape(2)}),
          {nb::ndarray<nb::ro>(codes), nb::ndarray<nb::ro>(codebooks)}};
}

std::int64_t take(const RowArrays& self, InputArray<std::int64_t> index, OutputRows out,
                  std::optional<InputArray<float>> default_row) {
  const StoredRows& stored = self.stored();
  check_shape("out", out.shape(0), out.shape(1), index.shape(0), stored.dim());
  // Strides of arrays without elements mean nothing.
  const bool is_empty = out.shape(0) == 0 || stored.dim() == 0;
  const bool has_contiguous_rows = (stored.dim() <= 1 || out.stride(1) == 1) &&
                                   (out.shape(0) <= 1 || out.stride(0) >= static_cast<std::int64_t>(stored.dim()));
  if (!is_empty && !has_contiguous_rows) {
    throw Error(ErrorKind::kUsage, "expected out with contiguous rows that do not overlap, received others", "out");
  }
  if (default_row && default_row->shape(0) != stored.dim()) {
    throw Error(ErrorKind::kUsage,
                "expected a default row of " + std::to_string(stored.dim()) + " numbers, received " +
                    std::to_string(default_row->shape(0)),
                "default_row");
  }
  const ReleasedGil release;
  const std::int64_t outside = first_outside(view(index), default_row ? -1 : 0, stored.rows());
  const std::size_t stride = out.shape(0) > 1 ? static_cast<std::size_t>(out.stride(0)) : stored.dim();
  if (outside < 0 && default_row) {
    stored.take_or_default({view(index), default_row->data()}, out.data(), stride);
  } else if (outside < 0) {
    stored.take(view(index), {out.data(), stride});
  }
  return outside;
}

void block(const RowArrays& self, std::int64_t start, OutputArray<float, 2> out) {
  const StoredRows& stored = self.stored();
  const auto count = static_cast<std::int64_t>(out.shape(0));
  check_shape("out", out.shape(0), out.shape(1), out.shape(0), stored.dim());
  if (start < 0 || start > stored.rows() || count > stored.rows() - start) {
    throw Error(ErrorKind::kUsage,
                "expected a block of rows in [0, " + std::to_string(stored.rows()) + "), received " +
                    std::to_string(count) + " rows from " + std::to_string(start),
                "start");
  }
  const ReleasedGil release;
  stored.decode(start, count, out.data(), stored.dim());
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
  check_shape("out", out.shape(0), out.shape(1), bags.size() - 1, stored.dim());
  const ReleasedGil release;
  const std::int64_t outside = first_outside(view(index), -1, stored.rows());
  if (outside < 0) {
    stored.sum({index.data(), weights.data(), bags}, out.data());
  }
  return outside;
}

void best(const RowArrays& self, InputArray<float, 2> queries, std::optional<InputArray<float>> lengths,
          OutputArray<std::int64_t, 2> index, OutputArray<float, 2> scores) {
  const StoredRows& stored = self.stored();
  check_shape("queries", queries.shape(0), queries.shape(1), queries.shape(0), stored.dim());
  check_shape("scores", scores.shape(0), scores.shape(1), queries.shape(0), index.shape(1));
  check_shape("index", index.shape(0), index.shape(1), queries.shape(0), index.shape(1));
  const auto k = static_cast<std::int64_t>(index.shape(1));
  if (k > stored.rows()) {
    throw Error(ErrorKind::kUsage,
                "expected at most all " + std::to_string(stored.rows()) + " rows for each query, received " +
                    std::to_string(k),
                "index");
  }
  if (lengths && static_cast<std::int64_t>(lengths->shape(0)) != stored.rows()) {
    throw Error(ErrorKind::kUsage,
                "expected " + std::to_string(stored.rows()) + " lengths, received " + std::to_string(lengths->shape(0)),
                "lengths");
  }
  const ReleasedGil release;
  best_rows(stored,
            {queries.data(), static_cast<std::int64_t>(queries.shape(0)), lengths ? lengths->data() : nullptr}, k,
            index.data(), scores.data());
}

std::vector<std::string> names_of_sets() {
  std::vector<std::string> names;
  for (const InstructionSet set : instruction_sets()) {
    names.emplace_back(name_of(set));
  }
  return names;
}

void use_named_set(const std::string& name) {
  const auto sets = instruction_sets();
  const auto found = std::find_if(sets.begin(), sets.end(), [&](InstructionSet set) { return name == name_of(set); });
  if (found == sets.end()) {
    throw Error(ErrorKind::kUsage, "expected one of instruction_sets(), received " + name, "name");
  }
  use_instruction_set(*found);
}

}  // namespace

void add_stored_rows(nb::module_& module) {
  module.def("instruction_sets", &names_of_sets,
             "Names of the instruction sets that rows are decoded with on this processor, lowest first.");
  module.def("use_instruction_set", &use_named_set, nb::arg("name"),
             "Decode rows with one of instruction_sets() from now on, in all threads; until then it is the last.");
  nb::class_<RowArrays>(module, "StoredRows", "Rows of a served table, decoded to float32 as they are read.")
      .def_static("of_float32", &of_float32, nb::arg("values").noconvert(), "float32[n, dim].")
      .def_static("of_float16", &of_float16, nb::arg("halves").noconvert(), "Bits of float16[n, dim].")
      .def_static("of_int8", &of_int8, nb::arg("codes").noconvert(), nb::arg("scale_bias").noconvert(),
                  "Codes uint8[n, dim]; scale and bias of each row, bits of float16[n, 2].")
      .def_static("of_rotated", &of_rotated, nb::arg("bits"), nb::arg("packed").noconvert(),
                  nb::arg("signs").noconvert(),
                  "Scale, bias and codes of 2, 3 or 4 bits, uint8[n, bytes of a row]; signs int8[dim].")
      .def_static("of_same", &of_same, nb::arg("row").noconvert(), nb::arg("rows"),
                  "So many times the same row, float32[dim].")
      .def_static("of_tiers", &of_tiers, nb::arg("is_hot").noconvert(), nb::arg("hot"), nb::arg("cold"),
                  "A bit of uint8[(n + 7) / 8] for each row, set for the rows of `hot`; the others are those of `cold`.")
      .def_static("of_clusters", &of_clusters, nb::arg("clusters").noconvert(), nb::arg("centroids").noconvert(),
                  nb::arg("rest"),
                  "Sums of a centroid and a row of `rest`: clusters uint8[n], centroids float32[k, dim].")
      .def_static("of_codebooks", &of_codebooks, nb::arg("codes").noconvert(), nb::arg("codebooks").noconvert(),
                  "Sums of one row from each codebook: codes uint8[n, m], codebooks float32[m, 256, dim].")
      .def_prop_ro("rows", [](const RowArrays& self) { return self.stored().rows(); }, "Number of rows.")
      .def_prop_ro("dim", [](const RowArrays& self) { return self.stored().dim(); }, "Length of a row.")
      .def_prop_ro("nbytes", [](const RowArrays& self) { return self.stored().bytes(); },
                   "Bytes of the stored rows, and of what was built to find them.")
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
