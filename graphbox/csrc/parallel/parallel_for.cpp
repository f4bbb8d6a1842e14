#include "parallel/parallel_for.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace graphbox {
namespace {

struct Job {
  const std::function<void(std::int64_t)>* body;
  std::int64_t chunks;
  std::atomic<std::int64_t> next{0};

  std::mutex mutex;
  std::condition_variable idle;
  int running = 0;      // helpers inside `work`
  bool closed = false;  // no helper may enter any more
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
        const std::lock_guard lock(mutex);
        if (!error || chunk < error_chunk) {
          error = std::current_exception();
          error_chunk = chunk;
        }
        next.store(chunks, std::memory_order_relaxed);
        return;
      }
    }
  }
};

class Pool {
 public:
  // Asks `count` helpers to join the job; starts threads as needed.
  void help(const std::shared_ptr<Job>& job, int count) {
    {
      const std::lock_guard lock(mutex_);
      for (int i = 0; i < count; ++i) {
        queue_.push_back(job);
      }
      while (threads_ < std::min<int>(static_cast<int>(queue_.size()) + busy_, kMostThreads)) {
        try {
          std::thread(&Pool::run, this).detach();
        } catch (const std::system_error&) {
          break;  // fewer helpers than asked for: whoever asks works itself
        }
        ++threads_;
      }
      if (threads_ == 0) {
        queue_.clear();
      }
    }
    wake_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !queue_.empty(); });
      const std::shared_ptr<Job> job = std::move(queue_.front());
      queue_.pop_front();
      ++busy_;
      lock.unlock();
      join(*job);
      lock.lock();
      --busy_;
    }
  }

  static void join(Job& job) {
    {
      const std::lock_guard lock(job.mutex);
      if (job.closed) {
        return;
      }
      ++job.running;
    }
    job.work();
    const std::lock_guard lock(job.mutex);
    if (--job.running == 0) {
      job.idle.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  int threads_ = 0;
  int busy_ = 0;
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
  pool().help(job, helpers);
  job->work();
  std::unique_lock lock(job->mutex);
  job->closed = true;
  job->idle.wait(lock, [&] { return job->running == 0; });
  if (job->error) {
    // Taken out of the job, which a late helper may be the last to let go of.
    std::rethrow_exception(std::exchange(job->error, nullptr));
  }
}

}  // namespace graphbox
