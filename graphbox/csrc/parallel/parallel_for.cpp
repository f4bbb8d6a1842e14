#include "parallel/parallel_for.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "parallel/cpu_quota.h"
#include "portability/cpu.h"

namespace graphbox {
namespace {

// A waiting thread spins first, then sleeps. Spinning for as long as it takes to wake a thread (on a virtual machine
// whose CPU was given back, this long) costs at most twice what the best choice would have: Karlin, Li, Manasse,
// Owicki, "Empirical studies of competitive spinning", SOSP 1991.
constexpr std::chrono::microseconds kLookingTime{100};

// Whether `is_there` became true while it was looked for.
template <typename Condition>
bool look_for(const Condition& is_there) {
  constexpr int kLooksBetweenClocks = 32;
  const auto end = std::chrono::steady_clock::now() + kLookingTime;
  do {
    for (int look = 0; look < kLooksBetweenClocks; ++look) {
      if (is_there()) {
        return true;
      }
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// Locks without sleeping where the lock is free soon, as locks that are held for a few instructions are.
std::unique_lock<std::mutex> locked(std::mutex& mutex) {
  std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock && !look_for([&] { return lock.try_lock(); })) {
    lock.lock();
  }
  return lock;
}

struct Job {
  const std::function<void(std::int64_t)>* body;
  std::int64_t chunks;
  std::atomic<std::int64_t> next{0};

  static constexpr std::uint32_t kClosed = std::uint32_t{1} << 31;  // no helper may enter any more
  std::atomic<std::uint32_t> helpers{0};                            // inside `work`

  std::mutex error_mutex;
  std::exception_ptr error;
  std::int64_t error_chunk = 0;

  void work() {
    for (;;) {
      const std::int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) {
        return;
      }
      try {
        (*body)(chunk);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error || chunk < error_chunk) {
          error = std::current_exception();
          error_chunk = chunk;
        }
        next.store(chunks, std::memory_order_relaxed);
        return;
      }
    }
  }

  void join() {
    std::uint32_t before = helpers.load(std::memory_order_relaxed);
    do {
      if ((before & kClosed) != 0) {
        return;
      }
    } while (!helpers.compare_exchange_weak(before, before + 1, std::memory_order_acquire));
    work();
    if (helpers.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) {
      helpers.notify_one();
    }
  }

  void close(bool looks) {
    std::uint32_t left = helpers.fetch_or(kClosed, std::memory_order_acquire) | kClosed;
    const auto is_over = [&] { return (left = helpers.load(std::memory_order_acquire)) == kClosed; };
    if (left == kClosed || (looks && look_for(is_over))) {
      return;
    }
    while (!is_over()) {
      helpers.wait(left, std::memory_order_acquire);
    }
  }
};

class Pool {
 public:
  Pool() {
    cpu_set_t allowed;
    cpus_ = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    cpus_ = std::min(cpus_, cpu_quota());  // looking uses it up, and then whoever works is stopped
  }

  // Works on the job with at most `count` helpers; starts threads as needed.
  void run(const std::shared_ptr<Job>& job, int count) {
    callers_.fetch_add(1, std::memory_order_relaxed);
    try {
      help(job, count);
    } catch (const std::bad_alloc&) {  // fewer helpers than asked for: those that there are must be waited for
    }
    job->work();
    job->close(count < cpus_);
    callers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  void help(const std::shared_ptr<Job>& job, int count) {
    int asleep = 0;
    {
      const auto lock = locked(mutex_);
      for (int i = 0; i < count; ++i) {
        queue_.push_back(job);
      }
      while (threads_ < std::min<int>(static_cast<int>(queue_.size()) + busy_, kMostThreads)) {
        try {
          std::thread(&Pool::serve, this).detach();
        } catch (const std::system_error&) {
          break;  // fewer helpers than asked for: whoever asks works itself
        }
        ++threads_;
      }
      if (threads_ == 0) {
        queue_.clear();
      }
      asleep = std::min(sleeping_, static_cast<int>(queue_.size()) - looking_);
    }
    jobs_given_.fetch_add(1, std::memory_order_release);  // those who look find the lock free
    for (int i = 0; i < asleep; ++i) {
      wake_.notify_one();
    }
  }

  void serve() {
    auto lock = locked(mutex_);
    for (;;) {
      wait_for_job(lock);
      const std::shared_ptr<Job> job = std::move(queue_.front());
      queue_.pop_front();
      ++busy_;
      lock.unlock();
      job->join();
      lock = locked(mutex_);
      --busy_;
    }
  }

  // Looking is for CPUs that nobody else here wants.
  void wait_for_job(std::unique_lock<std::mutex>& lock) {
    const int callers = std::max(callers_.load(std::memory_order_relaxed), 1);
    if (queue_.empty() && busy_ + looking_ + callers < cpus_) {
      const std::uint32_t before = jobs_given_.load(std::memory_order_relaxed);
      ++looking_;
      lock.unlock();
      look_for([&] { return jobs_given_.load(std::memory_order_acquire) != before; });
      lock = locked(mutex_);
      --looking_;
    }
    ++sleeping_;
    wake_.wait(lock, [this] { return !queue_.empty(); });
    --sleeping_;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::atomic<std::uint32_t> jobs_given_{0};
  std::atomic<int> callers_{0};
  int cpus_;
  int threads_ = 0;  // of these
  int busy_ = 0;
  int looking_ = 0;
  int sleeping_ = 0;
};

// The pool of this process. Never destroyed, since its threads are detached; made anew after a fork, which keeps only
// the forking thread.
Pool& pool() {
  static std::mutex mutex;
  static Pool* current = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (current == nullptr || owner != ::getpid()) {
    current = new Pool();
    owner = ::getpid();
  }
  return *current;
}

}  // namespace

void parallel_for(int threads, std::int64_t chunks, const std::function<void(std::int64_t)>& body) {
  const int helpers = static_cast<int>(std::min<std::int64_t>(bounded_threads(threads), chunks)) - 1;
  if (helpers <= 0) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      body(chunk);
    }
    return;
  }
  const auto job = std::make_shared<Job>();
  job->body = &body;
  job->chunks = chunks;
  pool().run(job, helpers);
  if (job->error) {
    // Taken out of the job, which a late helper may be the last to let go of.
    std::rethrow_exception(std::exchange(job->error, nullptr));
  }
}

}  // namespace graphbox
