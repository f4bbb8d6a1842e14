// The few lines of test harness that the unit tests need: TEST(group, name) { CHECK(...); }.
#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace graphbox::testing {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool add_test(const char* group, const char* name, void (*body)());

[[noreturn]] inline void fail(const char* file, int line, const std::string& message) {
  throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + message);
}

template <typename Left, typename Right>
void check_equal(const Left& left, const Right& right, const char* text, const char* file, int line) {
  if (!(left == right)) {
    std::ostringstream message;
    message << "expected " << text << "; " << +left << " and " << +right;
    fail(file, line, message.str());
  }
}

// The temporary folder of this run, removed at its end.
std::string temporary_path(const std::string& name);

}  // namespace graphbox::testing

#define TEST(group, name)                                                 \
  static void test_##group##_##name();                                    \
  [[maybe_unused]] static const bool added_##group##_##name =             \
      graphbox::testing::add_test(#group, #name, &test_##group##_##name); \
  static void test_##group##_##name()

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      graphbox::testing::fail(__FILE__, __LINE__, "expected " #condition); \
    }                                                                      \
  } while (false)

#define CHECK_EQUAL(left, right) \
  graphbox::testing::check_equal((left), (right), #left " == " #right, __FILE__, __LINE__)

// The statement must throw a graphbox::Error of the kind whose message contains the text.
#define CHECK_THROWS(statement, expected_kind, text)                                                     \
  do {                                                                                                   \
    bool thrown = false;                                                                                 \
    try {                                                                                                \
      statement;                                                                                         \
    } catch (const graphbox::Error& error) {                                                             \
      thrown = true;                                                                                     \
      CHECK(error.kind() == (expected_kind));                                                            \
      if (std::string(error.what()).find(text) == std::string::npos) {                                   \
        graphbox::testing::fail(__FILE__, __LINE__, std::string("unexpected message: ") + error.what()); \
      }                                                                                                  \
    }                                                                                                    \
    if (!thrown) {                                                                                       \
      graphbox::testing::fail(__FILE__, __LINE__, "expected an error from " #statement);                 \
    }                                                                                                    \
  } while (false)
