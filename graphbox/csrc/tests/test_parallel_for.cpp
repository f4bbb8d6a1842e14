#include "parallel/parallel_for.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

TEST(parallel_for, runs_each_chunk_once) {
  for (const int threads : {1, 2, 4, 7}) {
    for (const std::int64_t chunks : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(chunks));
      parallel_for(threads, chunks, [&](std::int64_t chunk) { ++runs[static_cast<std::size_t>(chunk)]; });
      for (const auto& count : runs) {
        CHECK_EQUAL(count.load(), 1);
      }
    }
  }
}

TEST(parallel_for, throws_what_the_lowest_chunk_threw) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::string message;
    try {
      parallel_for(4, 100, [](std::int64_t chunk) {
        if (chunk >= 20) {
          throw std::runtime_error(std::to_string(chunk));
        }
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    CHECK_EQUAL(message.size(), std::size_t{2});
    CHECK(message == "20");
  }
}

TEST(parallel_for, loops_of_several_threads_and_loops_in_loops) {
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        parallel_for(3, 10, [&](std::int64_t) { parallel_for(2, 5, [&](std::int64_t inner) { sum += inner; }); });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK_EQUAL(sum.load(), std::int64_t{4 * 20 * 10 * 10});
}

TEST(parallel_for, helpers_that_look_for_work_and_that_sleep_find_it) {
  std::int64_t sum = 0;
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::atomic<std::int64_t> sum_of_loop{0};
    parallel_for(2 + repeat % 3, 20, [&](std::int64_t chunk) { sum_of_loop += chunk; });
    sum += sum_of_loop;
    std::this_thread::sleep_for(std::chrono::microseconds(repeat % 10 == 9 ? 500 : 20 * (repeat % 10)));
  }
  CHECK_EQUAL(sum, std::int64_t{300 * 190});
}

#ifndef GRAPHBOX_SANITIZED  // ThreadSanitizer does not allow new threads after a fork
TEST(parallel_for, works_after_a_fork) {
  parallel_for(2, 2, [](std::int64_t) {});
  const pid_t child = ::fork();
  if (child == 0) {
    std::atomic<int> runs{0};
    parallel_for(2, 100, [&](std::int64_t) { ++runs; });
    ::_exit(runs.load() == 100 ? 0 : 1);
  }
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK_EQUAL(status, 0);
}
#endif

}  // namespace
}  // namespace graphbox
