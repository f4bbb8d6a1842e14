// Splits delimited text (CSV, TSV) into columns of cells; lines that are no rows are reported and left out.
//
// Cells are quoted as RFC 4180 says: a quote at the start of a cell opens it, two quotes inside are one, and line
// breaks inside belong to the cell. Elsewhere a quote is a character like others. Lines end in LF or CRLF; blank ones
// are skipped. Where the quote that opens a cell is never closed, is closed more than kLongestQuotedBytes later, or
// is closed before the end of the cell, only the line of the opening quote is malformed, and reading goes on with the
// line after it: one stray quote does not swallow the rest of a file.
//
// Nothing depends on where a text is cut into blocks, as long as it is cut where whole_records() says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/buffer.h"

namespace graphbox {

inline constexpr std::int64_t kLongestQuotedBytes = std::int64_t{1} << 20;

struct TextFormat {
  char delimiter = ',';
  char quote = '"';  // '\0': no cell is quoted
};

enum class Malformed : std::uint8_t { kCells, kEncoding, kQuote };
inline constexpr int kMalformedKinds = 3;

struct MalformedRecord {
  Malformed kind;
  std::int64_t line;   // counted from 0 at the start of the text
  std::int64_t cells;  // how many the line has (kCells)
  std::string start;   // of the line
};

// One column of text, laid out as Arrow's large_string.
struct CellColumn {
  PooledArray<std::int64_t> offsets;    // [rows + 1]
  PooledArray<std::uint8_t> bytes;
  PooledArray<std::uint8_t> validity;   // bit i: cell i is not empty; no entries when none is
  std::int64_t missing = 0;             // empty cells; a quoted one is an empty string
};

struct TextRows {
  std::int64_t rows = 0;
  std::int64_t lines = 0;  // that the text spans
  std::vector<CellColumn> columns;
  // Row jump_rows[i] starts on line jump_lines[i] (from 0), and each row after it one line later, up to the next jump.
  PooledArray<std::int64_t> jump_rows;
  PooledArray<std::int64_t> jump_lines;
  std::vector<MalformedRecord> malformed;  // the first of each kind
  std::int64_t malformed_counts[kMalformedKinds] = {};
};

// Returns how many bytes at the start of `text` are whole records, given that more text follows.
std::int64_t whole_records(std::string_view text, const TextFormat& format);

// Splits a text of whole records into the cells `wanted` (different positions) of records that have `cells` cells.
// At most `examples` malformed records of each kind are described.
TextRows split_text(std::string_view text, const TextFormat& format, std::int64_t cells,
                    const std::vector<std::int64_t>& wanted, std::int64_t examples);

struct TextHeader {
  std::vector<std::string> cells;
  std::int64_t bytes = 0;  // up to the record after it
  std::int64_t lines = 0;
  bool complete = false;   // otherwise more text is needed
  bool malformed = false;
};

// Reads the first record of a text that is not blank. `last`: no more text follows.
TextHeader read_text_header(std::string_view text, const TextFormat& format, bool last);

}  // namespace graphbox
