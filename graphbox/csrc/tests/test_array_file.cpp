#include "io/array_file.h"

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "errors/error.h"
#include "io/crc32c.h"
#include "io/file.h"
#include "parallel/parallel_for.h"
#include "tests/check.h"

namespace graphbox {
namespace {

std::string content_of(const std::string& path) {
  const FileReader reader(path);
  std::string content(reader.bytes(), ' ');
  reader.read(content.data(), content.size(), 0);
  return content;
}

TEST(array_file, headers) {
  const std::string header = array_header("<i8", {3});
  CHECK_EQUAL(header.size(), kArrayHeaderBytes);
  const std::string start("\x93NUMPY\x01\x00\x76\x00{'descr': '<i8', 'fortran_order': False, 'shape': (3,), } ", 67);
  CHECK(header.substr(0, start.size()) == start);
  CHECK_EQUAL(header.back(), '\n');
  CHECK(array_header("<f4", {3, 16}).find("'shape': (3, 16), }") != std::string::npos);
  CHECK(array_header("<f4", {0, 2, 1}).find("'shape': (0, 2, 1), }") != std::string::npos);
  CHECK_THROWS(array_header("<f4", std::vector<std::uint64_t>(30, 1)), ErrorKind::kUsage, "too many dimensions");
  CHECK_THROWS(item_bytes_of("float32"), ErrorKind::kUsage, "received `float32`");
}

TEST(array_file, appended_rows) {
  const std::string path = testing::temporary_path("appended.npy");
  std::vector<std::int32_t> values(800'000);  // several buffers
  std::iota(values.begin(), values.end(), -5);
  ArrayFileWriter writer(path, "<i4", {2});
  const std::size_t cuts[] = {0, 1, 4, 300'001, 300'002, 800'000};
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
    writer.append(values.data() + cuts[i], (cuts[i + 1] - cuts[i]) * 4);
  }
  const ArrayFile file = writer.finish();
  CHECK(file.shape == (std::vector<std::uint64_t>{400'000, 2}));
  CHECK_EQUAL(file.crc32c, crc32c(0, values.data(), values.size() * 4));
  const std::string content = content_of(path);
  CHECK(content.substr(0, kArrayHeaderBytes) == array_header("<i4", {400'000, 2}));
  CHECK_EQUAL(content.size(), kArrayHeaderBytes + values.size() * 4);
  CHECK(std::memcmp(content.data() + kArrayHeaderBytes, values.data(), values.size() * 4) == 0);
  CHECK_THROWS(writer.finish(), ErrorKind::kUsage, "finished");
}

TEST(array_file, rows_written_by_threads) {
  const std::string path = testing::temporary_path("placed.npy");
  std::vector<std::int64_t> values(100'000);
  std::iota(values.begin(), values.end(), 0);
  ArrayFileWriter writer(path, "<i8");
  constexpr std::size_t kPiece = 1'000;
  parallel_for(4, 100, [&](std::int64_t piece) {
    const auto first = static_cast<std::size_t>(99 - piece) * kPiece;
    writer.write_at(first * 8, values.data() + first, kPiece * 8);
  });
  const ArrayFile file = writer.finish();
  CHECK_EQUAL(file.crc32c, crc32c(0, values.data(), values.size() * 8));
  CHECK(std::memcmp(content_of(path).data() + kArrayHeaderBytes, values.data(), values.size() * 8) == 0);
}

TEST(array_file, nothing_is_an_array_too) {
  const std::string path = testing::temporary_path("empty.npy");
  const ArrayFile file = ArrayFileWriter(path, "|u1").finish();
  CHECK(file.shape == std::vector<std::uint64_t>{0});
  CHECK_EQUAL(file.crc32c, std::uint32_t{0});
  CHECK(content_of(path) == array_header("|u1", {0}));
}

TEST(array_file, refuses_holes_and_parts_of_rows) {
  ArrayFileWriter holed(testing::temporary_path("holed.npy"), "|u1");
  holed.write_at(1, "a", 1);
  CHECK_THROWS(holed.finish(), ErrorKind::kFailure, "expected data at byte 0");
  ArrayFileWriter partial(testing::temporary_path("partial.npy"), "<i4");
  partial.append("abcde", 5);
  CHECK_THROWS(partial.finish(), ErrorKind::kUsage, "whole rows of 4 bytes, received 5");
}

TEST(array_file, a_full_disk_names_the_bytes) {
  ArrayFileWriter writer("/dev/full", "|u1");
  writer.append("abc", 3);
  CHECK_THROWS(writer.finish(), ErrorKind::kDoesNotFit, "cannot write 3 bytes");
}

}  // namespace
}  // namespace graphbox
