#include "store/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "errors/error.h"
#include "store/arrays.h"
#include "store/order.h"
#include "store/unit_index.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kOffset = 128;

// Numbers that look random and are the same in each run.
struct Draw {
  std::uint64_t state = 1;
  std::uint64_t operator()(std::uint64_t limit) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % limit;
  }
};

std::vector<std::uint8_t> write_file(const std::string& path, std::uint64_t bytes) {
  Draw draw;
  std::vector<std::uint8_t> content(kOffset + bytes);
  for (std::uint8_t& each : content) {
    each = static_cast<std::uint8_t>(draw(256));
  }
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
  return content;
}

std::vector<std::int64_t> draw_index(Draw& draw, std::int64_t count, std::int64_t limit) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(count));
  for (std::int64_t& each : index) {
    each = static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(limit)));
  }
  return index;
}

void check_rows(Store& store, const std::vector<std::uint8_t>& content, std::uint64_t row_bytes,
                const std::vector<std::int64_t>& index, std::int64_t rows, Access access, int threads) {
  std::vector<std::uint8_t> out(index.size() * row_bytes, 0xEE);
  const StoredArray array{0, kOffset, row_bytes, rows};
  Requests requests{index, rows, access, threads};
  read_rows(store, array, requests, reinterpret_cast<std::byte*>(out.data()));
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::uint64_t row_begin = kOffset + static_cast<std::uint64_t>(index[i]) * row_bytes;
    const auto begin = content.begin() + static_cast<std::ptrdiff_t>(row_begin);
    CHECK(std::equal(begin, begin + static_cast<std::ptrdiff_t>(row_bytes),
                     out.begin() + static_cast<std::ptrdiff_t>(i * row_bytes)));
  }
}

TEST(store, rows_are_those_of_the_file_whatever_the_budget) {
  const std::string path = testing::temporary_path("store-rows");
  Draw draw;
  for (const std::uint64_t row_bytes : {1, 12, 128, 520, 8192, 70000}) {
    const std::int64_t rows = std::max<std::int64_t>(3, 400000 / static_cast<std::int64_t>(row_bytes));
    const std::uint64_t bytes = static_cast<std::uint64_t>(rows) * row_bytes;
    const std::vector<std::uint8_t> content = write_file(path, bytes);
    const RowUnits units{kOffset, row_bytes, static_cast<std::uint64_t>(rows)};
    for (const std::uint64_t budget : {std::uint64_t{0}, std::uint64_t{9000}, bytes / 5, bytes / 2, 2 * bytes + 8192}) {
      for (const ReadBackend backend : {ReadBackend::kAuto, ReadBackend::kThreads}) {
        Store store({{path, content.size()}}, &units, {budget, backend, 16, backend == ReadBackend::kAuto});
        for (int round = 0; round < 3; ++round) {
          for (const Access access : {Access::kBatch, Access::kPass}) {
            check_rows(store, content, row_bytes, draw_index(draw, 300, rows), rows, access, 1 + round);
            CHECK(store.stats().resident_bytes <= budget);
          }
        }
        check_rows(store, content, row_bytes, {}, rows, Access::kBatch, 1);
      }
    }
  }
}

TEST(store, many_requests_are_read_in_parts) {
  const std::string path = testing::temporary_path("store-parts");
  constexpr std::int64_t kRows = 50000;
  const std::vector<std::uint8_t> content = write_file(path, kRows * 16);
  const RowUnits units{kOffset, 16, kRows};
  Draw draw;
  Store store({{path, content.size()}}, &units, {100000, ReadBackend::kAuto, 32, true});
  check_rows(store, content, 16, draw_index(draw, 400000, kRows), kRows, Access::kBatch, 2);
  CHECK_EQUAL(store.stats().requests, std::uint64_t{400000});
}

TEST(store, what_fits_is_read_once) {
  const std::string path = testing::temporary_path("store-resident");
  constexpr std::int64_t kRows = 1000;
  const std::vector<std::uint8_t> content = write_file(path, kRows * 512);
  const RowUnits units{kOffset, 512, kRows};
  Store store({{path, content.size()}}, &units, {std::uint64_t{8} << 20, ReadBackend::kAuto, 32, true});
  std::vector<std::int64_t> all(kRows);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::int64_t>(i);
  }
  CHECK(store.image() == nullptr);
  check_rows(store, content, 512, all, kRows, Access::kBatch, 1);
  const StoreStats once = store.stats();
  CHECK(once.read_bytes == content.size());
  CHECK(store.image() != nullptr);
  check_rows(store, content, 512, all, kRows, Access::kBatch, 2);
  CHECK_EQUAL(store.stats().read_bytes, once.read_bytes);
  CHECK_EQUAL(store.stats().hits - once.hits, std::uint64_t{kRows});
}

TEST(store, what_is_used_often_stays) {
  const std::string path = testing::temporary_path("store-sieve");
  constexpr std::int64_t kRows = 4000;
  const std::vector<std::uint8_t> content = write_file(path, kRows * 512);
  const RowUnits units{kOffset, 512, kRows};
  Store store({{path, content.size()}}, &units, {kRows * 512 / 10, ReadBackend::kAuto, 32, true});
  Draw draw;
  std::uint64_t hits = 0;
  for (int round = 0; round < 60; ++round) {  // half of the requests go to 100 rows, the others anywhere
    std::vector<std::int64_t> index = draw_index(draw, 100, 100);
    const std::vector<std::int64_t> others = draw_index(draw, 100, kRows);
    index.insert(index.end(), others.begin(), others.end());
    const std::uint64_t before = store.stats().hits;
    check_rows(store, content, 512, index, kRows, Access::kBatch, 1);
    hits += round < 20 ? 0 : store.stats().hits - before;
  }
  CHECK(hits > 40 * 95);  // of the 100 each round
}

TEST(store, a_pass_leaves_what_is_used_often) {
  const std::string path = testing::temporary_path("store-pass");
  constexpr std::int64_t kRows = 4000;
  const std::vector<std::uint8_t> content = write_file(path, kRows * 512);
  const RowUnits units{kOffset, 512, kRows};
  Store store({{path, content.size()}}, &units, {kRows * 512 / 10, ReadBackend::kAuto, 32, true});
  Draw draw;
  const std::vector<std::int64_t> hot = draw_index(draw, 200, 100);
  check_rows(store, content, 512, hot, kRows, Access::kBatch, 1);
  check_rows(store, content, 512, hot, kRows, Access::kBatch, 1);
  std::vector<std::int64_t> all(kRows);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::int64_t>(i);
  }
  check_rows(store, content, 512, all, kRows, Access::kPass, 1);
  const std::uint64_t before = store.stats().hits;
  check_rows(store, content, 512, hot, kRows, Access::kBatch, 1);
  CHECK_EQUAL(store.stats().hits - before, std::uint64_t{200});
}

TEST(store, several_threads_read_at_once) {
  const std::string path = testing::temporary_path("store-threads");
  constexpr std::int64_t kRows = 3000;
  const std::vector<std::uint8_t> content = write_file(path, kRows * 256);
  const RowUnits units{kOffset, 256, kRows};
  for (const std::uint64_t budget : {std::uint64_t{kRows} * 256 / 8, std::uint64_t{4} << 20}) {
    for (const ReadBackend backend : {ReadBackend::kAuto, ReadBackend::kThreads}) {
      Store store({{path, content.size()}}, &units, {budget, backend, 8, true});
      std::vector<std::thread> threads;
      std::atomic<int> failures = 0;
      for (std::uint64_t number = 0; number < 4; ++number) {
        threads.emplace_back([&, number] {
          Draw draw{number};
          try {
            for (int round = 0; round < 20; ++round) {
              check_rows(store, content, 256, draw_index(draw, 400, kRows), kRows,
                         round % 2 == 0 ? Access::kBatch : Access::kPass, 2);
            }
          } catch (...) {
            ++failures;
          }
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      CHECK_EQUAL(failures.load(), 0);
      CHECK(store.stats().resident_bytes <= budget);
    }
  }
}

TEST(store, lists_of_several_files_share_a_budget) {
  const std::string offsets_path = testing::temporary_path("store-offsets");
  const std::string items_path = testing::temporary_path("store-items");
  Draw draw;
  std::vector<std::int64_t> offsets(kOffset / 8 + 1, 0);
  constexpr std::int64_t kLists = 5000;
  for (std::int64_t i = 0; i < kLists; ++i) {
    offsets.push_back(offsets.back() + static_cast<std::int64_t>(i % 97 == 0 ? 3000 : draw(20)));
  }
  const std::int64_t num_items = offsets.back();
  std::ofstream(offsets_path, std::ios::binary)
      .write(reinterpret_cast<const char*>(offsets.data()), static_cast<std::streamsize>(offsets.size() * 8));
  const std::vector<std::uint8_t> content = write_file(items_path, static_cast<std::uint64_t>(num_items) * 4);
  for (const std::uint64_t budget : {0, 60000, 4 << 20}) {
    Store store({{offsets_path, offsets.size() * 8}, {items_path, content.size()}}, nullptr,
                {budget, ReadBackend::kAuto, 16, true});
    for (int round = 0; round < 4; ++round) {
      const std::vector<std::int64_t> index = draw_index(draw, 700, kLists);
      const Requests requests{index, kLists, round % 2 == 0 ? Access::kBatch : Access::kPass, 2};
      std::vector<std::int64_t> bounds(2 * index.size());
      read_bounds(store, {0, kOffset, 8, kLists + 1}, num_items, requests, bounds.data());
      std::vector<std::int64_t> starts{0};
      for (std::size_t i = 0; i < index.size(); ++i) {
        const auto entry = kOffset / 8 + static_cast<std::size_t>(index[i]);
        CHECK_EQUAL(bounds[2 * i], offsets[entry]);
        CHECK_EQUAL(bounds[2 * i + 1], offsets[entry + 1]);
        starts.push_back(starts.back() + bounds[2 * i + 1] - bounds[2 * i]);
      }
      std::vector<std::uint8_t> out(static_cast<std::size_t>(starts.back()) * 4);
      read_items(store, {1, kOffset, 4, num_items}, requests, bounds.data(), starts.data(),
                 reinterpret_cast<std::byte*>(out.data()));
      for (std::size_t i = 0; i < index.size(); ++i) {
        const auto begin = content.begin() + static_cast<std::ptrdiff_t>(kOffset) + 4 * bounds[2 * i];
        CHECK(std::equal(begin, begin + 4 * (starts[i + 1] - starts[i]), out.begin() + 4 * starts[i]));
      }
    }
    CHECK(store.stats().resident_bytes <= budget);
    CHECK_THROWS(read_bounds(store, {0, kOffset, 8, kLists + 1}, 10, {std::vector<std::int64_t>{kLists - 1}, kLists},
                             std::vector<std::int64_t>(2).data()),
                 ErrorKind::kFormat, "expected offsets that ascend");
  }
}

TEST(store, a_file_that_shrinks_is_named) {
  const std::string path = testing::temporary_path("store-truncated");
  constexpr std::int64_t kRows = 2000;
  const std::vector<std::uint8_t> content = write_file(path, kRows * 512);
  const RowUnits units{kOffset, 512, kRows};
  for (const ReadBackend backend : {ReadBackend::kAuto, ReadBackend::kThreads}) {
    write_file(path, kRows * 512);
    Store store({{path, content.size()}}, &units, {0, backend, 8, true});
    CHECK(::truncate(path.c_str(), 300000) == 0);
    Draw draw;
    std::vector<std::uint8_t> out(1000 * 512);
    const std::vector<std::int64_t> index = draw_index(draw, 1000, kRows);
    for (int again = 0; again < 2; ++again) {
      CHECK_THROWS(read_rows(store, {0, kOffset, 512, kRows}, {index, kRows}, reinterpret_cast<std::byte*>(out.data())),
                   ErrorKind::kFormat, "the file now has 300000 bytes");
    }
    CHECK_THROWS(Store({{path, content.size()}}, &units, {0, backend, 8, true}), ErrorKind::kFormat,
                 "received one of 300000");
  }
  CHECK_THROWS(Store({{path + "-absent", 5}}, nullptr, {}), ErrorKind::kNotFound, "No such file");
}

TEST(store, an_index_out_of_range_is_named) {
  const std::vector<std::int64_t> index{0, 3, 7, -1};
  CHECK_THROWS(check_index(index, 5, "rows"), ErrorKind::kUsage, "received 7 at position 2");
  CHECK_THROWS(check_index(index, 0, "rows"), ErrorKind::kUsage, "received 0 at position 0");
}

TEST(store, unit_index_finds_what_was_inserted) {
  for (const std::uint32_t units : {100U, 100000U}) {  // as an array, and as a table
    constexpr std::uint32_t kSlots = 64;
    UnitIndex index(units, kSlots);
    std::map<std::uint32_t, std::uint32_t> reference;
    Draw draw;
    for (int step = 0; step < 20000; ++step) {
      const auto unit = static_cast<std::uint32_t>(draw(units == 100 ? 100 : 150) * (units / 150 + 1));
      const auto found = reference.find(unit);
      CHECK_EQUAL(index.find(unit), found == reference.end() ? UnitIndex::kNone : found->second);
      if (found != reference.end()) {
        index.erase(unit);
        reference.erase(found);
      } else if (reference.size() < kSlots) {
        index.insert(unit, static_cast<std::uint32_t>(step));
        reference[unit] = static_cast<std::uint32_t>(step);
      }
    }
    CHECK(index.bytes() <= (UnitIndex::bytes_for(units, kSlots) + 63) / 64 * 64);
  }
}

TEST(store, the_order_of_a_large_pass_does_not_depend_on_threads) {
  Draw draw;
  const std::vector<std::int64_t> index = draw_index(draw, 1'200'000, 1 << 20);
  const PassOrder one = order_pass(index, 1 << 20, 100'000);
  const PassOrder four = order_pass(index, 1 << 20, 100'000, 4);
  CHECK(one.bounds == four.bounds);
  CHECK(std::equal(one.positions.begin(), one.positions.end(), four.positions.begin()));
  std::vector<bool> seen(index.size());
  for (std::int64_t i = 0; i < one.positions.size(); ++i) {
    seen[one.positions[i]] = true;
    const std::int64_t range = index[one.positions[i]] >> 9;  // 21 bits, of which the first 12 choose the range
    if (i > 0) {
      const std::int64_t before = index[one.positions[i - 1]] >> 9;
      CHECK(before < range || (before == range && one.positions[i - 1] < one.positions[i]));
    }
  }
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}

TEST(store, pass_order_is_a_permutation_in_ascending_ranges) {
  Draw draw;
  for (const std::int64_t limit : {1, 7, 4096, 1000000}) {
    for (const std::int64_t part : {1, 10, 1000}) {
      const std::vector<std::int64_t> index = draw_index(draw, 3000, limit);
      const PassOrder order = order_pass(index, limit, part);
      std::vector<std::uint32_t> sorted(order.positions.begin(), order.positions.end());
      std::int64_t most_before = -1;
      for (std::int64_t each = 0; each < order.parts(); ++each) {
        const std::int64_t begin = order.bounds[static_cast<std::size_t>(each)];
        const std::int64_t end = order.bounds[static_cast<std::size_t>(each) + 1];
        CHECK(begin < end && end - begin <= part);
        std::int64_t most = -1;
        std::int64_t least = limit;
        for (std::int64_t i = begin; i < end; ++i) {
          most = std::max(most, index[order.positions[i]]);
          least = std::min(least, index[order.positions[i]]);
        }
        CHECK(least > most_before - (limit / 2048 + 1));  // ranges do not overlap by more than one of them
        most_before = most;
      }
      std::sort(sorted.begin(), sorted.end());
      for (std::uint32_t i = 0; i < sorted.size(); ++i) {
        CHECK_EQUAL(sorted[i], i);
      }
    }
  }
  CHECK_EQUAL(order_pass({}, 5, 10).parts(), std::int64_t{0});
}

}  // namespace
}  // namespace graphbox
