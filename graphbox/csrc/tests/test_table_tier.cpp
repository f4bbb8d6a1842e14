#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "errors/error.h"
#include "table/cold_rows.h"
#include "table/row_index.h"
#include "table/table.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kDim = 64;
constexpr std::uint64_t kTightBytes = std::uint64_t{16} << 20;

TableConfig config(std::uint64_t memory_bytes) {
  TableConfig config;
  config.dim = kDim;
  config.optimizer.kind = Optimizer::kRowwiseAdagrad;
  config.init_scale = 0.5F;
  config.seed = 3;
  config.memory_bytes = memory_bytes;
  return config;
}

std::unique_ptr<Table> tiered(const char* name, std::uint64_t memory_bytes = kTightBytes) {
  auto table = std::make_unique<Table>(config(memory_bytes));
  table->attach_tier(testing::temporary_path(name), "{}");
  return table;
}

std::vector<std::int64_t> some_keys(std::size_t count, std::uint64_t range, std::uint64_t seed) {
  std::vector<std::int64_t> keys(count);
  const PhiloxKey key = derive_key(Stream::kWalk, seed, 0, 0);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = static_cast<std::int64_t>(DrawSequence(key, 0, 0, i).bounded_wide(0, range)) - 1000;
  }
  return keys;
}

void push(Table& table, const std::vector<std::int64_t>& keys, std::uint64_t step, int threads) {
  std::vector<float> gradients(keys.size() * kDim);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = static_cast<float>((i + step) % 101) * 0.01F - 0.5F;
  }
  const auto count = static_cast<std::int64_t>(keys.size());
  table.push(keys.data(), {gradients.data(), count, count}, threads);
}

std::vector<float> pull(Table& table, const std::vector<std::int64_t>& keys, bool create, int threads) {
  std::vector<float> rows(keys.size() * kDim);
  table.pull(keys.data(), static_cast<std::int64_t>(keys.size()), rows.data(), create, threads);
  return rows;
}

std::vector<std::int64_t> sorted_keys(const Table& table) {
  const auto keys = table.keys();
  std::vector<std::int64_t> sorted(keys.begin(), keys.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// Applies the same operations to both tables.
void live(Table& table, Table& plain, std::uint64_t step, int threads) {
  const auto keys = some_keys(3000, 60000, step);
  CHECK(pull(table, keys, step % 3 != 0, threads) == pull(plain, keys, step % 3 != 0, 1));
  push(table, keys, step, threads);
  push(plain, keys, step, 1);
  const auto erased = some_keys(100, 60000, 1000 + step);
  CHECK_EQUAL(table.erase(erased.data(), 100), plain.erase(erased.data(), 100));
  CHECK_EQUAL(table.rows(), plain.rows());
  CHECK(table.bytes() <= kTightBytes);
}

void check_equal_tables(Table& table, Table& plain) {
  const auto keys = sorted_keys(plain);
  CHECK(sorted_keys(table) == keys);
  CHECK(pull(table, keys, false, 1) == pull(plain, keys, false, 1));
}

TEST(table_tier, rows_are_those_of_a_table_in_memory) {
  for (const int threads : {1, 3}) {
    const auto table = tiered("same");
    Table plain(config(UINT64_MAX));
    for (std::uint64_t step = 0; step < 40; ++step) {
      live(*table, plain, step, threads);
    }
    check_equal_tables(*table, plain);
    table->await_compaction();
    const Table::TierFigures figures = table->tier_figures();
    CHECK(figures.evicted_rows > 20000 && figures.misses > 1000 && figures.compacted_rows > 0);
    CHECK_EQUAL(figures.hot_rows + figures.cold_rows, plain.rows());
  }
}

// A row that comes back from SSD has its place in the index already.
TEST(table_tier, rows_come_back_when_the_index_is_full) {
  RowIndex index;
  index.reserve(100000);
  std::int64_t most = 100000;
  while (index.has_room_for(static_cast<std::uint64_t>(most) + 1)) {
    ++most;
  }
  const auto table = tiered("full-index");
  Table plain(config(UINT64_MAX));
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t begin = 0; begin < most; begin += 2000) {
      std::vector<std::int64_t> keys(static_cast<std::size_t>(std::min<std::int64_t>(2000, most - begin)));
      std::iota(keys.begin(), keys.end(), begin);
      CHECK(pull(*table, keys, true, 1) == pull(plain, keys, true, 1));
      push(*table, keys, 7, 1);
      push(plain, keys, 7, 1);
    }
  }
  CHECK_EQUAL(table->rows(), static_cast<std::uint64_t>(most));
  CHECK(table->tier_figures().cold_rows > 10000);
}

TEST(table_tier, slots_stay_right_when_rows_leave) {
  const auto table = tiered("slots");
  Table plain(config(UINT64_MAX));
  for (std::uint64_t step = 0; step < 20; ++step) {
    const auto keys = some_keys(3000, 60000, step);
    std::vector<float> rows(keys.size() * kDim);
    const PulledRows pulled = table->pull_rows(keys.data(), 3000, rows.data(), true, 2);
    CHECK(rows == pull(plain, keys, true, 1));
    if (step % 2 == 0) {
      const auto others = some_keys(3000, 60000, 500 + step);
      pull(*table, others, true, 1);  // may evict some of the rows
      pull(plain, others, true, 1);
    }
    table->push_rows(pulled, {rows.data(), 3000, 3000}, 2);
    plain.push(keys.data(), {rows.data(), 3000, 3000}, 1);
  }
  check_equal_tables(*table, plain);
}

TEST(table_tier, flushed_rows_are_restored) {
  Table plain(config(UINT64_MAX));
  std::vector<ListedSegment> listed;
  {
    const auto table = tiered("restored");
    for (std::uint64_t step = 0; step < 12; ++step) {
      live(*table, plain, step, 1);
      if (step % 4 == 3) {
        auto now = table->flush();
        for (ListedSegment& segment : now) {
          const auto before = std::find_if(listed.begin(), listed.end(),
                                           [&](const auto& each) { return each.sequence == segment.sequence; });
          segment.live = segment.is_changed || before == listed.end() ? segment.live : before->live;
        }
        listed = std::move(now);
        table->flushed();
      }
    }
    push(*table, some_keys(3000, 60000, 77), 77, 1);  // never flushed
    pull(*table, some_keys(3000, 60000, 78), true, 1);
  }
  const auto table = tiered("restored", 2 * kTightBytes);
  for (const ListedSegment& segment : listed) {
    table->restore_segment(segment.sequence, &segment.live);
  }
  table->opened();
  check_equal_tables(*table, plain);
  for (std::uint64_t step = 100; step < 105; ++step) {
    const auto keys = some_keys(3000, 60000, step);
    push(*table, keys, step, 1);
    push(plain, keys, step, 1);
  }
  check_equal_tables(*table, plain);
}

// All that was ever flushed is in segments: those alone make the table again, erased keys too.
TEST(table_tier, segments_alone_make_the_table_again) {
  Table plain(config(UINT64_MAX));
  std::vector<ListedSegment> listed;
  {
    const auto table = tiered("rebuilt");
    for (std::uint64_t step = 0; step < 12; ++step) {
      live(*table, plain, step, 1);
      if (step % 4 == 3) {
        listed = table->flush();
        table->flushed();
      }
    }
  }
  const auto table = tiered("rebuilt");
  for (const ListedSegment& segment : listed) {
    table->restore_segment(segment.sequence, nullptr);
  }
  CHECK_EQUAL(table->opened(), std::uint64_t{0});
  check_equal_tables(*table, plain);
}

TEST(table_tier, prefetched_rows_are_in_memory) {
  const auto table = tiered("prefetched");
  Table plain(config(UINT64_MAX));
  for (std::uint64_t step = 0; step < 12; ++step) {
    live(*table, plain, step, 1);
  }
  const auto next = sorted_keys(plain);
  const std::vector<std::int64_t> pass(next.begin(), next.begin() + 2000);
  const std::atomic<bool> is_stopped{false};
  const Table::Prefetched prefetched = table->prefetch_rows(pass.data(), 2000, 2, is_stopped);
  CHECK_EQUAL(prefetched.in_memory, std::int64_t{2000});
  CHECK(prefetched.read > 0);
  const std::uint64_t misses = table->tier_figures().misses;
  CHECK(pull(*table, pass, true, 1) == pull(plain, pass, true, 1));
  CHECK_EQUAL(table->tier_figures().misses, misses);
  const Table::Prefetched all = table->prefetch_rows(next.data(), static_cast<std::int64_t>(next.size()), 2, is_stopped);
  CHECK(all.in_memory < static_cast<std::int64_t>(next.size()));  // there is no room for all
  CHECK(table->bytes() <= kTightBytes);
  check_equal_tables(*table, plain);
}

TEST(table_tier, erased_rows_are_purged) {
  const auto table = tiered("purged");
  std::vector<std::int64_t> keys = some_keys(20000, 1 << 30, 5);
  push(*table, std::vector(keys.begin(), keys.begin() + 10000), 1, 1);
  push(*table, std::vector(keys.begin() + 10000, keys.end()), 2, 1);
  table->flush();
  table->flushed();
  const std::vector<std::int64_t> erased(keys.begin() + 4000, keys.begin() + 4100);
  table->erase(erased.data(), 100);
  CHECK(table->purge() > 0);
  table->flush();
  table->flushed();
  for (const auto& entry : std::filesystem::directory_iterator(testing::temporary_path("purged"))) {
    const SegmentReader segment(entry.path(), "");
    for (const std::int64_t key : segment.keys()) {
      CHECK(std::find(erased.begin(), erased.end(), key) == erased.end());
    }
  }
  CHECK_EQUAL(table->purge(), std::int64_t{0});
}

TEST(table_tier, batches_larger_than_memory_are_refused) {
  const auto table = tiered("large");
  const auto keys = some_keys(60000, 1 << 30, 1);
  CHECK_THROWS(pull(*table, keys, true, 1), ErrorKind::kDoesNotFit, "different keys");
  CHECK_EQUAL(table->rows(), std::uint64_t{0});
  const std::vector<std::int64_t> same(60000, 7);
  pull(*table, same, true, 1);
  CHECK_EQUAL(table->rows(), std::uint64_t{1});
  CHECK_THROWS(tiered("tiny", std::uint64_t{4} << 20), ErrorKind::kDoesNotFit, "or more");
}

// For ThreadSanitizer: everything at once.
void use_by_many_threads(const TableConfig& settings, const std::string& name) {
  const auto table = std::make_unique<Table>(settings);
  table->attach_tier(testing::temporary_path(name), "{}");
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  const auto run = [&](auto body) {
    threads.emplace_back([&failures, body] {
      try {
        for (std::uint64_t step = 0; step < 16; ++step) {
          body(step);
        }
      } catch (const std::exception& error) {
        ++failures;
        std::printf("      %s\n", error.what());
      }
    });
  };
  for (std::uint64_t worker = 0; worker < 2; ++worker) {
    run([&, worker](std::uint64_t step) {
      const auto keys = some_keys(3000, 40000, worker * 100 + step);
      std::vector<float> rows(keys.size() * kDim);
      table->promote_rows(keys.data(), 3000, 2);
      const PulledRows pulled = table->pull_rows(keys.data(), 3000, rows.data(), true, 2);
      table->push_rows(pulled, {rows.data(), 3000, 3000}, 2);
      pull(*table, some_keys(3000, 40000, worker * 100 + 50 + step), false, 2);
    });
  }
  run([&](std::uint64_t step) {
    const auto keys = some_keys(100, 40000, 300 + step);
    table->erase(keys.data(), 100);
    table->keys();
    table->flush();
    table->flushed();
  });
  run([&](std::uint64_t step) {
    const std::string folder = testing::temporary_path(name + std::to_string(step));
    std::filesystem::create_directory(folder);
    table->write_checkpoint({folder, RowContents::kRecords, 0, step > 0, 2});
    table->confirm_changes(0);
    std::filesystem::remove_all(folder);
    table->purge();
    table->flush();
    table->flushed();
  });
  run([&](std::uint64_t step) {
    table->set_time(static_cast<std::uint32_t>(step));
    table->end_pass();
    table->shrink(2);
    table->policy_events();
    table->take_state(step % 2 == 0);
    if (settings.policies.has_score) {
      const auto keys = some_keys(500, 40000, 500 + step);
      std::vector<float> shows(500);
      std::vector<float> clicks(500);
      std::vector<float> scores(500);
      std::vector<std::uint32_t> passes(500);
      std::vector<std::uint32_t> seconds(500);
      bool has_row[500];
      table->counters(keys.data(), 500,
                      {has_row, shows.data(), clicks.data(), scores.data(), passes.data(), seconds.data()}, 2);
    }
    table->set_memory_bytes(kTightBytes - (step % 2 << 20));
  });
  run([&](std::uint64_t step) {
    const auto keys = some_keys(2000, 40000, 400 + step);
    const std::atomic<bool> is_stopped{false};
    table->prefetch_rows(keys.data(), 2000, 2, is_stopped);
    CHECK(table->bytes() <= kTightBytes);
    CHECK(table->tier_figures().hot_rows <= table->rows() + 40000);
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK_EQUAL(failures.load(), 0);
  table->await_compaction();
  // Whether it came to compaction meanwhile depends on who was faster.
  for (std::uint64_t step = 0; step < 64 && table->tier_figures().compacted_rows == 0; ++step) {
    const auto keys = some_keys(3000, 40000, 600 + step);
    std::vector<float> rows(keys.size() * kDim);
    const PulledRows pulled = table->pull_rows(keys.data(), 3000, rows.data(), true, 2);
    table->push_rows(pulled, {rows.data(), 3000, 3000}, 2);
    table->flush();
    table->flushed();
    table->await_compaction();
  }
  CHECK(table->tier_figures().compacted_rows > 0);
  const auto keys = sorted_keys(*table);
  CHECK(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
  CHECK_EQUAL(keys.size(), table->rows());
}

TEST(table_tier, many_threads_use_one_table) { use_by_many_threads(config(kTightBytes), "threads"); }

TEST(table_tier, many_threads_use_one_table_with_policies) {
  TableConfig settings = config(kTightBytes);
  settings.policies.admission = Admission::kSketch;
  settings.policies.admission_count = 1;
  settings.policies.sketch_bytes = 4096;
  settings.policies.halve_after = 10000;
  settings.policies.has_score = true;
  settings.policies.drop_below = 0.2F;
  settings.policies.expiry_passes = 2;
  use_by_many_threads(settings, "policies");
}

}  // namespace
}  // namespace graphbox
