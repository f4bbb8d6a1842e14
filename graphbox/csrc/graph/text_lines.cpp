#include "graph/text_lines.h"

#include <algorithm>
#include <cstring>

#include "errors/error.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace graphbox {
namespace {

constexpr std::size_t kShownBytes = 120;
constexpr std::size_t kCopyBytes = 32;

// The bytes of a cell in the text; a quoted one without its outer quotes.
struct Cell {
  std::uint32_t begin;
  std::uint32_t bytes : 30;
  std::uint32_t quoted : 1;
  std::uint32_t escaped : 1;  // has doubled quotes
};
constexpr std::size_t kLargestText = std::size_t{1} << 30;

enum class Outcome { kRecord, kBlank, kUnbalanced, kIncomplete };

// Returns the first `a` or `b` of [at, end), or end.
inline const char* find_either(const char* at, const char* end, char a, char b) {
#if defined(__SSE2__)
  const __m128i first = _mm_set1_epi8(a);
  const __m128i second = _mm_set1_epi8(b);
  for (; end - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const int found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(bytes, first), _mm_cmpeq_epi8(bytes, second)));
    if (found != 0) {
      return at + __builtin_ctz(static_cast<unsigned>(found));
    }
  }
#endif
  while (at < end && *at != a && *at != b) {
    ++at;
  }
  return at;
}

inline const char* find(const char* at, const char* end, char wanted) {
  const void* found = std::memchr(at, wanted, static_cast<std::size_t>(end - at));
  return found == nullptr ? nullptr : static_cast<const char*>(found);
}

// The same for one byte and short distances, where calling memchr costs more than searching; null where there is none.
inline const char* find_near(const char* at, const char* end, char wanted) {
  const char* found = find_either(at, end, wanted, wanted);
  return found == end ? nullptr : found;
}

// Reads records one after another. `last`: the text ends with the last record, otherwise with what may be half of one.
class RecordReader {
 public:
  RecordReader(std::string_view text, const TextFormat& format, bool last)
      : begin_(text.data()), end_(text.data() + text.size()), format_(format), last_(last) {}

  // Reads the record at `at`, calling sink(position, cell) for each cell, and moves `at` behind it.
  template <typename Sink>
  Outcome next(const char*& at, const Sink& sink) {
    const char* const record = at;
    if (*record == '\n' || (*record == '\r' && (record + 1 < end_ ? record[1] == '\n' : last_))) {
      at = std::min(record + (*record == '\n' ? 1 : 2), end_);
      return Outcome::kBlank;
    }
    const char* cursor = record;
    for (cells_ = 0;; ++cells_) {
      const bool quoted = cursor < end_ && format_.quote != '\0' && *cursor == format_.quote;
      const Ending ending = quoted ? quoted_cell(cursor, sink) : plain_cell(cursor, sink);
      if (ending == Ending::kRecord) {
        ++cells_;
        at = cursor;
        return Outcome::kRecord;
      }
      if (ending == Ending::kIncomplete) {
        return Outcome::kIncomplete;
      }
      if (ending == Ending::kUnbalanced) {
        return skip_line(record, at);
      }
    }
  }

  // The number of cells of the record that was read.
  std::int64_t cells() const { return cells_; }

 private:
  enum class Ending { kCell, kRecord, kUnbalanced, kIncomplete };

  Outcome skip_line(const char* record, const char*& at) {
    const char* line_end = find(record, end_, '\n');
    if (line_end == nullptr && !last_) {
      return Outcome::kIncomplete;
    }
    at = line_end == nullptr ? end_ : line_end + 1;
    return Outcome::kUnbalanced;
  }

  template <typename Sink>
  Ending plain_cell(const char*& cursor, const Sink& sink) {
    const char* const start = cursor;
    const char* stop = find_either(start, end_, format_.delimiter, '\n');
    if (stop < end_ && *stop == format_.delimiter) {
      sink(cells_, cell(start, stop));
      cursor = stop + 1;
      return Ending::kCell;
    }
    if (stop == end_ && !last_) {
      return Ending::kIncomplete;
    }
    cursor = stop == end_ ? end_ : stop + 1;
    if (stop > start && stop[-1] == '\r') {
      --stop;
    }
    sink(cells_, cell(start, stop));
    return Ending::kRecord;
  }

  template <typename Sink>
  Ending quoted_cell(const char*& cursor, const Sink& sink) {
    const char* const start = cursor + 1;
    const bool far = end_ - start > kLongestQuotedBytes;
    const char* const limit = far ? start + kLongestQuotedBytes : end_;
    bool escaped = false;
    const char* close = find_near(start, limit, format_.quote);
    while (close != nullptr && close + 1 < end_ && close[1] == format_.quote) {
      escaped = true;
      close = close + 2 < limit ? find_near(close + 2, limit, format_.quote) : nullptr;
    }
    if (close == nullptr) {
      return far || last_ ? Ending::kUnbalanced : Ending::kIncomplete;
    }
    const char* after = close + 1;
    if (after < end_ && *after == '\r') {
      ++after;
    }
    if (after == end_ && !last_) {
      return Ending::kIncomplete;
    }
    const bool ends_record = after == end_ || *after == '\n';
    if (!ends_record) {
      after = close + 1;
      if (*after != format_.delimiter) {
        return Ending::kUnbalanced;
      }
    }
    Cell found = cell(start, close);
    found.quoted = 1;
    found.escaped = escaped ? 1 : 0;
    sink(cells_, found);
    cursor = after == end_ ? end_ : after + 1;
    return ends_record ? Ending::kRecord : Ending::kCell;
  }

  Cell cell(const char* start, const char* stop) const {
    Cell found;
    found.begin = static_cast<std::uint32_t>(start - begin_);
    found.bytes = static_cast<std::uint32_t>(stop - start) & ((std::uint32_t{1} << 30) - 1);
    found.quoted = 0;
    found.escaped = 0;
    return found;
  }

  const char* begin_;
  const char* end_;
  TextFormat format_;
  bool last_;
  std::int64_t cells_ = 0;
};

// Whether the eight bytes from `at` on are ASCII.
inline bool is_ascii_word(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return (word & 0x8080808080808080U) == 0;
}

// Whether the bytes are UTF-8 (RFC 3629: shortest forms, no surrogates, up to U+10FFFF).
bool is_utf8(const char* text, const char* text_end) {
  const auto* at = reinterpret_cast<const std::uint8_t*>(text);
  const auto* const end = reinterpret_cast<const std::uint8_t*>(text_end);
  while (at < end) {
    while (end - at >= 8 && is_ascii_word(at)) {
      at += 8;
    }
    if (at == end) {
      break;
    }
    const std::uint8_t lead = *at++;
    if (lead < 0x80) {
      continue;
    }
    if (lead < 0xC2 || lead > 0xF4) {
      return false;
    }
    const int further = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (end - at < further) {
      return false;
    }
    const std::uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (*at < least || *at > most) {
      return false;
    }
    for (int i = 1; i < further; ++i) {
      if ((at[i] & 0xC0) != 0x80) {
        return false;
      }
    }
    at += further;
  }
  return true;
}

void check_size(std::string_view text) {
  if (text.size() >= kLargestText) {
    throw Error(ErrorKind::kUsage, "expected a text of less than 1 GiB at once");
  }
}

// Copies a cell to `to`, which has room for kCopyBytes more than the cell; returns how many bytes it has there.
inline std::size_t copy_cell(std::string_view text, const Cell& cell, char quote, std::uint8_t* to) {
  const char* from = text.data() + cell.begin;
  if (cell.escaped == 0) {
    if (cell.bytes <= kCopyBytes && text.size() - cell.begin >= kCopyBytes) {
      std::memcpy(to, from, kCopyBytes);  // of a fixed size, which is one instruction or two
    } else {
      std::memcpy(to, from, cell.bytes);
    }
    return cell.bytes;
  }
  std::size_t written = 0;
  for (std::uint32_t i = 0; i < cell.bytes; ++i) {
    to[written++] = static_cast<std::uint8_t>(from[i]);
    i += from[i] == quote ? 1 : 0;
  }
  return written;
}

CellColumn gather_column(std::string_view text, char quote, const std::vector<Cell>& cells, std::size_t column,
                         std::size_t columns) {
  const std::size_t rows = cells.size() / columns;
  std::size_t total = 0;
  bool missing = false;
  for (std::size_t i = column; i < cells.size(); i += columns) {
    total += cells[i].bytes;
    missing = missing || (cells[i].bytes == 0 && cells[i].quoted == 0);
  }
  CellColumn result;
  result.offsets.resize(static_cast<std::int64_t>(rows) + 1);
  result.bytes.reserve(static_cast<std::int64_t>(total + kCopyBytes));
  std::int64_t* offsets = result.offsets.data();
  std::uint8_t* bytes = result.bytes.data();
  std::int64_t used = 0;
  offsets[0] = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    used += static_cast<std::int64_t>(copy_cell(text, cells[row * columns + column], quote, bytes + used));
    offsets[row + 1] = used;
  }
  result.bytes.resize(used);
  if (missing) {
    result.validity.resize(static_cast<std::int64_t>((rows + 7) / 8));
    std::memset(result.validity.data(), 0, (rows + 7) / 8);
    for (std::size_t row = 0; row < rows; ++row) {
      const Cell& cell = cells[row * columns + column];
      const bool there = cell.bytes != 0 || cell.quoted != 0;
      result.missing += there ? 0 : 1;
      result.validity.data()[row / 8] |= static_cast<std::uint8_t>((there ? 1 : 0) << (row % 8));
    }
  }
  return result;
}

// Splits a text; finds the cells first and copies them, column by column, when their sizes are known.
class Splitter {
 public:
  Splitter(std::string_view text, const TextFormat& format, std::int64_t cells, const std::vector<std::int64_t>& wanted,
           std::int64_t examples)
      : text_(text), format_(format), expected_(cells), examples_(examples), columns_(wanted.size()) {
    slots_.assign(static_cast<std::size_t>(cells), -1);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] < 0 || wanted[i] >= cells || slots_[static_cast<std::size_t>(wanted[i])] >= 0) {
        throw Error(ErrorKind::kUsage, "expected different positions of cells below " + std::to_string(cells));
      }
      slots_[static_cast<std::size_t>(wanted[i])] = static_cast<std::int64_t>(i);
    }
  }

  TextRows split() {
    const char* at = text_.data();
    const char* const end = at + text_.size();
    const bool valid = is_utf8(at, end);
    RecordReader reader(text_, format_, /*last=*/true);
    found_.reserve(columns_ * (text_.size() / 16 + 1));
    while (at < end) {
      const char* const record = at;
      found_.resize((static_cast<std::size_t>(result_.rows) + 1) * columns_);
      Cell* const row = found_.data() + static_cast<std::size_t>(result_.rows) * columns_;
      bool spans_lines = false;
      const Outcome outcome = reader.next(at, [&](std::int64_t position, const Cell& cell) {
        spans_lines = spans_lines || cell.quoted != 0;
        if (position < expected_ && slots_[static_cast<std::size_t>(position)] >= 0) {
          row[slots_[static_cast<std::size_t>(position)]] = cell;
        }
      });
      const std::int64_t line = result_.lines;
      result_.lines += spans_lines && outcome == Outcome::kRecord ? lines_of(record, at) : 1;
      if (outcome == Outcome::kBlank) {
        continue;
      }
      if (outcome == Outcome::kUnbalanced) {
        reject(Malformed::kQuote, record, at, line, 0);
      } else if (!valid && !is_utf8(record, at)) {
        reject(Malformed::kEncoding, record, at, line, 0);
      } else if (reader.cells() != expected_) {
        reject(Malformed::kCells, record, at, line, reader.cells());
      } else {
        accept(line);
      }
    }
    found_.resize(static_cast<std::size_t>(result_.rows) * columns_);
    for (std::size_t column = 0; column < columns_; ++column) {
      result_.columns.push_back(gather_column(text_, format_.quote, found_, column, columns_));
    }
    return std::move(result_);
  }

 private:
  static std::int64_t lines_of(const char* record, const char* next) {
    const char* const last = next - 1;
    return find_near(record, last, '\n') == nullptr ? 1 : std::count(record, last, '\n') + 1;
  }

  void accept(std::int64_t line) {
    if (line != next_line_) {
      result_.jump_rows.append(result_.rows);
      result_.jump_lines.append(line);
    }
    next_line_ = line + 1;
    ++result_.rows;
  }

  void reject(Malformed kind, const char* record, const char* next, std::int64_t line, std::int64_t cells) {
    if (result_.malformed_counts[static_cast<int>(kind)]++ < examples_) {
      const char* stop = std::find(record, std::min(next, record + kShownBytes), '\n');
      result_.malformed.push_back({kind, line, cells, std::string(record, stop)});
    }
  }

  std::string_view text_;
  TextFormat format_;
  std::int64_t expected_;
  std::int64_t examples_;
  std::size_t columns_;
  std::vector<std::int64_t> slots_;  // by position: which of the wanted cells it is, or -1
  std::vector<Cell> found_;          // [rows, columns]
  std::int64_t next_line_ = 0;
  TextRows result_;
};

}  // namespace

std::int64_t whole_records(std::string_view text, const TextFormat& format) {
  check_size(text);
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  if (format.quote == '\0' || find(begin, end, format.quote) == nullptr) {
    const std::size_t line_break = text.rfind('\n');
    return line_break == std::string_view::npos ? 0 : static_cast<std::int64_t>(line_break) + 1;
  }
  RecordReader reader(text, format, /*last=*/false);
  const char* at = begin;
  while (at < end && reader.next(at, [](std::int64_t, const Cell&) {}) != Outcome::kIncomplete) {
  }
  return at - begin;
}

TextRows split_text(std::string_view text, const TextFormat& format, std::int64_t cells,
                    const std::vector<std::int64_t>& wanted, std::int64_t examples) {
  check_size(text);
  return Splitter(text, format, cells, wanted, examples).split();
}

TextHeader read_text_header(std::string_view text, const TextFormat& format, bool last) {
  check_size(text);
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  RecordReader reader(text, format, last);
  TextHeader header;
  for (const char* at = begin; at < end;) {
    header.cells.clear();
    const Outcome outcome = reader.next(at, [&](std::int64_t, const Cell& cell) {
      std::vector<std::uint8_t> bytes(cell.bytes + kCopyBytes);
      const std::size_t size = copy_cell(text, cell, format.quote, bytes.data());
      header.cells.emplace_back(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    });
    if (outcome == Outcome::kBlank) {
      continue;
    }
    header.complete = outcome != Outcome::kIncomplete;
    header.malformed = outcome == Outcome::kUnbalanced || !is_utf8(begin, at);
    header.bytes = at - begin;
    header.lines = std::count(begin, at, '\n');
    return header;
  }
  header.complete = last;
  return header;
}

}  // namespace graphbox
