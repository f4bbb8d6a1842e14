// Splitting delimited text into columns.
#include "bind/released_gil.h"
#include "graph/text_lines.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind/arrays.h"
#include "bind/nouns.h"

namespace graphbox::bind {
namespace {

std::string_view text_of(const InputArray<std::uint8_t>& text) {
  return {reinterpret_cast<const char*>(text.data()), text.shape(0)};
}

TextFormat format_of(const nb::bytes& delimiter, const nb::bytes& quote) {
  if (delimiter.size() != 1 || quote.size() > 1) {
    throw Error(ErrorKind::kUsage, "expected a delimiter of one byte and a quote of one or none");
  }
  return {delimiter.c_str()[0], quote.size() == 1 ? quote.c_str()[0] : '\0'};
}

nb::object column_arrays(CellColumn&& column) {
  nb::object validity = nb::none();
  if (column.missing > 0) {
    validity = nb::cast(to_numpy(std::move(column.validity)));
  }
  return nb::make_tuple(to_numpy(std::move(column.offsets)), to_numpy(std::move(column.bytes)), validity,
                        column.missing);
}

nb::tuple malformed_records(const TextRows& rows) {
  nb::list records;
  for (const MalformedRecord& record : rows.malformed) {
    records.append(nb::make_tuple(static_cast<int>(record.kind), record.line, record.cells,
                                  nb::bytes(record.start.data(), record.start.size())));
  }
  return nb::tuple(records);
}

nb::tuple split(const InputArray<std::uint8_t>& text, const nb::bytes& delimiter, const nb::bytes& quote,
                std::int64_t cells, const std::vector<std::int64_t>& wanted, std::int64_t examples) {
  TextRows rows;
  const TextFormat format = format_of(delimiter, quote);
  if (cells < 0) {
    throw Error(ErrorKind::kUsage, "expected a number of cells, received " + std::to_string(cells), "cells");
  }
  {
    const ReleasedGil release;
    rows = split_text(text_of(text), format, cells, wanted, examples);
  }
  nb::list columns;
  for (CellColumn& column : rows.columns) {
    columns.append(column_arrays(std::move(column)));
  }
  const nb::tuple malformed = malformed_records(rows);
  const nb::tuple counts =
      nb::make_tuple(rows.malformed_counts[0], rows.malformed_counts[1], rows.malformed_counts[2]);
  return nb::make_tuple(rows.rows, rows.lines, columns, to_numpy(std::move(rows.jump_rows)),
                        to_numpy(std::move(rows.jump_lines)), malformed, counts);
}

std::int64_t whole(const InputArray<std::uint8_t>& text, const nb::bytes& delimiter, const nb::bytes& quote) {
  const TextFormat format = format_of(delimiter, quote);
  const ReleasedGil release;
  return whole_records(text_of(text), format);
}

std::optional<nb::tuple> header(const InputArray<std::uint8_t>& text, const nb::bytes& delimiter, const nb::bytes& quote, bool last) {
  const TextHeader found = read_text_header(text_of(text), format_of(delimiter, quote), last);
  if (!found.complete) {
    return std::nullopt;
  }
  nb::list cells;
  for (const std::string& cell : found.cells) {
    cells.append(nb::bytes(cell.data(), cell.size()));
  }
  return nb::make_tuple(cells, found.bytes, found.lines, found.malformed);
}

}  // namespace

void add_text_lines(nb::module_& module) {
  module.def("split_text", split, nb::arg("text"), nb::arg("delimiter"), nb::arg("quote"), nb::arg("cells"),
             nb::arg("wanted"), nb::arg("examples"),
             "Splits uint8[n], whole records of `cells` cells, into the wanted cells. Returns (rows, lines, columns as "
             "(offsets int64[rows + 1], bytes, validity bits or None, missing), jump_rows, jump_lines, malformed as "
             "(kind, line, cells, start), counts by kind); kinds: 0 number of cells, 1 encoding, 2 quote. Row "
             "jump_rows[i] starts on line jump_lines[i] (from 0), each row after it one line later up to the next.");
  module.def("whole_records", whole, nb::arg("text"), nb::arg("delimiter"), nb::arg("quote"),
             "Number of bytes at the start of uint8[n] that are whole records, given that more text follows.");
  module.def("read_text_header", header, nb::arg("text"), nb::arg("delimiter"), nb::arg("quote"), nb::arg("last"),
             "The first record that is not blank: (cells, bytes up to the next, lines, malformed), or None when more "
             "text is needed.");
}

}  // namespace graphbox::bind
