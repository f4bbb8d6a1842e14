#include "table/table.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "errors/error.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr Optimizer kAllOptimizers[] = {Optimizer::kSgd,  Optimizer::kAdagrad,     Optimizer::kRowwiseAdagrad,
                                        Optimizer::kAdam, Optimizer::kRowwiseAdam, Optimizer::kFtrl};

TableConfig config(Optimizer optimizer, std::uint64_t dim = 8) {
  TableConfig config;
  config.dim = dim;
  config.optimizer.kind = optimizer;
  config.init_scale = 0.5F;
  config.seed = 3;
  return config;
}

std::vector<std::int64_t> some_keys(std::size_t count, std::uint64_t range, std::uint64_t seed) {
  std::vector<std::int64_t> keys(count);
  const PhiloxKey key = derive_key(Stream::kWalk, seed, 0, 0);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = static_cast<std::int64_t>(DrawSequence(key, 0, 0, i).bounded_wide(0, range)) - 1000;
  }
  return keys;
}

std::vector<float> rows_of(Table& table, const std::vector<std::int64_t>& keys) {
  std::vector<float> rows(keys.size() * table.config().dim);
  table.pull(keys.data(), static_cast<std::int64_t>(keys.size()), rows.data(), false, 1);
  return rows;
}

// Three pushes of gradients that depend on the position.
void train(Table& table, int threads, std::uint64_t first_seed = 0) {
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto keys = some_keys(20000, 3000, first_seed + step);
    std::vector<float> gradients(keys.size() * table.config().dim);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(i % 101) * 0.01F - 0.5F;
    }
    const auto count = static_cast<std::int64_t>(keys.size());
    table.push(keys.data(), {gradients.data(), count, count}, threads);
  }
}

TEST(table, any_number_of_threads_gives_the_same_bits) {
  const auto keys = some_keys(5000, 5000, 9);
  for (const Optimizer optimizer : kAllOptimizers) {
    Table one(config(optimizer));
    train(one, 1);
    for (const int threads : {2, 5}) {
      Table other(config(optimizer));
      train(other, threads);
      CHECK(rows_of(one, keys) == rows_of(other, keys));
      const auto left = one.keys();
      const auto right = other.keys();
      CHECK(std::equal(left.begin(), left.end(), right.begin(), right.end()));
    }
  }
}

TEST(table, stays_within_its_budget_and_as_it_was) {
  TableConfig tight = config(Optimizer::kRowwiseAdagrad, 64);
  tight.memory_bytes = 8 << 20;
  Table table(tight);
  std::vector<std::int64_t> keys(5000);
  std::vector<float> rows(keys.size() * 64);
  std::int64_t next = 0;
  bool refused = false;
  while (!refused) {
    const std::uint64_t before = table.rows();
    for (std::int64_t& key : keys) {
      key = next++;
    }
    try {
      table.pull(keys.data(), 5000, rows.data(), true, 1);
    } catch (const Error& error) {
      refused = true;
      CHECK(error.kind() == ErrorKind::kDoesNotFit);
      CHECK_EQUAL(table.rows(), before);
      bool found = true;
      table.contains(keys.data(), 1, &found, 1);
      CHECK(!found);
    }
    CHECK(table.bytes() <= tight.memory_bytes);
  }
  CHECK(table.rows() >= 15000);
  keys = {0, 1, 2};
  table.pull(keys.data(), 3, rows.data(), true, 1);  // still there
}

TEST(table, erased_keys_start_anew) {
  Table table(config(Optimizer::kRowwiseAdagrad));
  const auto keys = some_keys(2000, 3000, 1);
  const std::vector<float> initial = rows_of(table, keys);
  train(table, 1);
  CHECK(rows_of(table, keys) != initial);
  const std::uint64_t before = table.rows();
  const std::int64_t erased = table.erase(keys.data(), static_cast<std::int64_t>(keys.size()));
  CHECK(erased > 0 && erased <= 2000);
  CHECK_EQUAL(table.rows(), before - static_cast<std::uint64_t>(erased));
  CHECK(rows_of(table, keys) == initial);
  CHECK_EQUAL(table.erase(keys.data(), static_cast<std::int64_t>(keys.size())), std::int64_t{0});
  const auto left = table.keys();
  std::vector<std::int64_t> rest(left.begin(), left.end());
  bool found[3000];
  table.contains(rest.data(), static_cast<std::int64_t>(rest.size()), found, 1);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    CHECK(found[i]);
  }
}

// Batches that are grouped by several threads.
TEST(table, large_batches_give_the_same_bits) {
  const auto keys = some_keys(200000, 30000, 9);
  std::vector<float> gradients(keys.size() * 4);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = static_cast<float>(i % 101) * 0.01F - 0.5F;
  }
  Table one(config(Optimizer::kRowwiseAdagrad, 4));
  Table other(config(Optimizer::kRowwiseAdagrad, 4));
  for (int step = 0; step < 2; ++step) {
    one.push(keys.data(), {gradients.data(), 200000, 200000}, 1);
    other.push(keys.data(), {gradients.data(), 200000, 200000}, 3);
  }
  CHECK(rows_of(one, keys) == rows_of(other, keys));
}

// A scan meets each key that stays once, whatever happens between its chunks.
TEST(table, a_scan_meets_each_key_once) {
  Table table(config(Optimizer::kSgd));
  std::vector<float> rows(1000 * 8);
  std::vector<std::int64_t> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  table.pull(keys.data(), 1000, rows.data(), true, 1);
  table.erase(keys.data() + 100, 50);
  std::vector<std::int64_t> met;
  Table::Scanned scanned = {0, 0};
  do {
    std::int64_t found[64];
    scanned = table.scan(scanned.next, 64, found, rows.data());
    met.insert(met.end(), found, found + scanned.count);
    CHECK(scanned.count == 0 || std::equal(rows.begin(), rows.begin() + scanned.count * 8,
                                           rows_of(table, {found, found + scanned.count}).begin()));
  } while (scanned.count > 0);
  CHECK_EQUAL(met.size(), 950U);
  CHECK(std::is_sorted(met.begin(), met.end()));
}

// For ThreadSanitizer: everything at once.
void use_by_many_threads(const TableConfig& settings, std::uint64_t range = 4000) {
  Table table(settings);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  const auto run = [&](auto body) {
    threads.emplace_back([&failures, body] {
      try {
        for (std::uint64_t step = 0; step < 6; ++step) {
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
      const auto keys = some_keys(12000, range, worker * 10 + step);
      std::vector<float> rows(keys.size() * 8);
      table.pull(keys.data(), 12000, rows.data(), step % 2 == 0, 2);
      table.push(keys.data(), {rows.data(), 12000, 12000}, 2);
    });
  }
  run([&](std::uint64_t step) {
    const auto keys = some_keys(9000, range, 50 + step);
    std::vector<float> rows(keys.size() * 8);
    const PulledRows pulled = table.pull_rows(keys.data(), 9000, rows.data(), true, 2);
    table.push_rows(pulled, {rows.data(), 9000, 9000}, 2);
    const std::int64_t offsets[] = {0, 0, 4000, 9000};
    const PulledRows sums = table.pull_bags(keys.data(), 9000, {offsets, 3}, rows.data(), step % 2 == 0, 2);
    table.push_bags(sums, {offsets, 3}, rows.data(), 2);
  });
  run([&](std::uint64_t step) {
    const auto keys = some_keys(100, range, 100 + step);
    std::vector<float> scanned(100 * 8);
    std::vector<std::int64_t> scanned_keys(100);
    CHECK(table.scan(step * 50, 100, scanned_keys.data(), scanned.data()).count <= 100);
    table.erase(keys.data(), 100);
    bool found[100];
    table.contains(keys.data(), 100, found, 1);
    table.set_lr(0.01F * static_cast<float>(step));
  });
  run([&](std::uint64_t step) {
    table.set_time(static_cast<std::uint32_t>(step));
    table.end_pass();
    const ShrinkCounts counts = table.shrink(2);
    CHECK(counts.unseen_passes + counts.unseen_seconds + counts.low_score <= counts.examined);
    CHECK(table.pass() <= 6);
    table.policy_events();
    if (settings.policies.has_score) {
      const auto keys = some_keys(500, range, 200 + step);
      std::vector<float> shows(500);
      std::vector<float> clicks(500);
      std::vector<float> scores(500);
      std::vector<std::uint32_t> passes(500);
      std::vector<std::uint32_t> seconds(500);
      bool has_row[500];
      table.counters(keys.data(), 500, {has_row, shows.data(), clicks.data(), scores.data(), passes.data(), seconds.data()},
                     2);
      std::fill(shows.begin(), shows.end(), 3.0F);
      std::vector<float> gradients(500 * 8);
      table.push(keys.data(), {gradients.data(), 500, 500, nullptr, nullptr, shows.data(), clicks.data()}, 2);
    }
  });
  run([&](std::uint64_t) {
    const std::string folder = testing::temporary_path("concurrent");
    std::filesystem::create_directory(folder);
    table.write_checkpoint({folder, RowContents::kRecords, 0, false, 2});
    table.confirm_changes(0);
    table.write_checkpoint({folder, RowContents::kInt8, 1, false, 2});
    table.restore_changes(1);
    table.keys();
    CHECK(table.bytes() > 0);
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK_EQUAL(failures.load(), 0);
  CHECK(table.bytes() <= settings.memory_bytes);
  CHECK((table.policy_events().evicted_rows > 0) == (settings.policies.eviction != Eviction::kNone));
}

// Rows that were pulled from one table and pushed to another are looked up there.
TEST(table, many_threads_use_one_table) {
  use_by_many_threads(config(Optimizer::kAdagrad));
  TableConfig halves = config(Optimizer::kAdam);
  halves.value_type = ValueType::kFloat16;
  halves.skip_nonfinite = true;
  use_by_many_threads(halves);
}

TEST(table, many_threads_use_one_table_with_policies) {
  TableConfig counted = config(Optimizer::kRowwiseAdagrad);
  counted.policies.admission = Admission::kCount;
  counted.policies.admission_count = 2;
  counted.policies.halve_after = 20000;
  counted.policies.has_score = true;
  counted.policies.drop_below = 0.2F;
  counted.policies.expiry_passes = 1;
  use_by_many_threads(counted);
  for (const Eviction eviction : {Eviction::kClock, Eviction::kScore}) {
    TableConfig evicting = config(Optimizer::kAdam);
    evicting.policies.admission = eviction == Eviction::kClock ? Admission::kSketch : Admission::kProbability;
    evicting.policies.admission_probability = 0.5;
    evicting.policies.sketch_bytes = 4096;
    evicting.policies.has_score = eviction == Eviction::kScore;
    evicting.policies.eviction = eviction;
    evicting.memory_bytes = std::uint64_t{4} << 20;
    use_by_many_threads(evicting, 40000);
  }
}

TEST(table, pulled_rows_of_another_table) {
  Table one(config(Optimizer::kSgd));
  Table other(config(Optimizer::kSgd));
  const auto keys = some_keys(5000, 4000, 1);
  std::vector<float> rows(keys.size() * 8);
  const PulledRows pulled = one.pull_rows(keys.data(), 5000, rows.data(), true, 1);
  other.push_rows(pulled, {rows.data(), 5000, 5000}, 1);
  one.push_rows(pulled, {rows.data(), 5000, 5000}, 1);
  CHECK(rows_of(one, keys) == rows_of(other, keys));
}

TEST(table, wrong_settings_are_refused) {
  CHECK_THROWS(Table{config(Optimizer::kSgd, 0)}, ErrorKind::kUsage, "dim");
  CHECK_THROWS(Table{config(Optimizer::kSgd, 65537)}, ErrorKind::kUsage, "dim");
  TableConfig wrong = config(Optimizer::kSgd);
  wrong.optimizer.lr = -1;
  CHECK_THROWS(Table{wrong}, ErrorKind::kUsage, "lr");
  wrong = config(Optimizer::kSgd);
  wrong.memory_bytes = 100;
  CHECK_THROWS(Table{wrong}, ErrorKind::kDoesNotFit, "memory_bytes");
}

}  // namespace
}  // namespace graphbox
