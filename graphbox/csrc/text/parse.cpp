#include "text/parse.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <system_error>

namespace graphbox {
namespace {

constexpr int kSafeDigits = 18;  // no number of so many digits is beyond 64 bits
constexpr std::uint64_t kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

bool parse_integer(std::string_view cell, IntegerSpelling spelling, std::int64_t& value) {
  const char* at = cell.data();
  const char* const end = at + cell.size();
  const bool negative = at != end && *at == '-';
  const bool signed_plus = at != end && *at == '+';
  at += negative || signed_plus ? 1 : 0;
  if (at == end) {
    return false;
  }
  if (spelling == IntegerSpelling::kPlain) {
    if (signed_plus || (*at == '0' && (negative || end - at > 1))) {
      return false;
    }
  } else {
    while (end - at > 1 && *at == '0') {
      ++at;
    }
  }
  if (end - at > kSafeDigits + 1) {
    return false;
  }
  std::uint64_t number = 0;
  for (; at != end; ++at) {
    const unsigned digit = static_cast<unsigned char>(*at) - unsigned{'0'};
    if (digit > 9) {
      return false;
    }
    number = number * 10 + digit;  // 19 digits fit 64 bits without sign
  }
  if (number > kLargest + (negative ? 1 : 0)) {
    return false;
  }
  value = static_cast<std::int64_t>(negative ? 0 - number : number);
  return true;
}

// Whether a number beyond double is one of too small an exponent; only asked of what from_chars calls out of range.
bool is_tiny(std::string_view cell) {
  const auto exponent = cell.find_first_of("eE");
  const std::string_view digits = cell.substr(0, exponent);
  const auto first = digits.find_first_of("123456789");
  const auto point = digits.find('.');
  if (first == std::string_view::npos) {
    return true;
  }
  const auto position = static_cast<std::int64_t>(first);
  const auto units = static_cast<std::int64_t>(point == std::string_view::npos ? digits.size() : point);
  std::int64_t power = units > position ? units - position - 1 : units - position;
  if (exponent != std::string_view::npos) {
    std::string_view text = cell.substr(exponent + 1);
    const bool down = text.starts_with('-');
    text.remove_prefix(down || text.starts_with('+') ? 1 : 0);
    std::int64_t shift = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), shift).ec != std::errc{}) {
      return down;
    }
    power += down ? -shift : shift;
  }
  return power < 0;
}

bool parse_number(std::string_view cell, double& value) {
  if (cell.starts_with('+')) {
    cell.remove_prefix(1);
    if (cell.starts_with('-')) {
      return false;
    }
  }
  const char* const end = cell.data() + cell.size();
  const auto result = std::from_chars(cell.data(), end, value);
  if (result.ptr != end) {
    return false;
  }
  if (result.ec == std::errc::result_out_of_range) {
    if (!is_tiny(cell)) {
      return false;
    }
    value = cell.starts_with('-') ? -0.0 : 0.0;
    return true;
  }
  return result.ec == std::errc{};
}

bool equals_ignoring_case(std::string_view cell, std::string_view lower) {
  if (cell.size() != lower.size()) {
    return false;
  }
  for (std::size_t i = 0; i < cell.size(); ++i) {
    if ((static_cast<unsigned char>(cell[i]) | 0x20U) != static_cast<unsigned char>(lower[i])) {
      return false;
    }
  }
  return true;
}

bool parse_boolean(std::string_view cell, std::uint8_t& value) {
  value = cell == "1" || equals_ignoring_case(cell, "true") ? 1 : 0;
  return value != 0 || cell == "0" || equals_ignoring_case(cell, "false");
}

template <typename T, typename Parse>
std::int64_t parse_cells(const TextColumn& cells, T* values, std::uint8_t* wrong, Parse parse) {
  std::int64_t failed = 0;
  for (std::int64_t i = 0; i < cells.size(); ++i) {
    const auto begin = cells.offsets[static_cast<std::size_t>(i)];
    const auto end = cells.offsets[static_cast<std::size_t>(i) + 1];
    T value{};
    const bool good =
        end > begin && parse(std::string_view(cells.text + begin, static_cast<std::size_t>(end - begin)), value);
    values[i] = good ? value : T{};
    wrong[i] = good ? 0 : 1;
    failed += good ? 0 : 1;
  }
  return failed;
}

}  // namespace

std::int64_t parse_integers(const TextColumn& cells, IntegerSpelling spelling, std::int64_t* values,
                            std::uint8_t* wrong) {
  return parse_cells(cells, values, wrong, [spelling](std::string_view cell, std::int64_t& value) {
    return parse_integer(cell, spelling, value);
  });
}

std::int64_t parse_numbers(const TextColumn& cells, double* values, std::uint8_t* wrong) {
  return parse_cells(cells, values, wrong, parse_number);
}

std::int64_t parse_booleans(const TextColumn& cells, std::uint8_t* values, std::uint8_t* wrong) {
  return parse_cells(cells, values, wrong, parse_boolean);
}

}  // namespace graphbox
