#include "graph/text_lines.h"

#include <string>
#include <vector>

#include "tests/check.h"

namespace {

using graphbox::Malformed;
using graphbox::split_text;
using graphbox::CellColumn;
using graphbox::TextFormat;
using graphbox::TextRows;
using graphbox::whole_records;

std::string cell(const CellColumn& column, std::int64_t row) {
  const auto* bytes = reinterpret_cast<const char*>(column.bytes.data());
  return {bytes + column.offsets[row], bytes + column.offsets[row + 1]};
}

std::int64_t line_of(const TextRows& rows, std::int64_t row) {
  std::int64_t line = row;
  for (std::int64_t i = 0; i < rows.jump_rows.size() && rows.jump_rows[i] <= row; ++i) {
    line = rows.jump_lines[i] + row - rows.jump_rows[i];
  }
  return line;
}

TEST(text_lines, cells_quotes_and_places) {
  const std::string text = "a,1\r\n\n\"b\"\"c\",2\n\"d\ne\",\"\"\n,x\nlast,3";
  const TextRows rows = split_text(text, TextFormat{}, 2, {0, 1}, 10);
  CHECK_EQUAL(rows.rows, 5);
  CHECK_EQUAL(rows.lines, 7);
  const std::vector<std::string> first = {"a", "b\"c", "d\ne", "", "last"};
  const std::vector<std::string> second = {"1", "2", "", "x", "3"};
  const std::vector<std::int64_t> lines = {0, 2, 3, 5, 6};
  for (std::int64_t row = 0; row < 5; ++row) {
    CHECK(cell(rows.columns[0], row) == first[static_cast<std::size_t>(row)]);
    CHECK(cell(rows.columns[1], row) == second[static_cast<std::size_t>(row)]);
    CHECK_EQUAL(line_of(rows, row), lines[static_cast<std::size_t>(row)]);
  }
  CHECK_EQUAL(rows.columns[0].missing, 1);
  CHECK_EQUAL(rows.columns[0].validity[0], 0b10111);
  CHECK_EQUAL(rows.columns[1].missing, 0);  // a quoted empty cell is an empty string
}

TEST(text_lines, malformed_records_are_reported_and_skipped) {
  const std::string text = "a,1\nb\nc,2,3\n\"d,4\ne,\xff\n\"f\"g,5\nh,6\n";
  const TextRows rows = split_text(text, TextFormat{}, 2, {1}, 10);
  CHECK_EQUAL(rows.rows, 2);
  CHECK(cell(rows.columns[0], 1) == "6");
  CHECK_EQUAL(line_of(rows, 1), 6);
  CHECK_EQUAL(rows.malformed.size(), std::size_t{5});
  const std::vector<Malformed> kinds = {Malformed::kCells, Malformed::kCells, Malformed::kQuote, Malformed::kEncoding,
                                        Malformed::kQuote};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    CHECK(rows.malformed[i].kind == kinds[i]);
    CHECK_EQUAL(rows.malformed[i].line, static_cast<std::int64_t>(i) + 1);
  }
  CHECK_EQUAL(rows.malformed[0].cells, 1);
  CHECK_EQUAL(rows.malformed[1].cells, 3);
  CHECK(rows.malformed[2].start == "\"d,4");
}

TEST(text_lines, examples_are_few_and_counts_are_all) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += "x\n";
  }
  const TextRows rows = split_text(text, TextFormat{}, 2, {0, 1}, 3);
  CHECK_EQUAL(rows.rows, 0);
  CHECK_EQUAL(rows.malformed.size(), std::size_t{3});
  CHECK_EQUAL(rows.malformed_counts[0], 1000);
}

TEST(text_lines, a_quote_never_closed_costs_one_line) {
  std::string text = "\"open,1\n";
  while (static_cast<std::int64_t>(text.size()) < 2 * graphbox::kLongestQuotedBytes) {
    text += "good,2\n";
  }
  const TextFormat format;
  CHECK_EQUAL(whole_records(text, format), static_cast<std::int64_t>(text.size()));
  CHECK_EQUAL(whole_records(text.substr(0, 1000), format), 0);  // it may yet be closed
  const TextRows rows = split_text(text, format, 2, {0}, 10);
  CHECK_EQUAL(rows.malformed_counts[static_cast<int>(Malformed::kQuote)], 1);
  CHECK_EQUAL(rows.rows, rows.lines - 1);
}

TEST(text_lines, records_are_cut_between_records) {
  const TextFormat format;
  CHECK_EQUAL(whole_records("a,1\nb,2", format), 4);
  CHECK_EQUAL(whole_records("a,1\n\"b\n", format), 4);
  CHECK_EQUAL(whole_records("a,1\n\"b\n\",2\nc", format), 11);
  CHECK_EQUAL(whole_records("a,\"1\"", format), 0);     // the quote may be doubled
  CHECK_EQUAL(whole_records("a,\"1\"\r", format), 0);
  CHECK_EQUAL(whole_records("a", format), 0);
  CHECK_EQUAL(whole_records("", format), 0);
}

}  // namespace
