#include "io/block_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "errors/error.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kFileBytes = (std::uint64_t{24} << 20) + 1234;  // more than the staging memory

std::vector<char> write_file(const std::string& path) {
  std::vector<char> content(kFileBytes);
  std::uint64_t state = 1;
  for (std::size_t i = 0; i + 8 <= content.size(); i += 8) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(content.data() + i, &state, 8);
  }
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  return content;
}

// Gives stretches of many lengths that cover the file from front to back.
struct Cover {
  const BlockFile* file;
  std::uint64_t offset = 0;
  std::uint64_t number = 0;

  bool operator()(Stretch& stretch) {
    if (offset >= file->bytes()) {
      return false;
    }
    const std::uint64_t blocks = number % 7 == 0 ? 128 : 1 + number * 11 % 40;
    const std::uint64_t bytes = std::min(blocks * kBlockBytes, file->bytes() - offset);
    stretch = {file, offset, static_cast<std::uint32_t>(bytes), number++};
    offset += bytes;
    return true;
  }
};

std::vector<ReadBackend> backends() {
  const ReadBackend usual = choose_backend(ReadBackend::kAuto, 64).backend;
  return usual == ReadBackend::kThreads ? std::vector{usual} : std::vector{usual, ReadBackend::kThreads};
}

TEST(block_reader, stretches_are_those_of_the_file) {
  const std::string path = testing::temporary_path("block-reader");
  const std::vector<char> content = write_file(path);
  for (const ReadBackend backend : backends()) {
    for (const bool direct : {true, false}) {
      for (const unsigned depth : {1U, 3U, 64U}) {
        const BlockFile file(path, kFileBytes, direct);
        BlockReader reader(backend, depth);
        std::uint64_t bytes = 0;
        std::uint64_t numbers = 0;
        Cover cover{&file};
        reader.read([&](Stretch& stretch) { return cover(stretch); },
                    [&](const Stretch& stretch, const std::byte* data) {
                      CHECK(std::memcmp(data, content.data() + stretch.offset, stretch.bytes) == 0);
                      bytes += stretch.bytes;
                      numbers += stretch.tag;
                    });
        CHECK_EQUAL(bytes, kFileBytes);
        CHECK_EQUAL(numbers, cover.number * (cover.number - 1) / 2);
        CHECK(reader.idle());
      }
    }
  }
}

TEST(block_reader, can_be_used_again_after_an_error) {
  const std::string path = testing::temporary_path("block-reader-error");
  const std::vector<char> content = write_file(path);
  const BlockFile file(path, kFileBytes, true);
  for (const ReadBackend backend : backends()) {
    BlockReader reader(backend, 16);
    for (int place = 0; place < 2; ++place) {
      Cover cover{&file};
      int calls = 0;
      bool thrown = false;
      try {
        reader.read(
            [&](Stretch& stretch) {
              if (place == 0 && cover.number == 40) {
                throw std::runtime_error("next");
              }
              return cover(stretch);
            },
            [&](const Stretch&, const std::byte*) {
              if (place == 1 && ++calls == 5) {
                throw std::runtime_error("done");
              }
            });
      } catch (const std::runtime_error&) {
        thrown = true;
      }
      CHECK(thrown);
      CHECK(reader.idle());
    }
    std::uint64_t bytes = 0;
    Cover cover{&file};
    reader.read([&](Stretch& stretch) { return cover(stretch); },
                [&](const Stretch& stretch, const std::byte*) { bytes += stretch.bytes; });
    CHECK_EQUAL(bytes, kFileBytes);
  }
}

TEST(block_reader, an_unreadable_file_is_named) {
  const std::string path = testing::temporary_path("block-reader-named");
  std::ofstream(path) << "abc";
  const BlockFile file(path, 3, false);
  CHECK_THROWS(file.throw_unreadable(4096, EIO), ErrorKind::kData, "cannot read at byte 4096");
  CHECK_THROWS(BlockFile(path + "-absent", 1, true), ErrorKind::kNotFound, "cannot open the file");
  CHECK_THROWS(BlockFile(path, 4, true), ErrorKind::kFormat, "expected a file of 4 bytes, received one of 3");
}

TEST(block_reader, idle_readers_are_counted_and_given_back) {
  LentReader::release();
  const ReadBackend backend = choose_backend(ReadBackend::kAuto, 8).backend;
  {
    const LentReader first(backend, 8);
    const LentReader second(backend, 8);
    CHECK_EQUAL(LentReader::held_bytes(), std::size_t{0});
  }
  CHECK_EQUAL(LentReader::held_bytes(), 2 * BlockReader::kStagingBytes);
  {
    const LentReader again(backend, 8);
    CHECK_EQUAL(LentReader::held_bytes(), BlockReader::kStagingBytes);
  }
  LentReader::release();
  CHECK_EQUAL(LentReader::held_bytes(), std::size_t{0});
}

}  // namespace
}  // namespace graphbox
