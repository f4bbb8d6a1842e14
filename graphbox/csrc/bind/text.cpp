// Columns of text, as Arrow lays them out, parsed into arrays of the caller.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "errors/error.h"
#include "graph/id_hash.h"
#include "text/parse.h"

namespace graphbox::bind {
namespace {

TextColumn column(const InputArray<std::int64_t>& offsets, const InputArray<std::uint8_t>& text) {
  const auto bounds = view(offsets);
  if (bounds.empty() || bounds.front() < 0 || bounds.back() > static_cast<std::int64_t>(text.shape(0)) ||
      !std::is_sorted(bounds.begin(), bounds.end())) {
    throw Error(ErrorKind::kUsage, "offsets must be one more than the cells, rise, and lie within the text");
  }
  return {bounds, reinterpret_cast<const char*>(text.data())};
}

void hash_strings(const TextColumn& cells, std::int64_t* values) {
  for (std::int64_t i = 0; i < cells.size(); ++i) {
    const auto begin = cells.offsets[static_cast<std::size_t>(i)];
    const auto end = cells.offsets[static_cast<std::size_t>(i) + 1];
    values[i] = static_cast<std::int64_t>(hash_bytes(cells.text + begin, static_cast<std::size_t>(end - begin)));
  }
}

void check_size(const TextColumn& cells, std::size_t values, std::size_t wrong) {
  const auto size = static_cast<std::size_t>(cells.size());
  if (values != size || wrong != size) {
    throw Error(ErrorKind::kUsage, "expected room for one value and one flag per cell");
  }
}

}  // namespace

void add_text(nb::module_& module) {
  module.def(
      "parse_integers",
      [](const InputArray<std::int64_t>& offsets, const InputArray<std::uint8_t>& text, bool plain,
         const OutputArray<std::int64_t>& values, const OutputArray<std::uint8_t>& wrong) {
        const TextColumn cells = column(offsets, text);
        check_size(cells, values.shape(0), wrong.shape(0));
        const ReleasedGil release;
        return parse_integers(cells, plain ? IntegerSpelling::kPlain : IntegerSpelling::kAny, values.data(),
                              wrong.data());
      },
      nb::arg("offsets"), nb::arg("text"), nb::arg("plain"), nb::arg("values"), nb::arg("wrong"),
      "Parse int64[n]; flags the cells that are none, and returns how many. `plain`: only as a number is printed.");
  module.def(
      "parse_numbers",
      [](const InputArray<std::int64_t>& offsets, const InputArray<std::uint8_t>& text,
         const OutputArray<double>& values, const OutputArray<std::uint8_t>& wrong) {
        const TextColumn cells = column(offsets, text);
        check_size(cells, values.shape(0), wrong.shape(0));
        const ReleasedGil release;
        return parse_numbers(cells, values.data(), wrong.data());
      },
      nb::arg("offsets"), nb::arg("text"), nb::arg("values"), nb::arg("wrong"),
      "Parse float64[n]; flags the cells that are none, and returns how many.");
  module.def(
      "parse_booleans",
      [](const InputArray<std::int64_t>& offsets, const InputArray<std::uint8_t>& text,
         const OutputArray<std::uint8_t>& values, const OutputArray<std::uint8_t>& wrong) {
        const TextColumn cells = column(offsets, text);
        check_size(cells, values.shape(0), wrong.shape(0));
        const ReleasedGil release;
        return parse_booleans(cells, values.data(), wrong.data());
      },
      nb::arg("offsets"), nb::arg("text"), nb::arg("values"), nb::arg("wrong"),
      "Parse uint8[n] out of true, false, 1, 0; flags the cells that are none, and returns how many.");
  module.def(
      "hash_strings",
      [](const InputArray<std::int64_t>& offsets, const InputArray<std::uint8_t>& text,
         const OutputArray<std::int64_t>& values) {
        const TextColumn cells = column(offsets, text);
        check_size(cells, values.shape(0), values.shape(0));
        const ReleasedGil release;
        hash_strings(cells, values.data());
      },
      nb::arg("offsets"), nb::arg("text"), nb::arg("values"), "XXH64 of each cell's bytes, into int64[n].");
}

}  // namespace graphbox::bind
