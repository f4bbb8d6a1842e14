#include "graph/id_table.h"

#include <cstring>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "errors/error.h"
#include "graph/spilled_ids.h"
#include "io/file.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::size_t kMemory = std::size_t{256} << 20;

// Ids some of which repeat, the extreme ones among them.
std::vector<std::int64_t> some_ids(std::size_t count, std::uint64_t distinct) {
  std::vector<std::int64_t> ids = {0, -1, std::numeric_limits<std::int64_t>::min(),
                                   std::numeric_limits<std::int64_t>::max()};
  std::uint64_t state = 1;
  while (ids.size() < count) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    ids.push_back(static_cast<std::int64_t>((state >> 33) % distinct * 0x9E3779B97F4A7C15ULL));
  }
  return ids;
}

IdBatch batch_of(const std::vector<std::int64_t>& ids) {
  IdBatch batch;
  batch.size = static_cast<std::int64_t>(ids.size());
  batch.integers = {ids.data()};
  return batch;
}

std::vector<std::int64_t> first_appearances(const std::vector<std::int64_t>& ids) {
  std::unordered_map<std::int64_t, std::int64_t> numbers;
  std::vector<std::int64_t> expected;
  for (const std::int64_t id : ids) {
    expected.push_back(numbers.emplace(id, static_cast<std::int64_t>(numbers.size())).first->second);
  }
  return expected;
}

std::string index_of(IdTable& table) {
  const IdIndex index = table.into_index();
  return {reinterpret_cast<const char*>(index.data()), index.size_bytes()};
}

TEST(id_table, numbers_by_first_appearance_with_any_threads_and_batches) {
  const std::vector<std::int64_t> ids = some_ids(300'000, 200'000);
  const std::vector<std::int64_t> expected = first_appearances(ids);
  std::string first_index;
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t rows : {std::int64_t{1'000}, std::int64_t{300'000}}) {
      IdTable table(IdKind::kInteger, kMemory, threads);
      std::vector<std::int64_t> found(ids.size());
      const IdBatch batch = batch_of(ids);
      for (std::int64_t first = 0; first < batch.size; first += rows) {
        CHECK(table.reserve(rows, 0));
        table.insert(batch.slice(first, rows), nullptr, found.data() + first);
      }
      CHECK(found == expected);
      std::vector<std::int64_t> again(ids.size());
      table.find(batch, nullptr, again.data());
      CHECK(again == expected);
      const std::string index = index_of(table);
      first_index = first_index.empty() ? index : first_index;
      CHECK(index == first_index);
    }
  }
}

TEST(id_table, missing_rows_are_not_added) {
  IdTable table(IdKind::kInteger, kMemory, 2);
  const std::vector<std::int64_t> ids = {7, 8, 7, 9};
  const std::vector<std::uint8_t> valid = {1, 0, 1, 1};
  std::vector<std::int64_t> found(4);
  CHECK(table.reserve(4, 0));
  table.insert(batch_of(ids), valid.data(), found.data());
  CHECK(found == (std::vector<std::int64_t>{0, -1, 0, 1}));
  table.find(batch_of(ids), nullptr, found.data());
  CHECK(found == (std::vector<std::int64_t>{0, -1, 0, 1}));
}

TEST(id_table, says_when_ids_do_not_fit) {
  IdTable table(IdKind::kInteger, std::size_t{16} << 20, 1);
  CHECK(table.reserve(100'000, 0));
  CHECK(!table.reserve(2'000'000, 0));
}

TEST(id_table, what_is_held_follows_from_the_ids_and_not_from_the_batches) {
  const std::vector<std::int64_t> ids = some_ids(400'000, 390'000);
  std::vector<std::int64_t> found(ids.size());
  for (const std::size_t memory : {kMemory, std::size_t{16} << 20}) {
    std::vector<std::size_t> held;
    for (const std::int64_t rows : {std::int64_t{400'000}, std::int64_t{50'000}, std::int64_t{20'000}}) {
      IdTable table(IdKind::kInteger, memory, 2);
      for (std::int64_t first = 0; first < 400'000 && table.reserve(rows, 0); first += rows) {
        table.insert(batch_of(ids).slice(first, rows), nullptr, found.data());
      }
      CHECK(table.reserve(0, 0));
      CHECK(table.held_bytes() <= memory);
      held.push_back(table.held_bytes());
    }
    CHECK_EQUAL(held[0], held[1]);
    CHECK_EQUAL(held[1], held[2]);
  }
}

// Strings of lengths around those of the words in which they are compared, some of which differ in one byte only.
struct Strings {
  std::string text;
  std::vector<std::int64_t> offsets = {0};

  void add(const std::string& string) {
    text += string;
    offsets.push_back(static_cast<std::int64_t>(text.size()));
  }
  IdBatch batch() const {
    IdBatch all;
    all.kind = IdKind::kString;
    all.size = static_cast<std::int64_t>(offsets.size()) - 1;
    all.strings = {offsets.data(), text.data(), static_cast<std::int64_t>(text.size())};
    return all;
  }
};

TEST(id_table, strings_of_any_length) {
  Strings strings;
  std::vector<std::int64_t> expected;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t size = 1; size <= 40; ++size) {
      for (std::size_t changed = 0; changed < size; ++changed) {
        std::string string(size, 'a');
        string[changed] = 'b';
        strings.add(string);
        expected.push_back(static_cast<std::int64_t>(expected.size()) % 820);
      }
    }
  }
  IdTable table(IdKind::kString, kMemory, 2);
  std::vector<std::int64_t> found(expected.size());
  const IdBatch batch = strings.batch();
  CHECK(table.reserve(batch.size, batch.text_bytes()));
  table.insert(batch, nullptr, found.data());
  CHECK(found == expected);
  table.find(batch, nullptr, found.data());
  CHECK(found == expected);
}

TEST(id_table, equal_strings_are_the_same) {
  for (std::size_t size = 0; size <= 40; ++size) {
    const std::string string(size, 'x');
    CHECK(is_same(std::string_view(string), std::string_view(std::string(size, 'x'))));
    CHECK(!is_same(std::string_view(string), std::string_view(string + "x")));
    for (std::size_t changed = 0; changed < size; ++changed) {
      std::string other = string;
      other[changed] = 'y';
      CHECK(!is_same(std::string_view(string), std::string_view(other)));
    }
  }
}

// Hashes that crowd into few buckets, around the end of the table, and are the same for several numbers.
TEST(id_buckets, every_number_is_found_after_the_table_has_grown) {
  IdBuckets buckets(std::size_t{64} << 20);
  std::vector<std::uint64_t> hashes;
  std::uint64_t state = 3;
  const auto find = [&](std::uint64_t hash, std::int64_t number) {
    return buckets.find(hash, [&](std::int64_t other) { return other == number; });
  };
  const std::int64_t sizes[] = {100, 150, 5'000, 40'000, 41'000, 100'000};
  for (const std::int64_t size : sizes) {
    buckets.grow(size);
    while (static_cast<std::int64_t>(hashes.size()) < size) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const auto number = static_cast<std::int64_t>(hashes.size());
      // The place follows from the low half first: a third of all are at the end, a third at the beginning.
      const std::uint64_t low = number % 3 == 0 ? 0xFFFFFFF0ULL : number % 3 == 1 ? 0 : state >> 32;
      hashes.push_back(number % 7 == 6 ? hashes.back() : (state & 0xFFFFFFFF00000000ULL) | low);
      const auto never = [](std::int64_t) { return false; };
      CHECK_EQUAL(buckets.find_or_insert(hashes.back(), number, never), number);
    }
    for (std::int64_t number = 0; number < size; number += 1 + size / 500) {
      CHECK_EQUAL(find(hashes[static_cast<std::size_t>(number)], number), number);
    }
    CHECK_EQUAL(find(hashes[0], size), -1);
  }
}

TEST(id_buckets, a_hash_of_zero) {
  IdBuckets buckets(std::size_t{2} << 20);
  buckets.grow(8);
  const auto any = [](std::int64_t) { return true; };
  CHECK_EQUAL(buckets.find(0, any), -1);
  CHECK_EQUAL(buckets.find_or_insert(0, 5, any), 5);
  CHECK_EQUAL(buckets.find_or_insert(0, 6, any), 5);
  CHECK_EQUAL(buckets.find(0, any), 5);
}

TEST(id_table, spilled_ids_get_the_same_numbers_and_index) {
  const std::vector<std::int64_t> ids = some_ids(300'000, 200'000);
  const std::vector<std::int64_t> expected = first_appearances(ids);
  IdTable whole(IdKind::kInteger, kMemory, 2);
  std::vector<std::int64_t> found(ids.size());
  CHECK(whole.reserve(300'000, 0));
  whole.insert(batch_of(ids), nullptr, found.data());

  const std::string folder = testing::temporary_path("");
  IdTable begun(IdKind::kInteger, kMemory, 2);
  CHECK(begun.reserve(100'000, 0));
  begun.insert(batch_of(ids).slice(0, 100'000), nullptr, found.data());
  SpilledIds spilled(begun, {folder + "/spilled.npy", {}, {}}, folder, std::size_t{24} << 20, 2);
  IdLog met(IdKind::kInteger, folder);
  met.append(batch_of(ids).slice(100'000, 200'000), nullptr);
  spilled.number(met);
  spilled.close();
  CHECK_EQUAL(spilled.size(), whole.size());

  IdLog asked(IdKind::kInteger, folder);
  asked.append(batch_of(ids), nullptr);
  LogReplay replay = spilled.find(asked);
  for (const std::int64_t number : expected) {
    CHECK_EQUAL(replay.next(), number);
  }
  const ArrayFile index = spilled.write_index(folder + "/spilled-index.npy");
  std::string content(static_cast<std::size_t>(index.shape[0]) * 4, ' ');
  FileReader(folder + "/spilled-index.npy").read(content.data(), content.size(), kArrayHeaderBytes);
  CHECK(content == index_of(whole));
}

}  // namespace
}  // namespace graphbox
