#include "table/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "errors/error.h"
#include "table/table.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr Optimizer kAllOptimizers[] = {Optimizer::kSgd,  Optimizer::kAdagrad,     Optimizer::kRowwiseAdagrad,
                                        Optimizer::kAdam, Optimizer::kRowwiseAdam, Optimizer::kFtrl};

TableConfig config(Optimizer optimizer, std::uint64_t dim, ValueType type = ValueType::kFloat32) {
  TableConfig config;
  config.dim = dim;
  config.value_type = type;
  config.optimizer.kind = optimizer;
  config.init_scale = 0.5F;
  config.seed = 3;
  return config;
}

std::string new_folder(const std::string& name) {
  const std::string folder = testing::temporary_path(name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  return folder;
}

std::vector<std::int64_t> numbers(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> keys;
  for (std::int64_t key = begin; key < end; ++key) {
    keys.push_back(key * 1000003);
  }
  return keys;
}

void push(Table& table, const std::vector<std::int64_t>& keys, int threads = 1) {
  std::vector<float> gradients(keys.size() * table.config().dim);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = static_cast<float>(i % 101) * 0.01F - 0.5F;
  }
  const auto count = static_cast<std::int64_t>(keys.size());
  table.push(keys.data(), {gradients.data(), count, count}, threads);
}

std::vector<float> rows_of(Table& table, const std::vector<std::int64_t>& keys) {
  std::vector<float> rows(keys.size() * table.config().dim);
  table.pull(keys.data(), static_cast<std::int64_t>(keys.size()), rows.data(), false, 1);
  return rows;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(checkpoint, goes_on_the_same_for_any_number_of_threads) {
  const auto keys = numbers(0, 30000);
  for (const Optimizer optimizer : kAllOptimizers) {
    for (const ValueType type : {ValueType::kFloat32, ValueType::kFloat16}) {
      Table table(config(optimizer, 5, type));
      push(table, keys);
      const auto erased = numbers(100, 200);
      table.erase(erased.data(), 100);
      const std::string folder = new_folder("one");
      const auto parts = table.write_checkpoint({folder, RowContents::kRecords, -1, false, 1}).parts;
      const std::string other_folder = new_folder("other");
      const auto other_parts = table.write_checkpoint({other_folder, RowContents::kRecords, -1, false, 3}).parts;
      CHECK_EQUAL(parts.size(), other_parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        CHECK_EQUAL(parts[i].crc32c, other_parts[i].crc32c);
        CHECK(bytes_of(folder + "/" + parts[i].name) == bytes_of(other_folder + "/" + parts[i].name));
      }
      for (const int threads : {1, 3}) {
        Table loaded(config(optimizer, 5, type));
        loaded.load_checkpoint(folder, parts, false, {}, threads);
        CHECK_EQUAL(loaded.rows(), table.rows());
        CHECK(rows_of(loaded, keys) == rows_of(table, keys));
        Table going(config(optimizer, 5, type));
        going.load_checkpoint(folder, parts, false, {}, threads);
        push(loaded, numbers(50, 250), 2);
        push(going, numbers(50, 250));
        CHECK(rows_of(loaded, keys) == rows_of(going, keys));
      }
    }
  }
}

TEST(checkpoint, rows_larger_than_batches) {
  Table table(config(Optimizer::kAdam, 65536));
  const auto keys = numbers(0, 12);
  push(table, keys);
  const std::string folder = new_folder("wide");
  const auto parts = table.write_checkpoint({folder, RowContents::kRecords, -1, false, 2}).parts;
  Table loaded(config(Optimizer::kAdam, 65536));
  loaded.load_checkpoint(folder, parts, false, {}, 2);
  CHECK(rows_of(loaded, keys) == rows_of(table, keys));
}

// For ThreadSanitizer: rows of a part are filled while those of the next get their places, in memory that grows.
TEST(checkpoint, several_parts_at_once) {
  Table table(config(Optimizer::kSgd, 2048));
  const auto keys = numbers(0, 9000);
  std::vector<float> rows(keys.size() * 2048);
  table.pull(keys.data(), 9000, rows.data(), true, 2);
  const std::string folder = new_folder("parts");
  const auto parts = table.write_checkpoint({folder, RowContents::kRecords, -1, false, 2}).parts;
  CHECK(parts.size() > 2);
  Table loaded(config(Optimizer::kSgd, 2048));
  loaded.load_checkpoint(folder, parts, false, {}, 2);
  CHECK(rows_of(loaded, keys) == rows);
  const auto order = loaded.keys();
  CHECK(std::equal(order.begin(), order.end(), keys.begin(), keys.end()));
  Table served(config(Optimizer::kSgd, 2048));
  served.apply_values(folder, parts, table.part_records(RowContents::kRecords), 2);
  CHECK(rows_of(served, keys) == rows);
}

TEST(checkpoint, every_damaged_byte_is_noticed) {
  Table table(config(Optimizer::kAdagrad, 3));
  const auto keys = numbers(0, 40);
  push(table, keys);
  const std::string folder = new_folder("sound");
  const auto parts = table.write_checkpoint({folder, RowContents::kRecords, 0, false, 1}).parts;
  const auto erased = numbers(0, 20);
  table.erase(erased.data(), 20);
  const std::string delta_folder = new_folder("delta");
  const auto delta = table.write_checkpoint({delta_folder, RowContents::kRecords, 0, true, 1}).parts;
  CHECK_EQUAL(delta.size(), std::size_t{1});
  for (const auto& [place, part] : {std::pair(folder, parts[0]), std::pair(delta_folder, delta[0])}) {
    const std::string path = place + "/" + part.name;
    const std::string sound = bytes_of(path);
    const auto load = [&](const std::string& bytes) {
      std::ofstream(path, std::ios::binary) << bytes;
      Table(config(Optimizer::kAdagrad, 3)).load_checkpoint(place, {part}, true, {}, 2);
    };
    for (std::size_t i = 0; i < sound.size(); i += (i > 400 && i < 4000) || (i > 4500 && i < 8100) ? 97 : 1) {
      std::string flipped = sound;
      flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
      CHECK_THROWS(load(flipped), ErrorKind::kFormat, "");
    }
    for (std::size_t length = 0; length < sound.size(); length += 61) {
      CHECK_THROWS(load(sound.substr(0, length)), ErrorKind::kFormat, "");
    }
    CHECK_THROWS(load(sound + "x"), ErrorKind::kFormat, "");
    load(sound);
  }
}

TEST(checkpoint, a_part_of_another_checkpoint_is_noticed) {
  Table table(config(Optimizer::kSgd, 3));
  push(table, numbers(0, 40));
  const std::string first = new_folder("first");
  const auto parts = table.write_checkpoint({first, RowContents::kRecords, -1, false, 1}).parts;
  push(table, numbers(0, 1));
  const std::string second = new_folder("second");
  table.write_checkpoint({second, RowContents::kRecords, -1, false, 1});
  Table loaded(config(Optimizer::kSgd, 3));
  CHECK_THROWS(loaded.load_checkpoint(second, parts, false, {}, 1), ErrorKind::kFormat, "not the one the manifest lists");
}

TEST(checkpoint, changes_that_were_not_saved_are_in_the_next_delta) {
  Table table(config(Optimizer::kSgd, 3));
  push(table, numbers(0, 1000));
  table.write_checkpoint({new_folder("base"), RowContents::kRecords, 0, false, 1});
  table.confirm_changes(0);
  push(table, numbers(10, 20));
  const auto erased = numbers(500, 505);
  table.erase(erased.data(), 5);
  table.write_checkpoint({new_folder("lost"), RowContents::kRecords, 0, true, 1});
  push(table, numbers(15, 30));
  table.restore_changes(0);
  const auto parts = table.write_checkpoint({new_folder("kept"), RowContents::kRecords, 0, true, 1}).parts;
  CHECK_EQUAL(parts.size(), std::size_t{2});
  CHECK_EQUAL(parts[0].rows, std::uint64_t{20});
  CHECK_EQUAL(parts[1].rows, std::uint64_t{5});
  table.confirm_changes(0);
  CHECK(table.write_checkpoint({new_folder("nothing"), RowContents::kRecords, 0, true, 1}).parts.empty());
}

TEST(checkpoint, values_come_back_as_near_as_their_type_allows) {
  std::vector<float> values = {0, -1, 0.5F, 1e-6F, -0.001F, 100, -127};
  for (const auto& [contents, error] :
       {std::pair(RowContents::kFloat32, 0.0F), std::pair(RowContents::kFloat16, 0.001F * 127),
        std::pair(RowContents::kInt8, 0.5F)}) {
    std::vector<std::byte> bytes(served_bytes(values.size(), contents));
    std::vector<float> back(values.size());
    CHECK(encode_values(values, contents, bytes.data()));
    decode_values(bytes.data(), contents, back);
    for (std::size_t i = 0; i < values.size(); ++i) {
      CHECK(std::abs(back[i] - values[i]) <= error);
    }
  }
  std::vector<std::byte> bytes(64);
  values = {1e-45F, -3e-45F, 0};  // scales of few bits
  CHECK(encode_values(values, RowContents::kInt8, bytes.data()));
  values = {1, std::numeric_limits<float>::infinity()};
  CHECK(!encode_values(values, RowContents::kInt8, bytes.data()));
  CHECK(!encode_values(values, RowContents::kFloat16, bytes.data()));
}

}  // namespace
}  // namespace graphbox
