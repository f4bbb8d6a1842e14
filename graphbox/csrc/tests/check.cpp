#include "tests/check.h"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string_view>
#include <vector>

namespace graphbox::testing {
namespace {

struct Case {
  const char* group;
  const char* name;
  void (*body)();
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

std::filesystem::path& folder() {
  static std::filesystem::path path;
  return path;
}

bool run(const Case& test) {
  try {
    test.body();
    std::printf("ok    %s %s\n", test.group, test.name);
    return true;
  } catch (const std::exception& error) {
    std::printf("FAIL  %s %s\n      %s\n", test.group, test.name, error.what());
    return false;
  }
}

}  // namespace

bool add_test(const char* group, const char* name, void (*body)()) {
  cases().push_back({group, name, body});
  return true;
}

std::string temporary_path(const std::string& name) {
  if (folder().empty()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "graphbox-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("cannot make a temporary folder");
    }
    folder() = pattern;
  }
  return (folder() / name).string();
}

}  // namespace graphbox::testing

// native_tests [GROUP]: runs all tests, or those of a group.
int main(int count, char** arguments) {
  using namespace graphbox::testing;
  const std::string_view group = count > 1 ? arguments[1] : "";
  int ran = 0;
  int failed = 0;
  for (const Case& test : cases()) {
    if (group.empty() || group == test.group) {
      ++ran;
      failed += run(test) ? 0 : 1;
    }
  }
  if (!folder().empty()) {
    std::filesystem::remove_all(folder());
  }
  std::printf("%d tests, %d failed\n", ran, failed);
  return ran == 0 || failed > 0 ? 1 : 0;
}
