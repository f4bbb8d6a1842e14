#include "table/segment_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "errors/error.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kRecordBytes = 52;
constexpr const char* kRepair = "load a checkpoint";

SegmentInfo some_info(std::uint64_t rows) {
  SegmentInfo info;
  info.rows = rows;
  info.record_bytes = kRecordBytes;
  info.layout_digest = 7;
  info.sequence = 42;
  info.settings = "{\"dim\": 13}";
  return info;
}

std::int64_t key_at(std::uint64_t place) { return static_cast<std::int64_t>(place * 0x9E3779B97F4A7C15ULL); }

std::byte byte_at(std::uint64_t place, std::size_t i) { return static_cast<std::byte>(place * 31 + i); }

// Rows first ... first + count - 1, written from memory like that of the tier.
void write_rows(SegmentWriter& writer, std::uint64_t first, std::uint64_t count, bool aligned) {
  const std::uint64_t stride = writer.info().stride();
  Buffer buffer(std::max<std::size_t>(count * stride, kHugePageBytes) + 64);
  std::byte* const records = buffer.data() + (aligned ? 0 : 64);
  std::vector<std::int64_t> keys(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    keys[i] = key_at(first + i);
    for (std::size_t byte = 0; byte < kRecordBytes; ++byte) {
      records[i * stride + byte] = byte_at(first + i, byte);
    }
  }
  writer.write(first, keys.data(), records, count);
}

std::string written(const char* name, std::uint64_t rows) {
  const std::string path = testing::temporary_path(name);
  SegmentWriter writer(path, some_info(rows));
  write_rows(writer, 0, rows, true);
  writer.commit();
  return path;
}

BlockReader some_reader() { return {choose_backend(ReadBackend::kAuto, 16).backend, 16}; }

void check_rows(const std::string& path, std::uint64_t rows) {
  const SegmentReader segment(path, kRepair);
  CHECK_EQUAL(segment.info().rows, rows);
  CHECK_EQUAL(segment.info().sequence, std::uint64_t{42});
  CHECK(segment.info().settings == "{\"dim\": 13}");
  const std::vector<std::int64_t> keys = segment.keys();
  std::vector<bool> seen(rows, false);
  BlockReader reader = some_reader();
  segment.scan(reader, 0, rows,
               [&](std::uint64_t first, const std::int64_t* part, const std::byte* records, std::uint64_t count) {
                 for (std::uint64_t i = 0; i < count; ++i) {
                   CHECK(!seen[first + i]);
                   seen[first + i] = true;
                   CHECK_EQUAL(part[i], key_at(first + i));
                   CHECK_EQUAL(keys[first + i], part[i]);
                   for (std::size_t byte = 0; byte < kRecordBytes; ++byte) {
                     CHECK(records[i * segment.info().stride() + byte] == byte_at(first + i, byte));
                   }
                 }
               });
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}

void flip(const std::string& path, std::uint64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 4));
}

TEST(segment_file, what_was_written_is_read) {
  for (const std::uint64_t rows : {0, 1, 511, 4096, 70000}) {
    check_rows(written("segment", rows), rows);
  }
}

TEST(segment_file, batches_of_many_threads_make_the_same_file) {
  constexpr std::uint64_t kRows = 4 * SegmentWriter::kAlignedRows + 77;
  const std::string path = testing::temporary_path("batches");
  for (const bool aligned : {true, false}) {
    SegmentWriter writer(path, some_info(kRows));
    std::vector<std::thread> threads;
    for (int part = 4; part >= 0; --part) {
      threads.emplace_back([&writer, part, aligned] {
        const auto first = static_cast<std::uint64_t>(part) * SegmentWriter::kAlignedRows;
        write_rows(writer, first, std::min(SegmentWriter::kAlignedRows, kRows - first), aligned);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    writer.commit();
    check_rows(path, kRows);
    const std::string whole = written("whole", kRows);
    std::ifstream left(path, std::ios::binary);
    std::ifstream right(whole, std::ios::binary);
    CHECK(std::equal(std::istreambuf_iterator<char>(left), {}, std::istreambuf_iterator<char>(right), {}));
  }
}

TEST(segment_file, keys_alone) {
  const std::string path = testing::temporary_path("erased");
  SegmentInfo info = some_info(3);
  info.kind = SegmentKind::kErasedKeys;
  info.record_bytes = 0;
  SegmentWriter writer(path, info);
  const std::int64_t keys[3] = {INT64_MIN, -1, INT64_MAX};
  writer.write(0, keys, nullptr, 3);
  writer.commit();
  const SegmentReader segment(path, kRepair);
  CHECK(segment.info().kind == SegmentKind::kErasedKeys);
  CHECK(segment.keys() == std::vector<std::int64_t>(keys, keys + 3));
}

TEST(segment_file, nothing_remains_of_a_segment_that_was_not_committed) {
  const std::string folder = testing::temporary_path("uncommitted");
  std::filesystem::create_directory(folder);
  {
    SegmentWriter writer(folder + "/segment", some_info(10));
    write_rows(writer, 0, 9, true);
    CHECK_THROWS(writer.commit(), ErrorKind::kFailure, "there are 9");
    CHECK_THROWS(write_rows(writer, 9, 2, true), ErrorKind::kFailure, "expected rows up to 10");
  }
  CHECK(std::filesystem::is_empty(folder));
  CHECK_THROWS(SegmentWriter(folder + "/absent/segment", some_info(1)), ErrorKind::kNotFound, "cannot create");
}

// Every byte counts: none can change without being noticed by whoever reads it.
TEST(segment_file, changed_bytes_are_noticed) {
  constexpr std::uint64_t kRows = 600;
  const std::string path = written("changed", kRows);
  const SegmentInfo info = some_info(kRows);
  BlockReader reader = some_reader();
  const auto read_all = [&] {
    const SegmentReader segment(path, kRepair);
    segment.scan_keys([](std::uint64_t, const std::int64_t*, std::uint64_t) {});
    segment.scan(reader, 0, kRows, [](std::uint64_t, const std::int64_t*, const std::byte*, std::uint64_t) {});
  };
  read_all();
  for (std::uint64_t offset = 0; offset < info.file_bytes(); offset += offset < 80 ? 1 : 97) {
    if (offset >= info.keys_offset() + kRows * 8 && offset < info.records_offset()) {
      continue;  // between keys and records there is nothing
    }
    flip(path, offset);
    bool noticed = false;
    try {
      read_all();
    } catch (const Error& error) {
      noticed = error.kind() == ErrorKind::kFormat && error.where() == path && !error.hint().empty();
    }
    CHECK(noticed);
    flip(path, offset);
  }
  read_all();
}

TEST(segment_file, one_row_is_verified_by_itself) {
  const std::string path = written("single", 100);
  const SegmentReader segment(path, kRepair);
  std::vector<std::byte> record(segment.info().stride());
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(segment.info().record_offset(17)));
  file.read(reinterpret_cast<char*>(record.data()), static_cast<std::streamsize>(record.size()));
  segment.verify(17, key_at(17), record.data());
  CHECK_THROWS(segment.verify(17, key_at(18), record.data()), ErrorKind::kFormat, "is damaged");
  record[5] ^= std::byte{1};
  CHECK_THROWS(segment.verify(17, key_at(17), record.data()), ErrorKind::kFormat, "is damaged");
}

TEST(segment_file, other_files_are_refused) {
  const std::string path = written("cut", 100);
  std::filesystem::resize_file(path, some_info(100).file_bytes() - 1);
  CHECK_THROWS(SegmentReader(path, kRepair), ErrorKind::kFormat, "truncated");
  std::filesystem::resize_file(path, 100);
  CHECK_THROWS(SegmentReader(path, kRepair), ErrorKind::kFormat, "the file has 100");
  std::ofstream(path, std::ios::binary) << std::string(5000, 'x');
  CHECK_THROWS(SegmentReader(path, kRepair), ErrorKind::kFormat, "GBXSEGMT");
  CHECK_THROWS(SegmentReader(testing::temporary_path("absent"), kRepair), ErrorKind::kNotFound, "No such file");
}

}  // namespace
}  // namespace graphbox
