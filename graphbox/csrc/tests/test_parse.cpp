#include "text/parse.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

struct Column {
  explicit Column(const std::vector<std::string>& cells) {
    offsets.push_back(0);
    for (const std::string& cell : cells) {
      text += cell;
      offsets.push_back(static_cast<std::int64_t>(text.size()));
    }
  }
  TextColumn cells() const { return {offsets, text.data()}; }

  std::vector<std::int64_t> offsets;
  std::string text;
};

std::int64_t integer(const std::string& cell, IntegerSpelling spelling, std::uint8_t& wrong) {
  const Column column({cell});
  std::int64_t value = -1;
  const std::int64_t failed = parse_integers(column.cells(), spelling, &value, &wrong);
  CHECK_EQUAL(failed, std::int64_t{wrong});
  return value;
}

TEST(parse, integers) {
  std::uint8_t wrong = 0;
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t smallest = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{10}, largest, smallest}) {
    CHECK_EQUAL(integer(std::to_string(number), IntegerSpelling::kPlain, wrong), number);
    CHECK_EQUAL(wrong, 0);
  }
  for (const char* cell : {"", "-", "+", "x", "1x", " 1", "1 ", "1.0", "0x1", "--1", "9223372036854775808",
                           "-9223372036854775809", "18446744073709551616", "99999999999999999999"}) {
    for (const IntegerSpelling spelling : {IntegerSpelling::kPlain, IntegerSpelling::kAny}) {
      CHECK_EQUAL(integer(cell, spelling, wrong), 0);
      CHECK_EQUAL(wrong, 1);
    }
  }
  for (const char* cell : {"007", "+7", "+00000000000000000000000007"}) {
    CHECK_EQUAL(integer(cell, IntegerSpelling::kAny, wrong), 7);
    CHECK_EQUAL(wrong, 0);
    integer(cell, IntegerSpelling::kPlain, wrong);
    CHECK_EQUAL(wrong, 1);
  }
  integer("-0", IntegerSpelling::kPlain, wrong);
  CHECK_EQUAL(wrong, 1);
  CHECK_EQUAL(integer("-0", IntegerSpelling::kAny, wrong), 0);
  CHECK_EQUAL(wrong, 0);
}

TEST(parse, numbers) {
  const Column column({"1", "-2.5", "+3e2", ".5", "inf", "-Infinity", "nan", "1e-400", "-0.0000001e-330"});
  std::vector<double> values(9);
  std::vector<std::uint8_t> wrong(9);
  CHECK_EQUAL(parse_numbers(column.cells(), values.data(), wrong.data()), 0);
  CHECK_EQUAL(values[0], 1.0);
  CHECK_EQUAL(values[1], -2.5);
  CHECK_EQUAL(values[2], 300.0);
  CHECK_EQUAL(values[3], 0.5);
  CHECK(std::isinf(values[4]) && values[5] < 0 && std::isinf(values[5]) && std::isnan(values[6]));
  CHECK(values[7] == 0 && values[8] == 0 && std::signbit(values[8]));

  const Column none({"", "x", "1,5", "+-1", "1e", "1e400", "-1000000e305", "1 ", "++1"});
  CHECK_EQUAL(parse_numbers(none.cells(), values.data(), wrong.data()), 9);
  CHECK_EQUAL(values[5], 0.0);
}

TEST(parse, booleans) {
  const Column column({"true", "False", "1", "0", "TRUE", "", "yes", "10", "tru"});
  std::vector<std::uint8_t> values(9);
  std::vector<std::uint8_t> wrong(9);
  CHECK_EQUAL(parse_booleans(column.cells(), values.data(), wrong.data()), 4);
  CHECK((values == std::vector<std::uint8_t>{1, 0, 1, 0, 1, 0, 0, 0, 0}));
  CHECK((wrong == std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace graphbox
