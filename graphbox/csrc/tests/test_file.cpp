#include "io/file.h"

#include <filesystem>
#include <string>

#include "errors/error.h"
#include "tests/check.h"

namespace graphbox {
namespace {

TEST(file, what_was_written_is_read) {
  const std::string path = testing::temporary_path("written");
  AtomicFileWriter writer(path);
  writer.write("abc", 3);
  writer.write("defg", 4);
  CHECK(!std::filesystem::exists(path));
  writer.commit();
  const FileReader reader(path);
  CHECK_EQUAL(reader.bytes(), std::uint64_t{7});
  std::string text(5, ' ');
  reader.read(text.data(), 5, 2);
  CHECK(text == "cdefg");
  CHECK_THROWS(reader.read(text.data(), 5, 3), ErrorKind::kFormat, "ends at byte 7");
}

TEST(file, nothing_remains_without_commit) {
  const std::string path = testing::temporary_path("dropped/file");
  std::filesystem::create_directory(testing::temporary_path("dropped"));
  {
    AtomicFileWriter writer(path);
    writer.write("abc", 3);
  }
  CHECK(std::filesystem::is_empty(testing::temporary_path("dropped")));
}

TEST(file, errors_name_the_file) {
  CHECK_THROWS(FileReader(testing::temporary_path("absent")), ErrorKind::kNotFound, "No such file");
  CHECK_THROWS(AtomicFileWriter(testing::temporary_path("absent/file")), ErrorKind::kNotFound, "cannot create");
}

}  // namespace
}  // namespace graphbox
