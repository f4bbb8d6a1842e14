#include "store/trace_cache.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "errors/error.h"
#include "tests/check.h"

namespace graphbox {
namespace {

using Batches = std::vector<std::vector<std::int64_t>>;

std::vector<std::span<const std::int64_t>> views(const Batches& batches, std::int64_t first, std::int64_t last) {
  return {batches.begin() + first, batches.begin() + last};
}

Batches random_batches(std::uint32_t seed, std::size_t count, std::int64_t rows) {
  std::uint32_t state = seed;
  const auto next = [&] { return (state = state * 1664525U + 1013904223U) >> 8; };
  Batches batches(count);
  for (auto& batch : batches) {
    batch.resize(next() % 40);
    for (std::int64_t& row : batch) {
      const std::uint64_t drawn = next() % static_cast<std::uint32_t>(rows);
      row = static_cast<std::int64_t>(drawn * drawn / static_cast<std::uint64_t>(rows));  // some more often than others
    }
  }
  return batches;
}

// The rule in its plain form: what is in memory, and of it what is needed latest goes, but not what the window before
// still uses. Ties are rows not wanted again in the pass, of which any may go.
class PlainCache {
 public:
  explicit PlainCache(std::size_t slots) : slots_(slots) {}

  std::size_t step(const std::vector<std::set<std::int64_t>>& windows, std::size_t number) {
    const std::set<std::int64_t>& wanted = windows[number];
    std::vector<std::int64_t> missing;
    std::set_difference(wanted.begin(), wanted.end(), held_.begin(), held_.end(), std::back_inserter(missing));
    std::multimap<std::size_t, std::int64_t, std::greater<>> latest_first;
    for (const std::int64_t row : held_) {
      if (!wanted.contains(row) && !before_.contains(row)) {
        std::size_t next = number + 1;
        while (next < windows.size() && !windows[next].contains(row)) {
          ++next;
        }
        latest_first.emplace(next, row);
      }
    }
    auto goes = latest_first.begin();
    while (held_.size() + missing.size() > slots_) {
      CHECK(goes != latest_first.end());
      held_.erase((goes++)->second);
    }
    held_.insert(missing.begin(), missing.end());
    before_ = wanted;
    return missing.size();
  }

 private:
  std::size_t slots_;
  std::set<std::int64_t> held_;
  std::set<std::int64_t> before_;
};

// Goes through passes as a reader does, one window ahead, and checks what is in the slots at each use.
class Reader {
 public:
  Reader(std::int64_t rows, std::int64_t slots) : cache_(rows, slots), in_slot_(static_cast<std::size_t>(slots), -1) {}

  void run(const Batches& batches) {
    const auto begins = cache_.begin_pass(views(batches, 0, static_cast<std::int64_t>(batches.size())));
    CHECK_EQUAL(begins.back(), static_cast<std::int64_t>(batches.size()));
    windows_.clear();
    for (std::size_t number = 0; number + 1 < begins.size(); ++number) {
      CHECK(begins[number] < begins[number + 1]);
      auto& wanted = windows_.emplace_back();
      for (std::int64_t batch = begins[number]; batch < begins[number + 1]; ++batch) {
        wanted.insert(batches[static_cast<std::size_t>(batch)].begin(), batches[static_cast<std::size_t>(batch)].end());
      }
      take(batches, begins[number], begins[number + 1]);
    }
  }

  void finish() {
    use();
    cache_.release();
  }

  const std::vector<std::set<std::int64_t>>& windows() const { return windows_; }
  const std::vector<std::size_t>& misses() const { return misses_; }
  TraceCache& cache() { return cache_; }

 private:
  void take(const Batches& batches, std::int64_t first, std::int64_t last) {
    const TraceCache::Plan plan = cache_.plan(views(batches, first, last));
    CHECK(plan.has_slots);
    misses_.push_back(static_cast<std::size_t>(plan.rows.size()));
    for (std::int64_t i = 0; i < plan.rows.size(); ++i) {
      in_slot_[static_cast<std::size_t>(plan.slots[i])] = plan.rows[i];
    }
    if (has_planned_) {
      finish();  // the window before was still in use while this one was read
    }
    has_planned_ = true;
    wanted_rows_.clear();
    for (std::int64_t batch = first; batch < last; ++batch) {
      const auto& rows = batches[static_cast<std::size_t>(batch)];
      wanted_rows_.insert(wanted_rows_.end(), rows.begin(), rows.end());
    }
    wanted_slots_.assign(plan.wanted.begin(), plan.wanted.end());
  }

  void use() {
    CHECK_EQUAL(wanted_rows_.size(), wanted_slots_.size());
    for (std::size_t i = 0; i < wanted_rows_.size(); ++i) {
      CHECK_EQUAL(in_slot_[static_cast<std::size_t>(wanted_slots_[i])], wanted_rows_[i]);
    }
  }

  TraceCache cache_;
  std::vector<std::int64_t> in_slot_;
  std::vector<std::set<std::int64_t>> windows_;
  std::vector<std::size_t> misses_;
  std::vector<std::int64_t> wanted_rows_;
  std::vector<std::int64_t> wanted_slots_;
  bool has_planned_ = false;
};

TEST(trace_cache, misses_are_those_of_the_plain_rule) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::int64_t rows = 60 + seed % 200;
    const std::int64_t slots = 80 + seed % 60;
    const Batches batches = random_batches(seed, 1 + seed % 30, rows);
    Reader reader(rows, slots);
    reader.run(batches);
    reader.finish();
    PlainCache plain(static_cast<std::size_t>(slots));
    std::uint64_t total = 0;
    for (std::size_t number = 0; number < reader.windows().size(); ++number) {
      const std::size_t expected = plain.step(reader.windows(), number);
      CHECK_EQUAL(reader.misses()[number], expected);
      total += expected;
    }
    CHECK_EQUAL(reader.cache().misses(), total);
  }
}

TEST(trace_cache, passes_follow_each_other_and_keep_what_the_next_wants) {
  Reader reader(300, 120);
  for (std::uint32_t pass = 0; pass < 40; ++pass) {
    reader.run(random_batches(1000 + pass, pass % 7, 300));
  }
  reader.finish();
  CHECK(reader.cache().hits() > 0);
  CHECK(reader.cache().bytes() > 0);
  Reader again(50, 120);  // slots for all
  again.run(random_batches(1, 30, 50));
  again.run(random_batches(1, 30, 50));
  CHECK_EQUAL(again.misses()[1], std::size_t{0});
}

TEST(trace_cache, a_batch_with_too_many_rows_gets_no_slots) {
  TraceCache cache(100, 10);
  const Batches batches{{1, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {}, {3, 3, 3}};
  const auto begins = cache.begin_pass(views(batches, 0, 4));
  CHECK((begins == std::vector<std::int64_t>{0, 1, 2, 4}));
  CHECK(cache.plan(views(batches, 0, 1)).has_slots);
  CHECK(!cache.plan(views(batches, 1, 2)).has_slots);
  CHECK_THROWS(cache.plan(views(batches, 2, 4)), ErrorKind::kUsage, "release the older one first");
  cache.release();
  const TraceCache::Plan last = cache.plan(views(batches, 2, 4));
  CHECK_EQUAL(last.rows.size(), 1);
  CHECK_EQUAL(last.wanted.size(), 3);
}

TEST(trace_cache, what_does_not_belong_to_the_pass_is_refused) {
  TraceCache cache(100, 10);
  CHECK_THROWS(TraceCache(100, -1), ErrorKind::kUsage, "slots");
  CHECK_THROWS(cache.release(), ErrorKind::kUsage, "no window is planned");
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{100}, INT64_MAX}) {
    const Batches batches{{0, wrong}};
    CHECK_THROWS(cache.begin_pass(views(batches, 0, 1)), ErrorKind::kUsage, "from 0 to 99");
  }
  const Batches batches{{1, 2}};
  const Batches other{{1, 3}};
  cache.begin_pass(views(batches, 0, 1));
  CHECK_THROWS(cache.begin_pass(views(batches, 0, 1)), ErrorKind::kUsage, "once all windows");
  CHECK_THROWS(cache.plan(views(other, 0, 1)), ErrorKind::kUsage, "as the pass began");
}

}  // namespace
}  // namespace graphbox
